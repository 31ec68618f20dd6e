// A Composition as JSON, servers by their names: what `windlass chain compose -o json` prints. Numbers round-trip. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "planner/chain/compose.h"

namespace windlass::chain {

// Keys in this order: capacity (null where none was chosen), placement, unplacedServers, disjointChains, chains, totalCapacity,
// totalServiceRatePerSecond, arrivalRate, maxLoad, load, stable, meetsMaxLoad, bounds (null when unstable), considered. Blocks
// count from 1.
[[nodiscard]] nlohmann::ordered_json composition_json(const Instance& instance, const Composition& composition);

}  // namespace windlass::chain
