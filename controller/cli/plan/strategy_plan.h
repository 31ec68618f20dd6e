// `windlass plan` by a named strategy: from a SCENARIO without `cluster`, a CLUSTER file or a ModelService to a table, JSON,
// YAML or a page.
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
  std::string strategy;    // empty: auto, or of a CLUSTER file hexgen2
  std::string goal;        // empty: cost
  std::string time_limit;  // empty: none
  bool compare = false;
  std::string output = "table";
  std::string report;
  double rate_per_s = -1;
  int jobs = 0;
};

// Whether a file holds Kubernetes objects and no SCENARIO.
[[nodiscard]] Result<bool> holds_objects(const std::string& path);

// Prints, and gives the exit code: kDone, kFailed, kUsage, kInfeasible.
[[nodiscard]] int plan_by_strategy(const StrategyFlags& flags, Console& console);

}  // namespace windlass::cli
