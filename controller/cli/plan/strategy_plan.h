// Runs `windlass plan` with a named strategy. Plans a SCENARIO file without `cluster`, a CLUSTER file or a ModelService, and
// prints a table, JSON, YAML or a page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "controller/cli/console/console.h"
#include "planner/base/result.h"
#include "planner/strategies/core/problem.h"

namespace windlass::cli {

struct StrategyFlags {
  std::vector<std::string> files;
  std::string strategy;    // empty: auto, or hexgen2 for a CLUSTER file
  std::string goal;        // empty: cost
  std::string time_limit;  // empty: none
  bool compare = false;
  std::string output = "table";
  std::string report;
  double rate_per_s = -1;
  int jobs = 0;
};

// Whether the files hold only Kubernetes objects, and no SCENARIO or CLUSTER.
[[nodiscard]] Result<bool> holds_objects(const std::vector<std::string>& files);

// Prints the plan and returns the exit code: kDone, kFailed, kUsage or kInfeasible.
[[nodiscard]] int plan_by_strategy(const StrategyFlags& flags, Console& console);

}  // namespace windlass::cli
