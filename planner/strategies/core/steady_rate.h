// SteadyRate: the requests per second that a unified worker sustains, approximately and in closed form. Searches use it to
// order candidates and as a bound.
//
// In the steady state an engine lane decodes B sequences at a time, each iteration makes B tokens, and in each iteration B / (n
// - 1) requests of n tokens end and as many prompts start. So, of a stage's time (T over the stages), a request takes
//   prompts with decodes (Sarathi, vLLM V1, mixed, Orca)     (n - 1) T(B decodes + what prompts each brings) / B
//   prompts alone (vLLM, static)                             (n - 1) T(B decodes) / B + T(prompts that fit into one) / their
//                                                            number
// B is limited by the number of sequences, by the KV cache at the mean context of decodes (for Orca and static: whole lengths),
// and by the chunks' budget. Queueing, the spread of lengths and preemption are ignored; kSteadyRateMargin states by how much
// simulated capacities were seen to exceed it. Pure.
#pragma once

#include <limits>
#include <span>
#include <utility>

#include "planner/deployment/engine_settings.h"
#include "planner/perf/iteration_model.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

// Moments of the request lengths, the only input of the closed form.
struct LengthMoments {
  double input_tokens = 0;   // mean
  double output_tokens = 0;  // mean
  double median_input_tokens = 0;
  double input_square = 0;           // mean of the squared prompt lengths
  double decode_context_tokens = 0;  // mean of a decoding sequence at a random iteration
  double whole_tokens = 0;           // mean input and output of a decoding sequence at a random iteration
  int longest_tokens = 0;            // input and output
};

// For requests with these (input, output) tokens.
[[nodiscard]] LengthMoments length_moments(std::span<const std::pair<int, int>> lengths);
// For `count` requests of the problem's seed.
[[nodiscard]] LengthMoments length_moments(const Requests& requests, std::uint64_t seed, std::int64_t count);

struct SteadyState {
  double requests_per_s = 0;  // of the whole worker; 0: the cache cannot hold one request
  double batch = 0;           // decodes of one lane
  double iteration_s = 0;     // time between the tokens of a sequence, including other requests' prompts
};

// The part of a request that the worker does.
enum class SteadyPart { kWhole, kDecode };

// kv_capacity_tokens and stages are of the whole worker; engine.max_sequences of one lane. Batches whose iterations take longer
// than `max_iteration_s` are left out, except a batch of one.
[[nodiscard]] SteadyState steady_state(const planner::IterationModel& model, double kv_capacity_tokens,
                                       const planner::EngineSettings& engine, const LengthMoments& lengths,
                                       double max_iteration_s = std::numeric_limits<double>::infinity(),
                                       SteadyPart part = SteadyPart::kWhole);
[[nodiscard]] SteadyState steady_state(const WorkerKind& kind, const planner::EngineSettings& engine,
                                       const LengthMoments& lengths,
                                       double max_iteration_s = std::numeric_limits<double>::infinity(),
                                       SteadyPart part = SteadyPart::kWhole);

// Upper bound of simulated capacities of a worker (P99 scheduling delay below 5 s), as a multiple of its steady rate.
// docs/algorithms/vidur.md, which `planner_experiments vidur` writes, lists the largest seen.
inline constexpr double kSteadyRateMargin = 1.25;

}  // namespace windlass::search
