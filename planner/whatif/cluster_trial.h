// A ClusterPlan in the simulator: what it gives at a rate, and whether it meets the objectives there. Pure.
#pragma once

#include <string>

#include "planner/base/result.h"
#include "planner/strategies/clusters/cluster_plan.h"
#include "planner/strategies/core/trial.h"

namespace windlass::hetero {

// Errors: those of to_serving() and simulate_serving().
[[nodiscard]] Result<sim::ServingResult> try_out(const ClusterProblem& problem, const ClusterPlan& plan,
                                                 const search::Trial& trial);

struct ClusterTrial {
  // `capacity_requests_per_s` is the plan's own. Nothing is predicted of a plan that cannot be simulated.
  search::Prediction predicted;
  // The plan serves the rate, and the simulated requests are inside the objectives.
  bool meets_objectives = false;
  std::string missed;  // what it misses, in words; empty: nothing
};

// One run at the problem's rate, of as many requests as a trial has.
[[nodiscard]] ClusterTrial trial_of(const ClusterProblem& problem, const ClusterPlan& plan);

}  // namespace windlass::hetero
