// Computes, for each prefill worker, which share of its requests each decode worker should continue. Gateways use these
// weights. They come from the maximum flow between a service's prefill and decode workers (planner/dispatch/pair_flow.h). Pure.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "controller/runtime/worker_runtime.h"
#include "planner/dispatch/routing_table.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

// Returns, by index of a prefill chain in `route`, each pair's share of the total flow. The shares add up to 1, except for
// rounding to a millionth. `workers`: those of the service. A chain's capacity is the rate of its slots. A worker's link
// capacity is its class's link rate times the number of its GPUs that hold part of the cache; unknown links are unlimited. A
// request's cache size is that of the mean prompt in its wire format.
//
// Empty if the weights would tell the gateways no more than the chains' rates, which they know: every prefill chain would share
// each decode chain in proportion to its rate. This is the case if all workers are on one machine, or if no two workers share a
// machine and no link limits the flow. Then the fastest free chain is the best choice
// (docs/decisions/2026-11-22-weights-of-pairs.md).
[[nodiscard]] std::map<std::size_t, std::vector<dispatch::DecodeWeight>> decode_weights(const planner::Service& service,
                                                                                        const planner::Snapshot& snapshot,
                                                                                        const std::vector<Worker>& workers,
                                                                                        const dispatch::ModelRoute& route);

}  // namespace windlass::controller
