// Prints a plan as a table, for `windlass plan`. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::cli {

// One line per pool, then per service the predictions and reasons.
[[nodiscard]] std::string plan_table(const planner::Snapshot& snapshot, const planner::Plan& plan);

// Parts shared with `windlass explain`.
[[nodiscard]] std::string count_text(int n, const char* what);                                    // "1 worker", "2 workers"
[[nodiscard]] std::string strategies_table(const std::vector<planner::StrategyAnswer>& answers);  // empty without answers
[[nodiscard]] std::string predicted_figures(const planner::ServicePlan& service);                 // with 90 % intervals
[[nodiscard]] std::string basis_text(std::string_view provenance);                                // of a planner::Provenance
[[nodiscard]] std::string hint_text(const char* name, const planner::Hint& hint);  // "Feasible: False (NoAccelerator): ..."
[[nodiscard]] std::string denied_text(const planner::Denied& denied);

}  // namespace windlass::cli
