// Computes what a deployment costs in a problem and whether it has room, and converts it for the simulator. Pure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/iteration_model.h"
#include "planner/sim/serving_options.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

// How requests are assigned to chains. Prefill and decode chains in pairs, in proportion to their shares and without bursts
// (HexGen-2, Section 3.3); unified ones by Huawei's scheduler, which is made for heterogeneous instances
// (dispatch/huawei_policy.h).
[[nodiscard]] dispatch::DispatchSettings dispatch_of_chains(const Problem& problem, bool unified);

[[nodiscard]] double cost_per_hour(const Problem& problem, const Deployment& deployment);
[[nodiscard]] double power_watts(const Problem& problem, const Deployment& deployment);
// The goal's figure, less is better: dollars per hour, watts, or, for throughput, GPUs.
[[nodiscard]] double worth_of(const Problem& problem, const Deployment& deployment);
// Checks the GPUs per accelerator, the total GPUs and the cost. The error says which is exceeded and by how much.
[[nodiscard]] Result<void> check_room(const Problem& problem, const Deployment& deployment);

// A deployment in the simulator's form.
struct Served {
  sim::ServingService service;                                         // borrows from `models` and the problem
  std::vector<std::shared_ptr<const planner::IterationModel>> models;  // one per pool
};

// Converts the deployment; each chain becomes a pool of one worker. Caches of a pair are transferred one after another, taking
// the time that the pair's capacity implies for a mean prompt, others in proportion to their length; chains without a share are
// left out. Chains for one phase use HexGen-2's planning times (chain_model.h); others use data sheets with fitted
// efficiencies (roofline_models(), staged_model.h). Errors (kInvalidArgument): no pool, phases without pairs; those of the
// models.
[[nodiscard]] Result<Served> serving_service(const Problem& problem, const Deployment& deployment);

}  // namespace windlass::search
