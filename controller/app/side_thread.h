// SideThread: a thread for what takes seconds and the loop must not wait for. It does one piece of work after another, and
// waits where there is none.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace windlass::controller {

class SideThread {
 public:
  using Stop = std::function<bool()>;  // to be asked within a piece: it should end now
  // Does the next piece and says whether there was one. Called on the thread.
  explicit SideThread(std::function<bool(const Stop&)> work);
  ~SideThread();  // waits for the piece under way
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // There is work.
  void wake();

 private:
  void run();

  std::function<bool(const Stop&)> work_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool there_is_work_ = false;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace windlass::controller
