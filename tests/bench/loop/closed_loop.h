// The control loop in the serving simulator where workers are not what their data sheet says: what they really take, the loads
// and the troubles, and what a run came to. The policy and what it learns with are the live code.
//
// Llama 3 8B on A100s, one GPU each. The objective follows from the truth, so that each can hold it: TPOT two and a half times
// a request's alone, TTFT the larger of 1 s and ten of its mean prompts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/whatif/policy_autoscaler.h"

namespace windlass::bench {

enum class TruthShape {
  kLinear,  // the sheet's line
  kCurved,  // decoding grows faster than the batch: 1.4th power
  kFlat,    // and slower: it is flat up to a batch of 16
};

struct LoopCase {
  std::string name;
  double prefill = 1;  // true over planned
  double decode = 1;
  TruthShape shape = TruthShape::kLinear;
  sim::MetricSet metrics = sim::MetricSet::kWindlass;
  bool measures_itself = true;
  bool profiled = false;    // a PerformanceProfile says the truth: the policy with a perfect model
  double start_s = 60;      // that a worker takes
  double start_factor = 1;  // of it, true over what was measured before
  double metrics_age_s = 1;
  std::optional<double> no_metrics_from_s;  // for two minutes
  std::optional<double> slower_from_s;      // twice as slow from then on
  bool lengths_drift = false;               // answers grow to twice their length over the run
  double workers = 4;                       // that the load needs about, at first
  double step = 1.5;                        // times the load in the second third
  double duration_s = 3600;
};

struct LoopRun {
  double attainment = 0;  // of the requests that came after the grace
  double worker_hours = 0;
  double unmanaged = 0;  // attainment of the same workers at every moment behind round robin without slots
  int most_workers = 0;
  int changes = 0;              // of the desired number
  std::vector<double> minutes;  // attainment by minute of arrival; below 0: none came
  std::vector<double> workers;  // ready, by minute
  std::vector<int> slots;       // by minute, as ordered
  std::vector<sim::PolicyAutoscaler::Decision> decisions;
};

[[nodiscard]] LoopRun run_loop(const LoopCase& of, std::uint64_t seed, bool unmanaged = false);

// Of the grid: factors for prefill and decode, shapes, metric sets and troubles.
[[nodiscard]] std::vector<LoopCase> loop_cases();

}  // namespace windlass::bench
