// A plan in words: the table of `windlass plan` and the story of `windlass explain`. Pure.
#pragma once

#include <string>

#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::cli {

// A line per pool, then per service what is predicted and why.
[[nodiscard]] std::string plan_table(const planner::Snapshot& snapshot, const planner::Plan& plan);

// One service: what was seen, what was decided, every reason with its figures, every condition, what was denied.
[[nodiscard]] std::string explanation(const planner::Snapshot& snapshot, const planner::Service& service,
                                      const planner::Plan& plan, const planner::ServicePlan& service_plan);

}  // namespace windlass::cli
