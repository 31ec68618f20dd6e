// Waker lets other threads (I/O, signals) interrupt the main loop's wait. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace windlass::controller {

class Waker {
 public:
  void wake() {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    changed_.notify_one();
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_one();
  }

  [[nodiscard]] bool stopped() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

  // Waits until wake() or stop(), or until `seconds` have passed, but at least `least_seconds`, so that a chatty peer cannot
  // make the loop spin.
  void wait(double least_seconds, double seconds) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(least_seconds), [&] { return stopped_; });
    if (seconds > least_seconds) {
      changed_.wait_for(lock, std::chrono::duration<double>(seconds - least_seconds), [&] { return stopped_ || woken_; });
    }
    woken_ = false;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  bool stopped_ = false;
};

}  // namespace windlass::controller
