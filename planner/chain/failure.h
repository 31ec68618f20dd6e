// Computes which chains remain after servers fail: those that the surviving servers can form immediately, without loading
// blocks. Pure.
#pragma once

#include <vector>

#include "planner/chain/compose.h"

namespace windlass::chain {

// Runs GCA on the ranges of the survivors. Failed servers stay in the instance and in the placement, with no blocks. The result
// has no chains if the survivors do not hold all blocks. REQUIRES: a range for every server; failed are indices of the
// instance.
[[nodiscard]] Composition surviving(const Instance& instance, Placement placement, const std::vector<int>& failed);

// The ranges that the servers of `next` already hold from `placement`, which was made for `previous`. Servers are matched by
// name. A server that is new in `next`, or whose memory no longer holds its range, holds nothing. REQUIRES: the same blocks in
// both.
[[nodiscard]] Placement carried_over(const Instance& previous, const Placement& placement, const Instance& next);

}  // namespace windlass::chain
