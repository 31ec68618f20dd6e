// ThreadExecutor: runs the planner's parallel work on this process's threads, one per core unless told otherwise.
//
// run() borrows the caller's thread and starts the others for its own duration: tasks are whole simulations, beside which a
// thread's start costs nothing.
#pragma once

#include "planner/base/executor.h"

namespace windlass::cli {

class ThreadExecutor final : public Executor {
 public:
  // 0: as many as there are cores.
  explicit ThreadExecutor(int threads = 0);

  [[nodiscard]] int concurrency() const override { return threads_; }
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override;

 private:
  int threads_;
};

}  // namespace windlass::cli
