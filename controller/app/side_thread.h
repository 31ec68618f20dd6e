// SideThread runs work that takes seconds, so that the main loop does not wait for it. It does one piece of work at a time and
// sleeps while there is none.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace windlass::controller {

class SideThread {
 public:
  using Stop = std::function<bool()>;        // a piece of work polls this; true: end now
  enum class Priority { kNormal, kLowest };  // kLowest: only what others leave of the CPUs
  // `work` does the next piece and returns whether there was one. It is called on the thread.
  explicit SideThread(std::function<bool(const Stop&)> work, Priority priority = Priority::kNormal);
  ~SideThread();  // waits for the current piece
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // Call it after adding work.
  void wake();

 private:
  void run(Priority priority);

  std::function<bool(const Stop&)> work_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool there_is_work_ = false;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace windlass::controller
