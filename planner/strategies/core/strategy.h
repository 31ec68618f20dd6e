// Strategy: one published way to answer "what is the cheapest plan that holds?", behind one interface.
//
// Each of Aladdin, DistServe, Splitwise, TetriInfer and Vidur-Search is a function from a Problem to an Offer, usable alone and
// comparable with the others; `auto` (auto_plan.h) lets them compete in the simulator. Threads and time belong to the caller:
// an Executor and a StopCheck come in with Effort. With the same problem, seed and step budget a strategy gives the same plan
// on any number of cores; only `stop` depends on time.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "planner/strategies/core/deployment.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

// What serving is expected to be like at Problem::requests_per_s.
struct Prediction {
  double ttft_s = 0;          // at the objectives' percentile (attainment * 100; the first limit's without joint objectives)
  double tpot_s = 0;          // the same
  double attainment = 0;      // share of the requests inside both objectives; without them 1 when the limits hold, else 0
  double attainment_low = 0;  // lower end of its 95 % confidence interval
  double capacity_requests_per_s = 0;  // largest rate at which the objectives hold
  bool simulated = false;              // false: closed forms
};

// A deployment that was weighed.
struct Rejection {
  Deployment deployment;
  double cost_per_hour = 0;
  Prediction predicted;
  std::string rejected_because;  // "TTFT P95 1.2 s, allowed is 0.5 s", "costs 12.0 an hour, the plan 9.8"
  std::string what = {};         // in words, where no deployment was made of it
};

struct Offer {
  std::string strategy;  // "aladdin", ...
  bool holds =
      false;  // meets the objectives at the rate; otherwise the nearest that there is, and `reasons` say what it misses
  Deployment deployment;
  double cost_per_hour = 0;
  double power_watts = 0;
  int gpus = 0;
  Prediction predicted;
  std::vector<std::string> reasons;   // why this: a sentence each
  std::vector<Rejection> considered;  // runners-up, nearest first, at most kMaxConsidered
  std::int64_t trials = 0;            // simulations
  std::int64_t iterations = 0;        // that were simulated
  bool stopped = false;               // by Effort::stop or the step budget, before the search was through
  std::string missed = {};  // what a trial of it misses, in words (confirm() in plan_parts.h); empty: nothing is known
};

inline constexpr std::size_t kMaxConsidered = 50;

struct Effort {
  Executor* executor = nullptr;  // borrowed; null: the caller's thread
  StopCheck stop;                // a strategy that is stopped gives the best it has, or Cancelled when it has none
  std::int64_t most_iterations = std::numeric_limits<std::int64_t>::max();  // simulated ones: the step budget
  // Told now and then what is being looked at and the share that is done, 0 to 1. May be empty; called from the caller's
  // thread.
  std::function<void(std::string_view what, double share)> progress;
};

// Errors: those of validate(); kInvalidArgument for what the strategy cannot plan, by name; kNotFound when nothing at all can
// be deployed (no kind fits the GPUs that there are), with what is missing; Cancelled.
using Strategy = std::function<Result<Offer>(const Problem&, const Effort&)>;

struct NamedStrategy {
  const char* name;   // "aladdin"
  const char* about;  // a line for people
  Strategy plan;
  bool needs_cluster = false;  // places on the nodes of Problem::cluster
};

}  // namespace windlass::search
