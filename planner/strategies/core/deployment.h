// What a deployment costs in a problem, whether there is room for it, and how the simulator takes it. Pure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/iteration_model.h"
#include "planner/sim/serving_options.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

// How the requests of chains find them: prefill and decode chains in pairs, in proportion to what they share and without bursts
// (HexGen-2, Section 3.3); unified ones by Huawei's scheduler, which is made for unlike instances (dispatch/huawei_policy.h).
[[nodiscard]] dispatch::DispatchSettings dispatch_of_chains(const Problem& problem, bool unified);

[[nodiscard]] double cost_per_hour(const Problem& problem, const Deployment& deployment);
[[nodiscard]] double power_watts(const Problem& problem, const Deployment& deployment);
// What the problem's goal counts, less being better: dollars an hour, watts; for throughput GPUs.
[[nodiscard]] double worth_of(const Problem& problem, const Deployment& deployment);
// Inside the accelerators' GPUs, the GPUs and the cost that a plan may have. The error says which of them is short and by how
// much.
[[nodiscard]] Result<void> check_room(const Problem& problem, const Deployment& deployment);

// As the simulator takes it.
struct Served {
  sim::ServingService service;                                         // borrows from `models` and the problem
  std::vector<std::shared_ptr<const planner::IterationModel>> models;  // of each pool
};

// Where it has chains, a pool of one worker for each. Caches of a pair go one after another, and take as long as the pair's
// capacity says of a mean prompt, longer and shorter ones in proportion; chains without a share are left out. Chains with a
// phase each, or of several hops, have the times that HexGen-2 plans with (chain_model.h); others those of data sheets with
// fitted efficiencies (roofline_models()). Errors (kInvalidArgument): no pool at all, phases without pairs; those of the
// models.
[[nodiscard]] Result<Served> serving_service(const Problem& problem, const Deployment& deployment);

}  // namespace windlass::search
