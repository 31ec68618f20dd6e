// A ClusterPlan as the simulator takes it, so that what a plan promises can be tried.
//
// A pool of one worker for each group. Prefill and decode groups are chosen in pairs, in proportion to the flow between them
// and without bursts (HexGen-2, Section 3.3); caches of a pair go one after another, and take as long as the plan's capacity of
// the pair says of a mean prompt, longer and shorter ones in proportion. Unified groups are chosen by
// Huawei's scheduler, which is made for unlike instances (dispatch/huawei_policy.h). Pure.
#pragma once

#include <memory>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/iteration_model.h"
#include "planner/sim/serving_options.h"
#include "planner/strategies/clusters/cluster_plan.h"

namespace windlass::hetero {

struct PlacedService {
  sim::ServingService service;                                         // borrows from `models`
  std::vector<std::shared_ptr<const planner::IterationModel>> models;  // of each pool
};

// Groups with a phase each, or cut into stages, have the times that HexGen-2 plans with (group_model.h); unified groups of one
// stage those of data sheets with fitted efficiencies (search::roofline_models). Groups without a share of the flow are left
// out. Errors (kInvalidArgument): a plan without groups or flow, those of the models.
[[nodiscard]] Result<PlacedService> to_serving(const ClusterProblem& problem, const ClusterPlan& plan);

}  // namespace windlass::hetero
