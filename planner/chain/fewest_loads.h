// Reduces the bytes that a new composition has to load: reassigns its block ranges among servers so that fewer blocks must be
// loaded and the objective gets no worse. Part of recomposition; pure and deterministic.
//
// Two methods alternate while they help. First, identical servers (same memory and times) exchange ranges: ranges that some
// server already holds stay there, and the rest is an assignment problem. Second, the servers of one disjoint chain of GBP-CR,
// or of its unfinished chain, are reordered: for up to 12 servers the order with the fewest loads is found by dynamic
// programming over subsets; longer chains use the order of their old ranges. The new placement must serve at least as well by
// compose_on(): judged by the lower bound of the mean response time, or by the total rate if that is unstable.
#pragma once

#include "planner/chain/compose.h"

namespace windlass::chain {

// How many blocks servers must load to get from one placement to the other.
[[nodiscard]] long blocks_to_load(const Placement& before, const Placement& after);

// Whether a serves no worse than b: stable beats unstable, then the lower bound decides, or the total rate if both are
// unstable.
[[nodiscard]] bool serves_no_worse(const Composition& a, const Composition& b);

// Returns `composed` itself if nothing helps. REQUIRES: `held` has one range per server.
[[nodiscard]] Composition with_fewest_loads(const Instance& instance, const Composition& composed, const Placement& held);

}  // namespace windlass::chain
