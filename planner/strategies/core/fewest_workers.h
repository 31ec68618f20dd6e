// FewestWorkers: finds how many workers of one pool a deployment needs at the problem's rate, by simulation.
//
// Assumes that adding workers never makes a feasible deployment infeasible. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/strategies/core/strategy.h"
#include "planner/strategies/core/trial.h"

namespace windlass::search {

// Requests of one trial at a rate: Problem::requests_per_trial, but at least half a minute of arrivals, so that a growing queue
// is noticed, and at most 40,000.
[[nodiscard]] std::int64_t trial_requests(const Problem& problem, double requests_per_s);

// The most workers of a kind that fit: within the GPUs of its class, the plan's GPUs and its cost. At most 100,000.
[[nodiscard]] int max_workers(const Problem& problem, int kind);

inline constexpr int kMaxWorkers = 100'000;  // upper bound for one kind

// Unified workers of one kind.
[[nodiscard]] Deployment unified(const Problem& problem, int kind, const planner::EngineSettings& engine, int workers);
// The goal's figure for one worker of a kind; above 0.
[[nodiscard]] double worth_of_worker(const Problem& problem, int kind);

struct WorkersAsked {
  std::size_t pool = 0;  // the pool to count
  int least = 1;         // minimum to try
  int first = 1;         // initial guess
  int most = 1;          // more than the trial's requests are not tried: each request has a worker of its own
  Trial trial;
  StopCheck stop = {};
};

struct WorkersFound {
  int workers = 0;     // 0: not even the most are feasible
  std::string broken;  // if so: the objective missed by the most workers tried
  int tried = 0;       // the most workers that were tried
  std::int64_t trials = 0, iterations = 0;
};

// Errors: those of try_out(); Cancelled if `stop` became true.
[[nodiscard]] Result<WorkersFound> fewest_workers(const Problem& problem, Deployment deployment, const WorkersAsked& asked);

}  // namespace windlass::search
