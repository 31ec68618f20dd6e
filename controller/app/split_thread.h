// SplitThread: works out how to split the phases of services that want it, on a thread of its own: the strategies simulate for
// seconds, and the loop must not wait for them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "controller/reconcile/split_questions.h"

namespace windlass::controller {

class SplitThread {
 public:
  // `on_answer` is called on the thread after each. Both are borrowed. What it is asked before is told by wake().
  SplitThread(SplitQuestions& questions, std::function<void()> on_answer);
  ~SplitThread();
  SplitThread(const SplitThread&) = delete;
  SplitThread& operator=(const SplitThread&) = delete;

  // There is something to ask.
  void wake();

 private:
  void run();

  SplitQuestions& questions_;
  std::function<void()> on_answer_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool asked_ = false;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace windlass::controller
