// Trials: a deployment in the simulator, whether it holds, and how much it can take.
//
// A trial is a pure function of its arguments, so trials may run side by side on an Executor and give the same on any number of
// cores.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "planner/sim/serving_simulation.h"
#include "planner/strategies/core/deployment.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

struct Trial {
  double requests_per_s = 0;
  std::int64_t requests = 2000;
  std::uint64_t seed = 0;
  // The run ends as soon as judge() is sure of it (planner/sim/verdict_watch.h): its figures are those until then, and only
  // Verdict::holds counts.
  bool verdict_only = false;
};

// Errors (kInvalidArgument): what simulate_serving() refuses of the deployment.
[[nodiscard]] Result<sim::ServingResult> try_out(const Problem& problem, const Deployment& deployment, const Trial& trial);

// Whether a run met the objectives.
struct Verdict {
  bool holds = false;
  // The objective that is furthest from being met, as a share of what it allows: at most 1 when it holds, infinite when
  // requests were refused or failed.
  double worst = 0;
  std::string broken;  // "TTFT P90 1.2 s, allowed is 0.5 s"; empty when it holds
};

// A run without completed requests holds nothing.
[[nodiscard]] Verdict judge(const Problem& problem, const sim::ServingResult& result);

// The recorded percentile (50, 90, 95 or 99) that is not below this one.
[[nodiscard]] double at_percentile(const sim::TimeSummary& times, double percentile);

// Lower end of the Wilson score interval of a share of `successes` in `trials`, one-sided at 97.5 % (z = 1.96).
[[nodiscard]] double wilson_low(double successes, double trials);

// The largest rate at which trials pass, by bisection: rates that pass are taken to lie below those that do not. Rates lie on a
// grid, each `tolerance` above the one before, so that the answer does not depend on the guess: a good one, such as that of a
// neighbour in a search, only saves trials.
struct CapacitySearch {
  std::int64_t requests = 1000;  // of each trial
  std::uint64_t seed = 0;
  double first_guess_per_s = 1;  // steps away from it double until the answer is bracketed
  double only_above_per_s = 0;   // capacities up to this need not be told apart: 0 stands for them, at the price of one trial
  double tolerance = 0.02;       // of the answer, relative
  double least_per_s = 1e-4;     // below it there is no capacity
  double most_per_s = 1e6;       // above it nobody looks
  // What passes; empty: judge() says that it holds, and trials end as soon as that is sure.
  std::function<bool(const sim::ServingResult&)> passes;
  bool figures = true;  // Capacity::at is of a whole run, which takes one trial more where trials end early
  StopCheck stop;
};

struct Capacity {
  double requests_per_s = 0;  // the largest rate that was seen to pass; 0: none
  sim::ServingResult at;      // its trial
  std::int64_t trials = 0;
  std::int64_t iterations = 0;  // that were simulated
};

// Errors: those of try_out(), Cancelled when `stop` came true.
[[nodiscard]] Result<Capacity> capacity_of(const Problem& problem, const Deployment& deployment, const CapacitySearch& search);

}  // namespace windlass::search
