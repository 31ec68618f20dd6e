// Executor runs the planner's parallel work. The planner has no threads of its own: its caller (the CLI, the controller, a
// test) owns them and lends them through this interface.
//
//   SerialExecutor executor;
//   Result<std::vector<Metrics>> runs =
//       parallel_map<Metrics>(executor, seeds.size(), [&](std::size_t i) { return simulate(seeds[i]); });
//
// Determinism: a task is a pure function of its index and results are returned in index order, so the outcome does not depend
// on the number of cores. Only a stop request depends on time. It never changes a result: the whole call returns Cancelled
// instead.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "planner/base/result.h"

namespace windlass {

// Called between tasks, and inside long ones, to ask whether to give up. It returns true once the caller wants no more; an
// empty function never stops the work. REQUIRES: may be called from several threads at once; once true, always true.
// (std::stop_token would do, but the planner may not know of threads. Its owner binds one: [token] { return
// token.stop_requested(); }.)
using StopCheck = std::function<bool()>;

[[nodiscard]] inline bool stop_requested(const StopCheck& stop) { return stop && stop(); }

class Executor {
 public:
  virtual ~Executor() = default;

  // Number of tasks that run at the same time, at least 1. A hint for splitting work; no result may depend on it.
  [[nodiscard]] virtual int concurrency() const = 0;

  // Calls task(0) .. task(count - 1), each once, in any order, possibly at the same time. Returns when all have finished; the
  // caller then sees everything the tasks wrote. REQUIRES: tasks share no place they write to, do not throw, and call run() on
  // no executor (a pool would wait for itself).
  virtual void run(std::size_t count, const std::function<void(std::size_t)>& task) = 0;
};

// Runs tasks on the caller's thread, in index order.
class SerialExecutor final : public Executor {
 public:
  [[nodiscard]] int concurrency() const override { return 1; }
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override;
};

// Runs each task once: on the executor, or without one here, in order.
inline void run_tasks(Executor* executor, const std::vector<std::function<void()>>& tasks) {
  SerialExecutor serial;
  (executor == nullptr ? serial : *executor).run(tasks.size(), [&](std::size_t index) { tasks[index](); });
}

// Returns task(i) for every index, in index order. Error Cancelled if `stop` became true before the last task started; tasks
// not yet started are then skipped.
template <class T, class Task>
[[nodiscard]] Result<std::vector<T>> parallel_map(Executor& executor, std::size_t count, const Task& task,
                                                  const StopCheck& stop = {}) {
  // std::optional, because T may have no default constructor and neighbours in a std::vector<bool> would share a byte.
  std::vector<std::optional<T>> slots(count);
  executor.run(count, [&](std::size_t index) {
    if (!stop_requested(stop)) slots[index].emplace(task(index));
  });
  std::vector<T> results;
  results.reserve(count);
  for (std::optional<T>& slot : slots) {
    if (!slot) return Error{ErrorCode::kCancelled, "stopped before all parts were done"};
    results.push_back(std::move(*slot));
  }
  return results;
}

}  // namespace windlass
