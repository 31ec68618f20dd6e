// Builds the gateways' routing table from a plan and the current workers. Pure.
#pragma once

#include <string>
#include <vector>

#include "controller/reconcile/observe.h"
#include "planner/dispatch/routing_table.h"

namespace windlass::controller {

// Id of the worker's chain: "namespace/name", unique over all services.
[[nodiscard]] std::string chain_id(const Worker& worker);

// `max_queued`: requests that may wait at one gateway for one model.
[[nodiscard]] std::vector<dispatch::ModelRoute> routes(const Observation& observation, const ControllerState& state,
                                                       int max_queued);

}  // namespace windlass::controller
