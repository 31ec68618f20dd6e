// HexGen's genetic algorithm over groups of GPUs (Jiang et al., ICML 2024, Section 4.3): a population of partitions that merge,
// split and swap: what HexGen schedules with, and, with a phase for each group, a baseline of HexGen-2 (Section 5.3). Pure.
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
  int tournament = 3;           // of so many the best becomes a parent
  std::int64_t idle = 2000;     // offspring in a row that may be no better than the best
  std::int64_t most_steps = 0;  // offspring
  bool keep_groups = true;      // their number stays: a merge comes with a split
  int most_groups = 0;          // that splits may lead to; 0: any number
  bool phases = true;           // a change of a group's phase is a step too
  StopCheck stop;
};

struct Evolved {
  Placement groups;
  std::int64_t fitness = 0;
  std::int64_t steps = 0;
  bool stopped = false;  // by `stop` or at most_steps
};

// `fitness` may reorder its argument; more is better. Deterministic but for `stop`. REQUIRES: population >= 2, each placement
// of `first` has a GPU in every group; the population is filled with random placements of as many groups.
[[nodiscard]] Evolved evolve(StrategyTable& table, int groups, std::vector<Placement> first,
                             const std::function<std::int64_t(Placement&)>& fitness, const GeneticOptions& options, Rng rng);

}  // namespace windlass::hetero
