// ThreadExecutor: runs the planner's parallel work on threads of this process, by default one per core.
//
// run() uses the caller's thread and starts the others for its own duration: each task is a whole simulation, so the cost of
// starting threads is negligible.
#pragma once

#include "planner/base/executor.h"

namespace windlass::cli {

class ThreadExecutor final : public Executor {
 public:
  // 0: one thread per core.
  explicit ThreadExecutor(int threads = 0);

  [[nodiscard]] int concurrency() const override { return threads_; }
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override;

 private:
  int threads_;
};

}  // namespace windlass::cli
