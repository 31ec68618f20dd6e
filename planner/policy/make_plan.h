// make_plan turns observations into a safe plan. It is pure: the same snapshot always gives the same plan.
//
// Scale-up is immediate. Scale-down goes to the largest recommendation of the stabilization window, and only once the history
// covers that window. Demand is arrivals plus waiting requests. A missing, stale or NaN signal keeps the workers as they are.
// Budgets (workers, GPUs, cost, capacity) are never exceeded; Plan::denied lists what they withheld.
#pragma once

#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

[[nodiscard]] Plan make_plan(const Snapshot& snapshot);

}  // namespace windlass::planner
