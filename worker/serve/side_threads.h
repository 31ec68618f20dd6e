// SideThreads: a small thread pool for slow work, which would otherwise block the threads that serve all requests.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace windlass::worker {

class SideThreads {
 public:
  explicit SideThreads(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this] { run(); });
  }
  // Waits until all work is done.
  ~SideThreads() {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& each : threads_) each.join();
  }
  SideThreads(const SideThreads&) = delete;
  SideThreads& operator=(const SideThreads&) = delete;

  // Queues `work` (first in, first out), which must not throw. Returns false, without queueing, if kMaxWaiting are waiting.
  [[nodiscard]] bool post(std::function<void()> work) {
    {
      const std::scoped_lock lock(mutex_);
      if (work_.size() >= kMaxWaiting) return false;
      work_.push_back(std::move(work));
    }
    changed_.notify_one();
    return true;
  }
  static constexpr std::size_t kMaxWaiting = 64;

 private:
  void run() {
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ends_ || !work_.empty(); });
        if (work_.empty()) return;
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace windlass::worker
