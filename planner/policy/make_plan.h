// make_plan: from observations to a safe plan. Pure: the same snapshot gives the same plan, anywhere and at any time.
//
// Scale-up is immediate; scale-down goes to the largest recommendation of the stabilisation window, and only when the history
// covers that window. Demand is arrivals plus what waits. A missing, stale or NaN signal holds the workers where they are.
// Budgets (workers, GPUs, cost, capacity) are never exceeded, and whatever they withhold is in Plan::denied.
#pragma once

#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

[[nodiscard]] Plan make_plan(const Snapshot& snapshot);

}  // namespace windlass::planner
