// Vidur-Search (Agrawal et al., MLSys 2024, Sections 6 and 7.3): finds the deployment that serves the most requests per dollar
// under latency limits, over accelerators, tensor and pipeline parallelism, batching, batch size, chunk size and replicas.
//
// vidur_search() answers the paper's question. For every configuration it finds the capacity, the largest rate at which the P99
// scheduling delay stays below 5 s, by bisection over simulations; then the configuration within the limits that serves the
// most requests per second per dollar per hour; and the Pareto fronts. vidur_plan() answers this project's question over the
// same space: the cheapest deployment that meets the objectives at the problem's rate. Goals power and throughput count watts
// or GPUs instead of dollars.
//
// Early stops (docs/algorithms/vidur.md: what they save, and why the winner does not change): a trial ends when its verdict is
// certain, which is exact. A configuration is skipped if its steady rate (steady_rate.h) times kSteadyRateMargin cannot win, or
// if its first trial, at the rate needed to win, fails. Only the leading candidates are simulated with all replicas together.
//
// One seed and step budget give the same answer on any number of cores: configurations are processed in rounds of fixed size,
// and each round's results bound the next. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/strategies/core/strategy.h"

namespace windlass::search {

// Engine settings combined with the problem's kinds; all other settings are those of Problem::engine.
struct VidurSpace {
  std::vector<planner::Batching> batchings = {planner::Batching::kVllm, planner::Batching::kMixed /* Orca+ */,
                                              planner::Batching::kSarathi};
  std::vector<int> batch_sizes = {32, 64, 128, 256, 512};  // per worker; each pipeline stage's lane gets a share
  std::vector<int> chunk_tokens = {512, 1024, 2048};       // tokens per iteration with sarathi and vllm-v1
  int whole_prompt_tokens = 4096;                          // tokens per iteration with all others
};

// Whether the problem's limits are part of the definition of capacity.
enum class VidurLimits {
  kInCapacity,  // the largest rate at which the limits hold too: a configuration may win at a rate below its scheduling limit
  kAtCapacity,  // as in the paper: only the scheduling delay bounds the rate; the limits are checked at that rate
};

struct VidurOptions {
  VidurSpace space;
  VidurLimits limits = VidurLimits::kInCapacity;
  double scheduling_delay_s = 5;
  double scheduling_percentile = 99;
  double arrivals_s = 240;      // seconds of arrivals per capacity trial: an overload of 2 % delays by 5 s at the end
  double tolerance = 0.02;      // relative tolerance of a capacity
  bool every_capacity = false;  // determine every capacity, for complete Pareto fronts
};

// Errors name the field: an empty list, a batch or chunk below 1, a delay, percentile or tolerance out of range.
[[nodiscard]] Result<void> validate(const VidurOptions& options);

struct VidurPoint {
  int kind = 0;  // index in the problem
  planner::EngineSettings engine;
  int replicas = 1;                      // replicas that the capacity refers to
  double steady_requests_per_s = 0;      // closed form, for one replica
  double requests_per_s = 0;             // capacity; 0: skipped, or not feasible at any rate
  std::int64_t trial_requests = 0;       // in each of its trials
  double per_worth = 0;                  // capacity per dollar per hour (per watt, per GPU)
  double ttft_p90_s = 0, tbt_p99_s = 0;  // at the capacity
  bool meets = false;                    // whether the limits hold at the capacity
  std::string passed_over;               // why there is no capacity
};

// "h100-80gb, TP 4, PP 2, sarathi 512, batch 256".
[[nodiscard]] std::string describe(const Problem& problem, const VidurPoint& point);

struct VidurFound {
  std::vector<VidurPoint> points;  // all configurations, in order of the space
  int best = -1;                   // index in `points`; -1: none meets the limits
  std::int64_t trials = 0, iterations = 0;
  bool stopped = false;
};

// Ignores the problem's rate. Uses as many replicas as Problem::max_gpus and the accelerator have GPUs for; 1 if neither is
// limited. Errors: those of validate(); kNotFound if no configuration has room.
[[nodiscard]] Result<VidurFound> vidur_search(const Problem& problem, const VidurOptions& options, const Effort& effort);

// Points with a capacity that no other point beats in both capacity per worth and latency, in order of latency: the paper's
// Fig. 5 has one front for each of the two latencies.
[[nodiscard]] std::vector<int> pareto_front(const VidurFound& found, double VidurPoint::*latency_s);

[[nodiscard]] Result<Offer> vidur_plan(const Problem& problem, const Effort& effort);
[[nodiscard]] Result<Offer> vidur_plan(const Problem& problem, const VidurOptions& options, const Effort& effort);

}  // namespace windlass::search
