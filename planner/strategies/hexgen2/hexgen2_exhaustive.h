// Exhaustive placement: every partition of a cluster's GPUs into a number of groups and every phase of each, strategies by
// HexGen-2's second phase: the truth that its search is measured by (Appendix E). GPUs of one node are alike, so partitions
// that differ by an exchange of them count once; a partition whose capacities cannot beat the best so far is not asked for its
// flow. Grows as Stirling's numbers: for up to ten or so GPUs. Pure.
#pragma once

#include <cstdint>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "planner/strategies/hexgen2/hexgen2_placement.h"

namespace windlass::hetero {

struct Exhausted {
  Placement groups;             // the best; of equals the first
  std::int64_t flow = 0;        // units
  std::int64_t placements = 0;  // partitions times phases
};

// Errors: kInvalidArgument for a number of groups that the GPUs do not allow; Cancelled.
[[nodiscard]] Result<Exhausted> exhaustive_placement(StrategyTable& table, int groups, const StopCheck& stop = {});

}  // namespace windlass::hetero
