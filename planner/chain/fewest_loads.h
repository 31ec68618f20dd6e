// Changes a new composition so that servers have to load fewer bytes: it exchanges block ranges among servers as long as the
// objective gets no worse. Part of recomposition; pure and deterministic.
//
// Two methods alternate while they help. First, identical servers (same memory and times) exchange ranges. A range that one of
// them already holds stays there; the rest is an assignment problem. Second, the servers of one disjoint chain of GBP-CR, or of
// its unfinished chain, are put in another order. For up to 12 servers, dynamic programming over subsets finds the order with
// the fewest loads. Longer chains use the order of their old ranges.
//
// The new placement must serve at least as well by compose_on(). The measure is the lower bound of the mean response time, or
// the total rate if that is unstable.
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
