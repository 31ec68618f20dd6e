// HexGen-2's third phase (Section 3.4): exchanges GPUs between groups and changes phases, guided by the max-flow, until nothing
// improves.
//
// A step is an exchange between two groups: another split of their GPUs (a swap of different GPUs, a move of one or more; all
// splits if there are few), with any phases for the two. Pairs are tried in the order the flow suggests: first a saturated
// group (a bottleneck) with one that has capacity left (underutilised), then the rest. More flow is better; with equal flow,
// the larger harmonic mean of both phases' capacities, which is the flow if GPUs could be divided freely, so that the search
// crosses plateaus. Random exchanges leave local optima; the search returns to the optimum if nothing better is found. With
// `guided` off it is the paper's truncated variant: random exchanges, kept if they improve the flow. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "planner/base/executor.h"
#include "planner/base/rng.h"
#include "planner/strategies/hexgen2/hexgen2_placement.h"

namespace windlass::hetero {

struct RefineOptions {
  bool guided = true;
  bool may_empty = false;        // a group may lose its last GPU, which reduces the number of groups
  int rounds = 0;                // consecutive random exchanges out of local optima without improvement before it stops
  std::int64_t shake_until = 0;  // steps after which no exchange is random; the current climb continues normally
  std::int64_t max_steps = 0;    // limit of evaluated exchanges; computing a flow counts by its size
  StopCheck stop;
};

struct Refined {
  Placement groups;
  std::int64_t flow = 0;  // units
  std::int64_t steps = 0;
  std::int64_t improvements = 0;  // exchanges made
  bool stopped = false;           // by `stop` or max_steps, before the search was complete
};

// REQUIRES: every group has a GPU. Deterministic except for `stop`.
[[nodiscard]] Refined refine(StrategyTable& table, Placement start, const RefineOptions& options, Rng rng);

// Assigns every GPU, in random order, to the group with the least memory; phases are random, with at least one of each.
// REQUIRES: 2 <= groups <= GPUs of the cluster.
[[nodiscard]] Placement random_placement(StrategyTable& table, int groups, Rng& rng);

// Up to this number placements are compared by second_phase(); above it pipelines keep their order while other groups change.
inline constexpr std::size_t kFewGroups = 12;

}  // namespace windlass::hetero
