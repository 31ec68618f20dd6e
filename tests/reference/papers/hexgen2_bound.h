// An upper bound on the flow of any placement, by a fractional relaxation: what HexGen-2's search is measured by where
// exhaustive search cannot go.
//
// GPUs of a kind are divided freely, KV caches cross for nothing, and a group's layers all run on its fastest stage (a latency
// is a weighted mean of its stages', so that is no slower). What stays: GPUs of each kind, memory for weights and caches, the
// number of groups, and what batches save: a decode group's requests/s are a concave function of its batch, which tangents
// bound. A linear program in numbers of groups and batches by kind and tensor parallelism. Pure.
#pragma once

#include "planner/base/result.h"
#include "planner/strategies/hexgen2/hexgen2_strategies.h"

namespace windlass::hetero {

// Requests/s that no placement of at most `groups` groups passes. Errors: those of mip::solve().
[[nodiscard]] Result<double> flow_bound(const StrategyTable& table, int groups);

}  // namespace windlass::hetero
