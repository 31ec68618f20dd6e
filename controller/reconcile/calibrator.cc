// See calibrator.h.
#include "controller/reconcile/calibrator.h"

#include <algorithm>
#include <cmath>

#include "planner/perf/linear_model.h"

namespace windlass::controller {
namespace {

using planner::IterationEstimate;
using planner::IterationModel;
using planner::LinearCoefficients;

constexpr double kBatch = 8;

// A hand-written status must not break the estimate.
double scale_of(const api::PhaseCalibrationStatus& phase) {
  return phase.samples > 0 && std::isfinite(phase.scale) && phase.scale > 0.01 && phase.scale < 100 ? phase.scale : 1;
}

planner::ReferenceSizes sizes_of(const IterationModel& of_profile) {
  return planner::reference_sizes(of_profile.measured_contexts(), of_profile.measured_prompts());
}

std::optional<planner::CountedTime> counted(const std::optional<metrics::EngineLatency>& latency) {
  if (!latency || !latency->sum_s || !latency->count) return std::nullopt;
  return planner::CountedTime{*latency->sum_s, *latency->count};
}

}  // namespace

planner::WorkerCounters counters_of(const WorkerPage& page, dispatch::Role role) {
  const windlass::metrics::EngineMetrics& metrics = page.metrics;
  planner::WorkerCounters out;
  out.at_s = page.at_s;
  out.run = metrics.start_time_s.value_or(0) * 16 + static_cast<int>(metrics.engine);
  out.running = metrics.requests_running;
  out.waiting = metrics.requests_waiting;
  out.iterations = counted(metrics.iteration);
  if (metrics.token_time && *metrics.token_time != windlass::metrics::TokenTime::kRequestMeanAll) {
    out.token_gaps = counted(metrics.time_per_token);
    out.gaps_at_end = *metrics.token_time != windlass::metrics::TokenTime::kGap;
  }
  out.first_tokens = counted(metrics.ttft);
  out.queueing = counted(metrics.queueing);
  out.prefills = counted(metrics.prefill);
  out.prompt_seconds = metrics.prefill_seconds;
  if (metrics.prompt_tokens) out.prompt_tokens = std::max(0.0, *metrics.prompt_tokens - metrics.cached_tokens.value_or(0));
  out.generated_tokens = metrics.generation_tokens;
  if (role != dispatch::Role::kUnified) {
    if (out.first_tokens && out.prefills && out.generated_tokens)
      *out.generated_tokens -= std::max(0.0, out.first_tokens->count - out.prefills->count);
    out.first_tokens.reset();
    out.iterations_only = true;
  }
  for (const windlass::metrics::MeasuredIteration& one : metrics.measured)
    out.measured.push_back({one.prompt_tokens, one.batch, one.context_tokens, one.seconds});
  return out;
}

void Calibrator::adopt(const Configuration& configuration, const api::PerformanceProfile& profile,
                       const IterationModel& of_profile, const LinearCoefficients& base) {
  Calibration& known = known_[configuration];
  std::pair<std::string, std::int64_t> now{profile.metadata.uid, profile.metadata.generation};
  known.learner.set_base(base);
  if (known.profile == now) return;
  known.profile = std::move(now);
  const api::CalibrationStatus& learnt = profile.status.calibration;
  known.contexts = of_profile.measured_contexts();
  known.prompts = of_profile.measured_prompts();
  const planner::PhaseScales scales{scale_of(learnt.prefill), scale_of(learnt.decode)};
  known.learner.begin(planner::estimate_of(profile.spec, of_profile, base, scales), base);
}

bool Calibrator::learn(const Configuration& configuration, const std::string& worker, const WorkerPage& page,
                       const planner::Lengths& lengths, const LinearCoefficients& base, dispatch::Role role) {
  const planner::WorkerCounters counters = counters_of(page, role);
  if (role != dispatch::Role::kUnified && !counters.iterations) return false;
  return known_[configuration].learner.take(
      worker, counters, base, lengths.input_tokens + planner::kContextGrowth * lengths.output_tokens, lengths.input_tokens);
}

bool Calibrator::learn(const Configuration& configuration, const std::vector<planner::MeasuredIteration>& measured,
                       const LinearCoefficients& base, double at_s) {
  return known_[configuration].learner.take(measured, base, at_s);
}

const Calibration* Calibrator::find(const Configuration& configuration) const {
  const auto found = known_.find(configuration);
  return found == known_.end() ? nullptr : &found->second;
}

std::optional<planner::WorkerEstimate> Calibrator::estimate(const Configuration& configuration) const {
  const Calibration* known = find(configuration);
  if (known == nullptr || !known->learner.estimate().knows()) return std::nullopt;
  return planner::WorkerEstimate{configuration.accelerator,
                                 configuration.gpus_per_worker,
                                 !known->profile.first.empty(),
                                 known->learner.estimate(),
                                 known->contexts,
                                 known->prompts,
                                 configuration.stages};
}

void Calibrator::keep(const std::set<std::string>& workers, const std::set<Configuration>& configurations) {
  std::erase_if(known_, [&](const auto& one) { return !configurations.contains(one.first); });
  for (auto& [configuration, known] : known_) known.learner.keep(workers);
}

planner::PhaseScales scales_over(const planner::LatencyModel& other, const Calibration& known,
                                 const planner::ReferenceSizes& at) {
  const IterationEstimate& estimate = known.learner.estimate();
  const planner::LinearModel believed(planner::estimated(known.learner.base(), estimate));
  const double batch = estimate.seen_batch >= 1 ? std::round(estimate.seen_batch) : kBatch;
  const double prompt = std::sqrt(at.short_prompt * at.long_prompt);
  return {believed.prefill_s(prompt) / other.prefill_s(prompt),
          believed.decode_s(batch, at.context_tokens) / other.decode_s(batch, at.context_tokens)};
}

api::CalibrationStatus to_status(const Calibration& known, const IterationModel& of_profile, const std::string& now_rfc3339) {
  const IterationEstimate& estimate = known.learner.estimate();
  api::PhaseCalibrationStatus phase;
  phase.error = std::sqrt(estimate.noise_variance);
  phase.samples = estimate.samples;
  phase.outliers = estimate.outliers;
  phase.changes = estimate.changes;
  api::CalibrationStatus status{now_rfc3339, phase, phase};
  const planner::PhaseScales scales = scales_over(planner::FittedWorker(of_profile), known, sizes_of(of_profile));
  status.prefill.scale = scales.prefill;
  status.decode.scale = scales.decode;
  return status;
}

}  // namespace windlass::controller
