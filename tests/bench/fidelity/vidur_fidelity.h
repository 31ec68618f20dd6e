// Our simulator with the profile that `windlass fit` makes of Vidur's measurements, against Vidur's own simulator
// (vidur_simulator.h) on the same requests: CodeLlama-34B on two A100.
#pragma once

#include <string>
#include <vector>

#include "planner/base/result.h"
#include "tests/bench/fidelity/vidur_simulator.h"

namespace windlass::bench {

struct VidurFigures {
  double ttft_p50_s = 0;
  double tbt_p50_s = 0;
  double per_token_p50_s = 0;  // end to end over output tokens, Vidur's normalised latency
  double per_token_p95_s = 0;
};

struct VidurComparison {
  std::string workload;
  planner::Batching batching = planner::Batching::kVllm;
  double load = 0;       // share of what Vidur's simulator serves with all requests at once
  VidurFigures vidur;    // its simulator's
  VidurFigures ours;     // with the profile of `windlass fit`
  VidurFigures without;  // the same without Ray's messages and launches of all-reduces
};

// vLLM with 4,096 tokens and Sarathi-Serve with 512 on Vidur's three workloads.
[[nodiscard]] Result<std::vector<VidurComparison>> vidur_comparisons(const std::string& data, int requests,
                                                                     const std::vector<double>& loads);

// Single iterations, with what each part of the engine's time adds, next to the measured time of the model.
[[nodiscard]] Result<std::string> vidur_iterations_table(const std::string& data);
// Latencies at three loads.
[[nodiscard]] Result<std::string> vidur_simulator_table(const std::string& data);

}  // namespace windlass::bench
