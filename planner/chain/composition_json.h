// Writes a Composition as JSON, with servers by name: the output of `windlass chain compose -o json`. Numbers round-trip. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "planner/chain/compose.h"

namespace windlass::chain {

// Keys in this order: capacity (null if none was chosen), placement, unplacedServers, disjointChains, chains, totalCapacity,
// totalServiceRatePerSecond, arrivalRate, maxLoad, load, stable, meetsMaxLoad, bounds (null if unstable), considered. Blocks
// count from 1.
[[nodiscard]] nlohmann::ordered_json composition_json(const Instance& instance, const Composition& composition);

}  // namespace windlass::chain
