// Closed forms for DistServe's two phases (Zhong et al., OSDI 2024, Section 3): the M/D/1 queue of a prefill instance (Eq.
// 1-3), the batch of a decoding instance, and the critical prompt length L_m. The search orders its candidates by them, starts
// its bisections from them, and believes no rate above what they say a steady state can bear: a probe of few requests can end
// before a queue has grown. tests/unit/planner/strategies/distserve/distserve_queueing_test.cc holds them against the
// simulator. Pure.
#pragma once

#include <utility>
#include <vector>

#include "planner/perf/iteration_model.h"

namespace windlass::search {

// Eq. 1-3 in one: the mean TTFT of Poisson arrivals of equal prompts, served one after the other, first come first served. A
// prompt takes `execution_s`, and the slowest stage of the pipeline `stage_s`, for which the next one waits:
//   D + R S^2 / (2 (1 - R S))
// One device: both are D (Eq. 1). Two stages: S = D / 2, which is Eq. 2: D + R D^2 / (4 (2 - R D)). Tensor parallelism 2 with a
// speed-up K: both are D / K, which is Eq. 3. Infinite at R S >= 1. REQUIRES: arguments >= 0.
[[nodiscard]] double md1_mean_ttft_s(double requests_per_s, double execution_s, double stage_s);

// The wait of such a queue when service times differ (M/G/1): the chance that it exceeds `t_s`, by the Cramer-Lundberg
// approximation, whose tail is exact as t grows. `stage_s`: service times, equally likely. REQUIRES: at least one, t_s >= 0.
class WaitTail {
 public:
  WaitTail(double requests_per_s, const std::vector<double>& stage_s);

  [[nodiscard]] bool stable() const { return utilisation_ < 1; }
  [[nodiscard]] double exceeds(double t_s) const;

 private:
  double utilisation_ = 0;
  double factor_ = 0;  // P(W > t) ~ factor exp(-decay t)
  double decay_ = 0;
};

// L_m (Section 3.1 and 4.3): the shortest prompt at which one prefill makes `saturation` of the most tokens a second that any
// prompt up to `most_tokens` makes; longer batches delay their requests and gain little. A multiple of 16.
[[nodiscard]] int critical_prompt_tokens(const planner::IterationModel& model, double saturation, int most_tokens);

// What a phase can bear: the rate at which the objectives should hold just so, and one that no steady state exceeds.
struct PhaseScreen {
  double estimate_per_s = 0;
  double ceiling_per_s = 0;
};

// Prompts and answers that stand for a workload, equally likely: quantiles of a sample.
struct PhaseLengths {
  std::vector<double> prompts;     // by length
  double mean_context_tokens = 0;  // of a decoding sequence, over the time that it decodes
  double mean_decode_steps = 0;    // tokens of an answer after the first
};
[[nodiscard]] PhaseLengths phase_lengths(std::vector<std::pair<int, int>> lengths);

// Prompts shorter than `batch_tokens` (L_m) share a batch when the queue is long, and then take their share of it.
[[nodiscard]] PhaseScreen screen_prefill(const planner::IterationModel& model, const PhaseLengths& lengths, int batch_tokens,
                                         double ttft_s, double attainment);

// Sequences decode in `pipeline_stages` microbatches at once; the largest batch that the TPOT, the cache and the engine allow
// makes the most tokens.
[[nodiscard]] PhaseScreen screen_decode(const planner::IterationModel& model, double kv_capacity_tokens,
                                        const PhaseLengths& lengths, int most_sequences, double tpot_s);

}  // namespace windlass::search
