// HexGen-2's third phase (Section 3.4): GPUs change places between groups, and groups phases, as the max-flow asks, until
// nothing improves.
//
// The step is an exchange between two groups: another split of their GPUs between them (a swap of unlike GPUs, a move of one or
// more; all splits where there are few), with any phases for the two. Pairs are tried in the order in which the flow points at
// them: first those of a group that is full (a bottleneck) and one that has capacity left (underutilised), then the rest.
// Better is more flow; with equal flow more of what could flow if GPUs were divided freely between the phases (the harmonic
// mean of both phases' capacities), so that the search crosses plains. Local optima are left by random exchanges, and returned
// to when nothing better is found. With `guided` off it is the paper's truncated variant: random exchanges, kept when they
// improve the flow. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "planner/base/executor.h"
#include "planner/base/rng.h"
#include "planner/strategies/hexgen2/hexgen2_placement.h"

namespace windlass::hetero {

struct RefineOptions {
  bool guided = true;
  bool may_empty = false;        // a group may lose its last GPU: fewer groups than there were
  int rounds = 0;                // random exchanges out of local optima that in a row may find nothing better
  std::int64_t shake_until = 0;  // steps after which no further exchange is random; the climb that runs ends as it would
  std::int64_t most_steps = 0;   // exchanges that are weighed; a flow that has to be solved counts by its size
  StopCheck stop;
};

struct Refined {
  Placement groups;
  std::int64_t flow = 0;  // units
  std::int64_t steps = 0;
  std::int64_t improvements = 0;  // exchanges that were made
  bool stopped = false;           // by `stop` or at most_steps, before the search was through
};

// REQUIRES: every group has a GPU. Deterministic but for `stop`.
[[nodiscard]] Refined refine(StrategyTable& table, Placement start, const RefineOptions& options, Rng rng);

// Every GPU in one of `groups` groups, dealt at random to the group with the least memory; phases at random, both there.
// REQUIRES: 2 <= groups <= GPUs of the cluster.
[[nodiscard]] Placement random_placement(StrategyTable& table, int groups, Rng& rng);

// From here on placements are compared by second_phase(); above, pipelines keep their order while other groups change.
inline constexpr std::size_t kFewGroups = 12;

}  // namespace windlass::hetero
