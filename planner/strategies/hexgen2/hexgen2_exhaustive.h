// Exhaustive placement: every partition of a cluster's GPUs into a number of groups with every choice of phases, and HexGen-2's
// second phase for the strategies. It is the reference for the search (Appendix E). GPUs of one node are interchangeable, so
// partitions that differ only by exchanging them count once; the flow is computed only if the capacities could beat the best so
// far. Grows like Stirling numbers: for up to about ten GPUs. Pure.
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
