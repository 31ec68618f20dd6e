// Which decode workers the requests of each prefill worker go on to: the maximum flow between the workers of a service that has
// both (planner/dispatch/pair_flow.h), as weights for the gateways. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "controller/runtime/worker_runtime.h"
#include "planner/dispatch/routing_table.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

// By the index of a prefill chain in `route`: its pairs' parts of the whole flow, which add up to 1 but for rounding to a
// millionth. `workers`: of the service. A chain's capacity is what its slots serve, a worker's links are those of its class for
// each of its GPUs with a part of the cache; unknown links carry anything. A request's cache is that of the mean prompt as it
// travels.
//
// Empty where weights would say no more than the chains' rates, which gateways know: no prefill chain has another share of any
// decode chain than its rate among them all. So it is where all workers are on one machine, or none shares one and links do not
// limit anybody. The fastest free chain is then the best choice (docs/decisions/2026-11-22-weights-of-pairs.md).
[[nodiscard]] std::map<std::size_t, std::vector<dispatch::DecodeWeight>> decode_weights(const planner::Service& service,
                                                                                        const planner::Snapshot& snapshot,
                                                                                        const std::vector<Worker>& workers,
                                                                                        const dispatch::ModelRoute& route);

}  // namespace windlass::controller
