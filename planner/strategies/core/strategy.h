// Strategy: the common interface of the published placement algorithms, each of which answers "what is the cheapest plan that
// meets the objectives?"
//
// Aladdin, DistServe, Splitwise, TetriInfer and Vidur-Search are functions from a Problem to an Offer, usable alone and
// comparable; `auto` (auto_plan.h) lets them compete in the simulator. Threads and time belong to the caller: Effort has an
// Executor and a StopCheck. With the same problem, seed and step budget a strategy gives the same plan on any number of cores;
// only `stop` depends on time.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "planner/strategies/core/deployment.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

// 90 % interval of a Prediction: its figures when each iteration is as much shorter, or longer, as its worker's times may be
// off.
struct PredictionInterval {
  planner::Interval ttft_s, tpot_s, attainment;
  std::optional<planner::Interval> capacity_requests_per_s = {};  // none for chains
  planner::Provenance from = planner::Provenance::kDataSheet;     // of the times
};

// Expected behaviour at Problem::requests_per_s.
struct Prediction {
  double ttft_s = 0;          // at the objectives' percentile (attainment * 100; the first limit's without joint objectives)
  double tpot_s = 0;          // same percentile
  double attainment = 0;      // share of the requests that meet both objectives; without joint objectives 1 if the limits hold,
                              // otherwise 0
  double attainment_low = 0;  // lower end of its 95 % confidence interval
  double capacity_requests_per_s = 0;  // largest rate at which the objectives are met
  bool simulated = false;              // false: from closed forms
  std::optional<PredictionInterval> interval = {};
};

// A deployment that was considered and not chosen.
struct Rejection {
  Deployment deployment;
  double cost_per_hour = 0;
  Prediction predicted;
  std::string rejected_because;  // "TTFT P95 is 1.2 s, above the limit of 0.5 s", "costs 12.0 per hour, the plan 9.8"
  std::string what = {};         // description, if there is no deployment
};

struct Offer {
  std::string strategy;  // "aladdin", ...
  bool holds = false;  // meets the objectives at the rate; otherwise this is the nearest plan and `reasons` say what it misses
  Deployment deployment;
  double cost_per_hour = 0;
  double power_watts = 0;
  int gpus = 0;
  Prediction predicted;
  std::vector<std::string> reasons;   // one sentence per reason
  std::vector<Rejection> considered;  // alternatives, nearest first, at most kMaxConsidered
  std::int64_t trials = 0;            // number of simulations
  std::int64_t iterations = 0;        // simulated iterations
  bool stopped = false;               // stopped by Effort::stop or the step budget before the search was complete
  std::string missed = {};            // what it misses in a trial (confirm() in plan_parts.h); empty: unknown
};

inline constexpr std::size_t kMaxConsidered = 50;

struct Effort {
  Executor* executor = nullptr;  // borrowed; null: runs on the caller's thread
  StopCheck stop;                // when stopped, a strategy returns its best plan so far, or Cancelled if it has none
  std::int64_t max_iterations =
      std::numeric_limits<std::int64_t>::max();  // step budget, in simulated iterations (`auto`: of each that competes)
  // Reports progress: what is being evaluated and the share done, 0 to 1. May be empty; called on the caller's thread.
  std::function<void(std::string_view what, double share)> progress;
};

// Errors: those of validate(); kInvalidArgument for input that the strategy cannot plan, with its name; kNotFound if nothing
// can be deployed (no kind fits the available GPUs), with what is missing; Cancelled.
using Strategy = std::function<Result<Offer>(const Problem&, const Effort&)>;

struct NamedStrategy {
  const char* name;   // "aladdin"
  const char* about;  // one line for people
  Strategy plan;
  bool needs_cluster = false;   // places on the nodes of Problem::cluster
  bool takes_all_gpus = false;  // for the most requests per second, whatever the goal
};

}  // namespace windlass::search
