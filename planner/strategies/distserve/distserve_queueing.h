// Closed forms for DistServe's two phases (Zhong et al., OSDI 2024, Section 3): the M/D/1 queue of a prefill instance (Eq.
// 1-3), the batch of a decoding instance, and the critical prompt length L_m. The search orders its candidates by them, starts
// its bisections there, and uses them as upper bounds of a steady state: a trial with few requests can end before a queue has
// grown. tests/unit/planner/strategies/distserve/distserve_queueing_test.cc compares them with the simulator. Pure.
#pragma once

#include <utility>
#include <vector>

#include "planner/perf/iteration_model.h"

namespace windlass::search {

// Eq. 1-3 in one: the mean TTFT of Poisson arrivals of equal prompts, served in order of arrival. A prompt takes `execution_s`
// in total and `stage_s` in the slowest pipeline stage, for which the next one waits:
//   D + R S^2 / (2 (1 - R S))
// One device: both are D (Eq. 1). Two stages: S = D / 2, which is Eq. 2: D + R D^2 / (4 (2 - R D)). Tensor parallelism 2 with a
// speed-up K: both are D / K, which is Eq. 3. Infinite if R S >= 1. REQUIRES: arguments >= 0.
[[nodiscard]] double md1_mean_ttft_s(double requests_per_s, double execution_s, double stage_s);

// Waiting time in such a queue with varying service times (M/G/1): the probability that it exceeds `t_s`, by the
// Cramer-Lundberg approximation, whose tail is exact for large t. `stage_s`: service times, equally likely. REQUIRES: at least
// one, t_s >= 0.
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

// L_m (Sections 3.1 and 4.3): the shortest prompt at which one prefill reaches `saturation` of the highest tokens per second of
// any prompt up to `max_tokens`. Longer batches delay their requests and gain little. A multiple of 16.
[[nodiscard]] int critical_prompt_tokens(const planner::IterationModel& model, double saturation, int max_tokens);

// Screening result of a phase: the estimated largest rate within the objectives, and an upper bound for any steady state.
struct PhaseScreen {
  double estimate_per_s = 0;
  double ceiling_per_s = 0;
};

// Equally likely prompts and answers that represent a workload: quantiles of a sample.
struct PhaseLengths {
  std::vector<double> prompts;     // by length
  double mean_context_tokens = 0;  // mean of a decoding sequence over the time that it decodes
  double mean_decode_steps = 0;    // mean tokens of an answer after the first
};
[[nodiscard]] PhaseLengths phase_lengths(std::vector<std::pair<int, int>> lengths);

// Prompts shorter than `batch_tokens` (L_m) share a batch when the queue is long; each then takes its share of the batch's
// time.
[[nodiscard]] PhaseScreen screen_prefill(const planner::IterationModel& model, const PhaseLengths& lengths, int batch_tokens,
                                         double ttft_s, double attainment);

// Sequences decode in `pipeline_stages` concurrent microbatches. The highest rate is at the largest batch that TPOT, the cache
// and the engine allow.
[[nodiscard]] PhaseScreen screen_decode(const planner::IterationModel& model, double kv_capacity_tokens,
                                        const PhaseLengths& lengths, int max_sequences, double tpot_s);

}  // namespace windlass::search
