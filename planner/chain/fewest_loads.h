// Moving few bytes: a composition's block ranges handed out anew among its servers, so that fewer blocks have to be loaded
// while the objective is no worse. Part of recomposition; pure and deterministic.
//
// Two ways, in turns, as long as they help. Servers that are alike (memory, times) exchange their ranges: ranges that some
// server holds already stay there, the rest is an assignment problem. And the servers of one disjoint chain of GBP-CR, or of
// the one it left unfinished, line up in another order: the order with the fewest loads by dynamic programming over subsets for
// chains of up to 12 servers, that of their old ranges for longer ones. The new placement must serve at least as well, by
// compose_on(): the mean response time's lower bound, or the total rate where that is unstable.
#pragma once

#include "planner/chain/compose.h"

namespace windlass::chain {

// How many blocks servers have to load from one placement to the other.
[[nodiscard]] long blocks_to_load(const Placement& before, const Placement& after);

// Whether a serves no worse than b: stable rather than not, then by the lower bound, or by the total rate if both are unstable.
[[nodiscard]] bool serves_no_worse(const Composition& a, const Composition& b);

// `composed` itself if nothing helps. REQUIRES: `held` has one range a server.
[[nodiscard]] Composition with_fewest_loads(const Instance& instance, const Composition& composed, const Placement& held);

}  // namespace windlass::chain
