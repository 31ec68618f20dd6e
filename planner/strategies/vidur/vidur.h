// Vidur-Search (Agrawal et al., MLSys 2024, Section 6 and 7.3): the deployment that serves most requests per dollar under
// limits on latency, over accelerators, tensor and pipeline parallelism, batching, batch size, chunk size and replicas.
//
// vidur_search() is the paper's question: of every configuration the capacity, the largest rate at which the P99 scheduling
// delay stays below 5 s, by bisection over simulations; the most requests a second for a dollar an hour among those inside the
// limits; and the Pareto fronts. vidur_plan() is this project's question, the cheapest deployment that holds at the problem's
// rate, over the same space. Goals power and throughput count watts or GPUs where cost counts dollars.
//
// Early stops (docs/algorithms/vidur.md has what they save, and that the winner stays): a trial ends when its verdict is sure,
// which is exact; a configuration is passed over when its steady rate (steady_rate.h) times kSteadyRateMargin cannot win, or
// when its first trial, at the rate by which it would, fails; replicas are simulated together only for the nearest to win.
//
// One seed and step budget give the same answer on any number of cores: configurations are looked at in rounds of a fixed
// size, and what a round has found bounds the next. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/strategies/core/strategy.h"

namespace windlass::search {

// With which engines the problem's kinds are combined; what else an engine is told is Problem::engine's.
struct VidurSpace {
  std::vector<planner::Batching> batchings = {planner::Batching::kVllm, planner::Batching::kMixed /* Orca+ */,
                                              planner::Batching::kSarathi};
  std::vector<int> batch_sizes = {32, 64, 128, 256, 512};  // of a worker; each pipeline stage's lane has its share
  std::vector<int> chunk_tokens = {512, 1024, 2048};       // an iteration's tokens under sarathi and vllm-v1
  int whole_prompt_tokens = 4096;                          // and under all others
};

// Whether the problem's limits are part of what a capacity is.
enum class VidurLimits {
  kInCapacity,  // the largest rate at which the limits hold too: a configuration may win at a rate below its edge
  kAtCapacity,  // as the paper has it: the rate is bounded by the scheduling delay alone, then the limits are looked at there
};

struct VidurOptions {
  VidurSpace space;
  VidurLimits limits = VidurLimits::kInCapacity;
  double scheduling_delay_s = 5;
  double scheduling_percentile = 99;
  double arrivals_s = 240;      // of a trial for a capacity: an overload of 2 % delays by 5 s at its end
  double tolerance = 0.02;      // of a capacity, relative
  bool every_capacity = false;  // no configuration is passed over, for whole Pareto fronts
};

// Errors name the field: an empty list, a batch or chunk below 1, a delay, percentile or tolerance out of its range.
[[nodiscard]] Result<void> validate(const VidurOptions& options);

struct VidurPoint {
  int kind = 0;  // of the problem
  planner::EngineSettings engine;
  int replicas = 1;                      // that the capacity is of
  double steady_requests_per_s = 0;      // of one replica, closed form
  double requests_per_s = 0;             // capacity; 0: passed over, or holds at no rate
  std::int64_t trial_requests = 0;       // of each trial for it
  double per_worth = 0;                  // capacity for a dollar an hour (a watt, a GPU)
  double ttft_p90_s = 0, tbt_p99_s = 0;  // at the capacity
  bool meets = false;                    // the limits, at the capacity
  std::string passed_over;               // why there is no capacity
};

// "h100-80gb, TP 4, PP 2, sarathi 512, batch 256".
[[nodiscard]] std::string describe(const Problem& problem, const VidurPoint& point);

struct VidurFound {
  std::vector<VidurPoint> points;  // all configurations, in the order of the space
  int best = -1;                   // of them; -1: none meets the limits
  std::int64_t trials = 0, iterations = 0;
  bool stopped = false;
};

// The problem's rate counts for nothing. Replicas are as many as Problem::max_gpus and the accelerator have GPUs for; 1 where
// neither says. Errors: those of validate(); kNotFound when no configuration has room.
[[nodiscard]] Result<VidurFound> vidur_search(const Problem& problem, const VidurOptions& options, const Effort& effort);

// Of the points with a capacity those that no other has more per worth than with at most their latency, cheapest latency
// first: the paper's Fig. 5 has one front for each of the two latencies.
[[nodiscard]] std::vector<int> pareto_front(const VidurFound& found, double VidurPoint::*latency_s);

[[nodiscard]] Result<Offer> vidur_plan(const Problem& problem, const Effort& effort);
[[nodiscard]] Result<Offer> vidur_plan(const Problem& problem, const VidurOptions& options, const Effort& effort);

}  // namespace windlass::search
