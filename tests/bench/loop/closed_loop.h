// The control loop in the serving simulator with workers that differ from their data sheet: their true speed, the loads, the
// disturbances, and the results. The policy and its learning are the production code.
//
// Llama 3 8B on A100s, one GPU each. The objective is derived from the truth, so that it is always attainable: TPOT is 2.5
// times that of a single request; TTFT is the larger of 1 s and ten times that of the mean prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/whatif/policy_autoscaler.h"

namespace windlass::bench {

enum class TruthShape {
  kLinear,  // linear, as on the data sheet
  kCurved,  // decode time grows faster than the batch: power of 1.4
  kFlat,    // decode time grows slower: constant up to a batch of 16
};

struct LoopCase {
  std::string name;
  double prefill = 1;  // true time / planned time
  double decode = 1;
  TruthShape shape = TruthShape::kLinear;
  sim::MetricSet metrics = sim::MetricSet::kWindlass;
  bool measures_itself = true;
  bool profiled = false;    // a PerformanceProfile states the truth: the policy with a perfect model
  double start_s = 60;      // a worker's start-up time
  double start_factor = 1;  // true start-up time / time measured before
  double metrics_age_s = 1;
  std::optional<double> no_metrics_from_s;  // for two minutes
  std::optional<double> slower_from_s;      // half as fast from then on
  bool lengths_drift = false;               // answers grow to twice their length during the run
  double workers = 4;                       // approximate number of workers that the load needs at first
  double step = 1.5;                        // factor on the load in the second third
  double duration_s = 3600;
};

struct LoopRun {
  double attainment = 0;  // of the requests that arrived after the grace period
  double worker_hours = 0;
  double unmanaged = 0;  // attainment of the same number of workers at each moment, behind round robin without slots
  int max_workers = 0;
  int changes = 0;              // of the desired number of workers
  std::vector<double> minutes;  // attainment by minute of arrival; below 0: no arrivals
  std::vector<double> workers;  // ready, by minute
  std::vector<int> slots;       // by minute, as ordered by the policy
  std::vector<sim::PolicyAutoscaler::Decision> decisions;
};

[[nodiscard]] LoopRun run_loop(const LoopCase& of, std::uint64_t seed, bool unmanaged = false);

// The grid of cases: factors for prefill and decode, shapes, metric sets and disturbances.
[[nodiscard]] std::vector<LoopCase> loop_cases();

}  // namespace windlass::bench
