// An upper bound on the flow of any placement, by a fractional relaxation. It measures HexGen-2's search where exhaustive
// search is too slow.
//
// Relaxed: GPUs of a kind are divided freely, KV transfers are free, and a group's layers all run on its fastest stage (a
// latency is a weighted mean of its stages', so that is no slower). Kept: GPUs of each kind, memory for weights and caches, the
// number of groups, and the gain of batches: a decode group's requests/s are a concave function of its batch, bounded by
// tangents. A linear program in numbers of groups and batches by kind and tensor parallelism. Pure.
#pragma once

#include "planner/base/result.h"
#include "planner/strategies/hexgen2/hexgen2_strategies.h"

namespace windlass::hetero {

// An upper bound in requests/s for placements of at most `groups` groups. Errors: those of mip::solve().
[[nodiscard]] Result<double> flow_bound(const StrategyTable& table, int groups);

}  // namespace windlass::hetero
