// Executor: where the planner's parallel work runs. The planner has no threads; whoever calls it (the CLI, the controller, a
// test) owns them and lends them through this interface.
//
//   SerialExecutor executor;
//   Result<std::vector<Metrics>> runs = parallel_map<Metrics>(executor, seeds.size(), [&](std::size_t i) { return
//   simulate(seeds[i]); });
//
// Determinism: a task is a pure function of its index, and results come in the order of the indices, so the outcome is the same
// on any number of cores. Only a stop request depends on time, and it never changes a result: the whole call gives Cancelled
// instead.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "planner/base/result.h"

namespace windlass {

// Asked between tasks, and inside long ones, whether to give up: true once the caller wants no more. An empty function never
// stops. REQUIRES: may be called from several threads at once; once true, always true. (std::stop_token would do, but the
// planner may not know of threads; its owner binds one: [token] { return token.stop_requested(); }.)
using StopCheck = std::function<bool()>;

[[nodiscard]] inline bool stop_requested(const StopCheck& stop) { return stop && stop(); }

class Executor {
 public:
  virtual ~Executor() = default;

  // How many tasks run at the same time, at least 1. Only a hint for cutting work into pieces; no result may depend on it.
  [[nodiscard]] virtual int concurrency() const = 0;

  // Calls task(0) .. task(count - 1), each once, in any order, perhaps at the same time, and returns when all have ended. What
  // the tasks wrote is visible to the caller then. REQUIRES: tasks write to no shared place, throw nothing, and call run() on
  // no executor (a pool would wait for itself).
  virtual void run(std::size_t count, const std::function<void(std::size_t)>& task) = 0;
};

// On the caller's own thread, in the order of the indices.
class SerialExecutor final : public Executor {
 public:
  [[nodiscard]] int concurrency() const override { return 1; }
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override;
};

// task(i) of every index, in the order of the indices. Error Cancelled when `stop` came true before the last task had begun;
// tasks that had not begun by then are left out.
template <class T, class Task>
[[nodiscard]] Result<std::vector<T>> parallel_map(Executor& executor, std::size_t count, const Task& task,
                                                  const StopCheck& stop = {}) {
  // optional: T need not have a default, and neighbours in a std::vector<bool> would share a byte.
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
