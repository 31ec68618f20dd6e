// See side_thread.h.
#include "controller/app/side_thread.h"

#include <utility>

#include <sys/resource.h>
#include <unistd.h>

namespace windlass::controller {

SideThread::SideThread(std::function<bool(const Stop&)> work, Priority priority)
    : work_(std::move(work)), thread_([this, priority] { run(priority); }) {}

SideThread::~SideThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  thread_.join();
}

void SideThread::wake() {
  {
    const std::lock_guard lock(mutex_);
    there_is_work_ = true;
  }
  woken_.notify_one();
}

void SideThread::run(Priority priority) {
  constexpr int kLowestNice = 19;
  // On Linux niceness is per thread. Without permission it stays normal, which is only slower for others.
  if (priority == Priority::kLowest) static_cast<void>(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestNice));
  while (!stopping_) {
    if (work_([this] { return stopping_.load(); })) continue;
    std::unique_lock lock(mutex_);
    woken_.wait(lock, [this] { return there_is_work_ || stopping_; });
    there_is_work_ = false;
  }
}

}  // namespace windlass::controller
