// What a deployment costs in a problem, whether there is room for it, and how the simulator takes it. Pure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner/perf/iteration_model.h"
#include "planner/sim/serving_options.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

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
[[nodiscard]] Served serving_service(const Problem& problem, const Deployment& deployment);

}  // namespace windlass::search
