// See side_thread.h.
#include "controller/app/side_thread.h"

#include <utility>

namespace windlass::controller {

SideThread::SideThread(std::function<bool(const Stop&)> work) : work_(std::move(work)), thread_([this] { run(); }) {}

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

void SideThread::run() {
  while (!stopping_) {
    if (work_([this] { return stopping_.load(); })) continue;
    std::unique_lock lock(mutex_);
    woken_.wait(lock, [this] { return there_is_work_ || stopping_; });
    there_is_work_ = false;
  }
}

}  // namespace windlass::controller
