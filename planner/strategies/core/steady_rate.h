// SteadyRate: about how many requests a second a unified worker sustains, in closed form: what searches order candidates by,
// and bound them with.
//
// In the steady state an engine lane decodes B sequences at once, each iteration makes B tokens, and with each of them B / (n -
// 1) requests of n tokens end and as many prompts come in. So a request takes
//   prompts beside decodes (Sarathi, vLLM V1, mixed, Orca)   (n - 1) T(B decodes + what prompts each brings) / B
//   prompts alone (vLLM, static)                             (n - 1) T(B decodes) / B + T(prompts that fit into one) / their
//                                                            number
// of a stage's time (T over the stages), where B is bounded by the sequences, by the KV cache at the contexts that decodes have
// in the mean (for Orca and static: by whole lengths), and by the chunks' budget. Queueing, the spread of lengths and
// preemption are left out; kSteadyRateMargin says by how much simulated capacities were seen to exceed it. Pure.
#pragma once

#include <limits>
#include <span>
#include <utility>

#include "planner/deployment/engine_settings.h"
#include "planner/perf/iteration_model.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

// Of requests: all that the closed form asks.
struct LengthMoments {
  double input_tokens = 0;   // mean
  double output_tokens = 0;  // mean
  double median_input_tokens = 0;
  double input_square = 0;           // mean of the prompts' squares
  double decode_context_tokens = 0;  // of a decoding sequence at a random iteration
  double whole_tokens = 0;           // input and output of a decoding sequence at a random iteration
  int longest_tokens = 0;            // input and output
};

// Of requests with these (input, output) tokens.
[[nodiscard]] LengthMoments length_moments(std::span<const std::pair<int, int>> lengths);
// Of `count` requests of the problem's seed.
[[nodiscard]] LengthMoments length_moments(const Requests& requests, std::uint64_t seed, std::int64_t count);

struct SteadyState {
  double requests_per_s = 0;  // of the whole worker; 0: the cache does not hold one request
  double batch = 0;           // decodes of one lane
  double iteration_s = 0;     // time between the tokens of a sequence, prompts of others in it
};

// Which part of a request the worker does.
enum class SteadyPart { kWhole, kDecode };

// kv_capacity_tokens and stages are those of the worker; engine.max_sequences of one lane. Batches whose iterations take longer
// than `most_iteration_s` are left out, but for a batch of one.
[[nodiscard]] SteadyState steady_state(const planner::IterationModel& model, double kv_capacity_tokens,
                                       const planner::EngineSettings& engine, const LengthMoments& lengths,
                                       double most_iteration_s = std::numeric_limits<double>::infinity(),
                                       SteadyPart part = SteadyPart::kWhole);
[[nodiscard]] SteadyState steady_state(const WorkerKind& kind, const planner::EngineSettings& engine,
                                       const LengthMoments& lengths,
                                       double most_iteration_s = std::numeric_limits<double>::infinity(),
                                       SteadyPart part = SteadyPart::kWhole);

// What simulated capacities of a worker (P99 scheduling delay below 5 s) stay below, as a factor of its steady rate: the
// largest that was seen stands in docs/algorithms/vidur.md, which `planner_experiments vidur` writes.
inline constexpr double kSteadyRateMargin = 1.25;

}  // namespace windlass::search
