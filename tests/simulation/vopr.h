// One seed of the whole-system simulation: draws a scenario, runs it with faults, then without. The system must then come to
// rest where its load needs it, and deleting the services must leave nothing.
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
  long served = 0;  // with HTTP status 200
  long writes = 0;  // by controllers, without leases
};

// The same seed gives the same result on every machine. `verbose` keeps notes: those before the first violation of the check
// `notes_until`, or of any check if it is empty.
// `on_plan`: called with each plan that a controller makes.
[[nodiscard]] SeedResult run_seed(std::uint64_t seed, bool verbose = false, const std::string& notes_until = "",
                                  const std::function<void(const planner::Plan&)>& on_plan = {});

// "seed 17 at 123.45 s: max-workers: ..." for each violation, and the command that repeats it.
[[nodiscard]] std::string describe(const SeedResult& result);

}  // namespace windlass::simulation
