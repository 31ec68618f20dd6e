// StartLog: how long a service's workers took from their creation to their first readiness, as this controller saw it.
//
// A start is measured only where the worker was seen before it was ready and then became so, and nothing of it had failed until
// then: a worker that was ready when it was first seen may have been restarted, and a restart is no start. Pure.
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

  // The service's workers as they are now.
  void observe(const std::vector<Worker>& workers);

  // nullopt: none measured yet.
  [[nodiscard]] std::optional<planner::StartTimes> times() const;

 private:
  std::set<std::string> starting_;  // seen, and neither ready nor failed so far
  std::set<std::string> settled_;   // measured, or not to be
  std::deque<double> seconds_;      // oldest first
};

}  // namespace windlass::controller
