// A ClusterPlan as JSON, as `windlass plan` prints it: what search::to_json() says of a plan, and where its GPUs are. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "planner/whatif/cluster_trial.h"

namespace windlass::hetero {

[[nodiscard]] nlohmann::ordered_json to_json(const ClusterProblem& problem, const ClusterPlan& plan, const ClusterTrial& trial,
                                             double wall_s);

}  // namespace windlass::hetero
