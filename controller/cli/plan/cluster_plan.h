// `windlass plan` of a CLUSTER file: a model placed on given nodes and links.
#pragma once

#include "controller/cli/console/console.h"
#include "controller/cli/plan/strategy_plan.h"

namespace windlass::cli {

// Whether the file has a `cluster` to place on.
[[nodiscard]] Result<bool> holds_cluster_file(const std::string& path);

// Prints, and gives the exit code. hexgen2 unless another strategy is named; `time_limit_s` 0: ten minutes.
[[nodiscard]] int plan_on_cluster(const StrategyFlags& flags, double time_limit_s, Console& console);

}  // namespace windlass::cli
