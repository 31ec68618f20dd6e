// UnitSearch: of units that can be replicated, the one with the most goodput for its worth: the inner loop of DistServe's
// Algorithms 1 and 2, whose units are instances of one phase, or pairs of both.
//
// Goodput is the largest rate that a unit holds in the simulator (capacity_of). A unit is bisected only when it beats the best
// so far: the first rate of the grid at which it would is asked first, and where the unit fails there it cannot win, as rates
// that pass lie below those that do not. A unit whose ceiling lies below that rate is not even asked. So the winner is that of
// a search of all units; tests/unit/planner/strategies/distserve/distserve_test.cc holds one against the other. Units are
// looked at in the order of their estimates, in waves whose size does not depend on the executor: one problem, one answer.
// Pure.
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
  Deployment deployment;             // one of it
  double worth = 1;                  // of it: what goodput is divided by; above 0
  double estimate_per_s = 0;         // of the goodput, where bisection begins
  double ceiling_per_s = 0;          // no goodput is believed above it
};

struct UnitGoodput {
  double requests_per_s = 0;
  // The goodput was not worked out: it is at most as much for its worth as that of the winner.
  bool beaten = false;
};

struct UnitSearchOptions {
  std::int64_t requests = 300;  // of a probe
  std::uint64_t seed = 0;
  double tolerance = 0.02;
  bool prune = true;  // false: every unit's goodput
};

// What one family of units, say all prefill instances, came to.
struct UnitAnswer {
  std::vector<UnitGoodput> goodputs;  // of the units, in their order; those not looked at when it was stopped: beaten
  std::optional<std::size_t> best;    // none: no unit holds at any rate
};

struct UnitAnswers {
  std::vector<UnitAnswer> families;
  std::int64_t trials = 0;
  std::int64_t iterations = 0;
  bool stopped = false;  // before all units were looked at
};

// Several families at once, which share the executor. Errors: of try_out(); Cancelled when stopped before a family had a
// winner.
[[nodiscard]] Result<UnitAnswers> search_units(const std::vector<std::vector<Unit>>& families, const UnitSearchOptions& options,
                                               const Effort& effort);

}  // namespace windlass::search
