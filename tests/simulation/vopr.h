// One seed of the whole-system simulation: a scenario is drawn, runs with its faults, then without, and must come to rest where
// its load wants it; deleting the services must leave nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "planner/policy/plan.h"
#include "tests/simulation/journal.h"

namespace windlass::simulation {

struct SeedResult {
  std::uint64_t seed = 0;
  std::vector<Violation> violations;
  std::vector<std::string> notes;  // the last ones before the first violation; only of a verbose run
  double simulated_s = 0;
  long requests = 0;
  long served = 0;  // with status 200
  long writes = 0;  // of controllers, leases not counted
};

// The same seed gives the same result on every machine. `verbose` keeps notes; those before the first violation are of the
// check `notes_until`, or of any where it is empty.
// `on_plan`: called with each plan that a controller makes.
[[nodiscard]] SeedResult run_seed(std::uint64_t seed, bool verbose = false, const std::string& notes_until = "",
                                  const std::function<void(const planner::Plan&)>& on_plan = {});

// "seed 17 at 123.45 s: max-workers: ..." for each violation, and how to see it again.
[[nodiscard]] std::string describe(const SeedResult& result);

}  // namespace windlass::simulation
