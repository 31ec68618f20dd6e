// StartLog measures how long a service's workers take from creation to first readiness, as seen by this controller.
//
// A start is measured only if the worker was seen before it was ready and nothing of it failed until then. A worker that was
// ready when first seen may have been restarted, and a restart is not a start. Pure.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/runtime/worker_runtime.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

class StartLog {
 public:
  static constexpr std::size_t kMost = 20;

  // Updates from the service's current workers.
  void observe(const std::vector<Worker>& workers);

  // nullopt: none measured yet.
  [[nodiscard]] std::optional<planner::StartTimes> times() const;

 private:
  std::set<std::string> starting_;  // seen, but neither ready nor failed so far
  std::set<std::string> settled_;   // measured, or excluded
  std::deque<double> seconds_;      // oldest first
};

}  // namespace windlass::controller
