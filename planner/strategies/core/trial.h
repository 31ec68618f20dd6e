// Trials: simulate a deployment, judge whether it meets the objectives, and find its capacity.
//
// A trial is a pure function of its arguments, so trials may run in parallel on an Executor with the same result on any number
// of cores.
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
  // Ends the run as soon as judge() is certain (planner/sim/verdict_watch.h). Then the figures are those up to that time, and
  // only Verdict::holds is valid.
  bool verdict_only = false;
};

// Errors (kInvalidArgument): whatever simulate_serving() rejects.
[[nodiscard]] Result<sim::ServingResult> try_out(const Problem& problem, const Deployment& deployment, const Trial& trial);

// Whether a run met the objectives.
struct Verdict {
  bool holds = false;
  // The worst ratio of a figure to its objective: at most 1 if the objectives are met, infinite if requests were refused or
  // failed.
  double worst = 0;
  std::string broken;  // "TTFT P90 is 1.2 s, above the limit of 0.5 s"; empty if the objectives are met
};

// A run without completed requests does not meet the objectives.
[[nodiscard]] Verdict judge(const Problem& problem, const sim::ServingResult& result);

// The smallest recorded percentile (50, 90, 95 or 99) that is not below this one.
[[nodiscard]] double at_percentile(const sim::TimeSummary& times, double percentile);

// Lower end of the Wilson score interval of a share of `successes` in `trials`, one-sided at 97.5 % (z = 1.96).
[[nodiscard]] double wilson_low(double successes, double trials);

// Finds the largest rate at which trials pass, by bisection; feasible rates are assumed to lie below infeasible ones. Rates lie
// on a grid, each `tolerance` above the previous one, so the answer does not depend on the guess. A good guess, such as a
// neighbour's answer in a search, only saves trials.
struct CapacitySearch {
  std::int64_t requests = 1000;  // per trial
  std::uint64_t seed = 0;
  double first_guess_per_s = 1;  // steps away from it double until the answer is bracketed
  double only_above_per_s = 0;   // capacities up to this are reported as 0, at the price of one trial
  double tolerance = 0.02;       // relative tolerance of the answer
  double least_per_s = 1e-4;     // smallest rate tried
  double max_per_s = 1e6;        // largest rate tried
  // Criterion; empty: judge() says that the objectives are met, and trials end as soon as that is certain.
  std::function<bool(const sim::ServingResult&)> passes;
  bool figures = true;  // fill Capacity::at from a complete run, which takes one more trial if trials end early
  StopCheck stop;
};

struct Capacity {
  double requests_per_s = 0;  // the largest rate that passed; 0: none
  sim::ServingResult at;      // the trial at that rate
  std::int64_t trials = 0;
  std::int64_t iterations = 0;  // simulated iterations
};

// Errors: those of try_out(); Cancelled if `stop` became true.
[[nodiscard]] Result<Capacity> capacity_of(const Problem& problem, const Deployment& deployment, const CapacitySearch& search);

}  // namespace windlass::search
