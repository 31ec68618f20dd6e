// HexGen's genetic algorithm over groups of GPUs (Jiang et al., ICML 2024, Section 4.3): a population of partitions that merge,
// split and swap. HexGen schedules with it; with a phase per group it is a baseline for HexGen-2 (Section 5.3). Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/rng.h"
#include "planner/strategies/hexgen2/hexgen2_placement.h"

namespace windlass::hetero {

struct GeneticOptions {
  int population = 24;
  int tournament = 3;          // size of the tournament whose winner becomes a parent
  std::int64_t idle = 2000;    // consecutive offspring without improvement before it stops
  std::int64_t max_steps = 0;  // offspring
  bool keep_groups = true;     // keep the number of groups: a merge comes with a split
  int max_groups = 0;          // maximum after splits; 0: no limit
  bool phases = true;          // changing a group's phase is also a step
  StopCheck stop;
};

struct Evolved {
  Placement groups;
  std::int64_t fitness = 0;
  std::int64_t steps = 0;
  bool stopped = false;  // by `stop` or at max_steps
};

// `fitness` may reorder its argument; more is better. Deterministic except for `stop`. REQUIRES: population >= 2, each
// placement of `first` has a GPU in every group. The population is filled up with random placements of the same number of
// groups.
[[nodiscard]] Evolved evolve(StrategyTable& table, int groups, std::vector<Placement> first,
                             const std::function<std::int64_t(Placement&)>& fitness, const GeneticOptions& options, Rng rng);

}  // namespace windlass::hetero
