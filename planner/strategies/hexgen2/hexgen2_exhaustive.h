// Finds the best placement on a small cluster by trying every one. It is the reference for HexGen-2's search (Appendix E).
//
// It tries every partition of the GPUs into a number of groups, with every choice of phases for the groups; HexGen-2's second
// phase finds the strategies. GPUs of one node are interchangeable, so partitions that differ only by exchanging them count
// once. The flow is computed only if the capacities could beat the best so far. The number of partitions grows like Stirling
// numbers, so this is for up to about ten GPUs. Pure.
#pragma once

#include <cstdint>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "planner/strategies/hexgen2/hexgen2_placement.h"

namespace windlass::hetero {

struct Exhausted {
  Placement groups;             // the best; the first among ties
  std::int64_t flow = 0;        // units
  std::int64_t placements = 0;  // partitions times phases
};

// Errors: kInvalidArgument for a number of groups that the GPUs do not allow; Cancelled.
[[nodiscard]] Result<Exhausted> exhaustive_placement(StrategyTable& table, int groups, const StopCheck& stop = {});

}  // namespace windlass::hetero
