// FewestWorkers: how many workers of one pool a deployment needs at the problem's rate, by simulation.
//
// More workers are taken never to break what fewer hold. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/strategies/core/strategy.h"
#include "planner/strategies/core/trial.h"

namespace windlass::search {

// Requests of one trial at a rate: Problem::requests_per_trial, but at least half a minute of arrivals, so that a queue that
// grows is seen to, and at most 40,000.
[[nodiscard]] std::int64_t trial_requests(const Problem& problem, double requests_per_s);

// Workers of a kind that there is room for: GPUs of its class, the plan's GPUs and its cost. At most 100,000.
[[nodiscard]] int most_workers(const Problem& problem, int kind);

inline constexpr int kMaxWorkers = 100'000;  // of one kind: no search goes beyond

// Unified workers of one kind.
[[nodiscard]] Deployment unified(const Problem& problem, int kind, const planner::EngineSettings& engine, int workers);
// What the problem's goal counts of one worker of a kind; more than 0.
[[nodiscard]] double worth_of_worker(const Problem& problem, int kind);

struct WorkersAsked {
  std::size_t pool = 0;  // whose workers are counted
  int least = 1;         // fewer are not tried
  int first = 1;         // a guess
  int most = 1;
  Trial trial;
};

struct WorkersFound {
  int workers = 0;     // 0: not even the most hold
  std::string broken;  // then: the objective that the most workers that were tried do not meet
  int tried = 0;       // the most workers that were tried
  std::int64_t trials = 0, iterations = 0;
};

// Errors: those of try_out().
[[nodiscard]] Result<WorkersFound> fewest_workers(const Problem& problem, Deployment deployment, const WorkersAsked& asked);

}  // namespace windlass::search
