// UnitSearch: among units that can be replicated, finds the one with the most goodput per worth. It is the inner loop of
// DistServe's Algorithms 1 and 2, whose units are instances of one phase, or pairs of both.
//
// Goodput is the largest rate that a unit sustains in the simulator (capacity_of). A unit is bisected only if it beats the best
// so far: it is first tried at the lowest rate of the grid at which it would win. If it fails there, it cannot win, as feasible
// rates lie below infeasible ones. A unit whose ceiling is below that rate is not simulated. So the winner is that of an
// exhaustive search; tests/unit/planner/strategies/distserve/distserve_test.cc compares the two. Units are tried in order of
// their estimates, in waves whose size does not depend on the executor: one problem, one answer. Pure.
//
// A goodput of a few hundred requests is as much luck as merit, and the largest of many is the luckiest. So the best units are
// tried again in finals, each with four times the requests of the round before and with other ones, the same for all units
// (common random numbers). A final is held if the step budget has room for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/strategies/core/deployment.h"
#include "planner/strategies/core/strategy.h"
#include "planner/strategies/core/trial.h"

namespace windlass::search {

struct Unit {
  const Problem* problem = nullptr;  // borrowed: with the requests and objectives that this phase sees
  Deployment deployment;             // of one unit
  double worth = 1;                  // of one unit; goodput is divided by it; above 0
  double estimate_per_s = 0;         // estimated goodput, where bisection begins
  double ceiling_per_s = 0;          // upper bound of the goodput
};

struct UnitGoodput {
  double requests_per_s = 0;
  // The goodput was not determined: per worth it is at most the winner's. With finals also 0 for what is out of their reach.
  bool beaten = false;
};

struct UnitSearchOptions {
  std::int64_t requests = 300;  // per trial
  std::uint64_t seed = 0;
  double tolerance = 0.02;
  bool prune = true;  // false: determine every unit's goodput
  int finals = 0;     // rounds, of units within kFinalMargin of the best, and within half of that in the next one
};
inline constexpr double kFinalMargin = 0.1;  // share of the best goodput per worth

// Result for one family of units, for example all prefill instances.
struct UnitAnswer {
  std::vector<UnitGoodput> goodputs;  // by unit, in order; `beaten` for those not tried when stopped
  std::optional<std::size_t> best;    // none: no unit is feasible at any rate
};

struct UnitAnswers {
  std::vector<UnitAnswer> families;
  std::int64_t trials = 0;
  std::int64_t iterations = 0;
  bool stopped = false;  // stopped before all units were tried
};

// Searches several families, which share the executor. Errors: of try_out(); Cancelled if stopped before a family had a winner.
[[nodiscard]] Result<UnitAnswers> search_units(const std::vector<std::vector<Unit>>& families, const UnitSearchOptions& options,
                                               const Effort& effort);

}  // namespace windlass::search
