// See calibrator.h.
#include "controller/reconcile/calibrator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "planner/perf/linear_iteration_model.h"
#include "planner/perf/linear_model.h"
#include "planner/policy/tuning.h"

namespace windlass::controller {
namespace {

using planner::Batch;
using planner::IterationModel;
using planner::Lengths;

constexpr double kSteadyShare = 0.25;       // of the batch, by which it may differ inside a window that is steady
constexpr double kMostPrefillShare = 0.5;   // of the time: above it a token's gap says more of prefills than of decoding
constexpr double kMostQueueingShare = 0.3;  // of the time in prefills, above which prefills wait for each other
constexpr double kLeastLeft = 0.25;         // of what was measured, that must remain when the rest is taken away
constexpr double kIdleBatch = 0.3;          // requests in the mean: below it they run alone
constexpr double kMostSeconds = 1000;       // of an iteration; more is no measurement

struct Mean {
  double value = 0;
  double count = 0;
};

// What came since; nullopt after a restart, or where a page lacks it.
std::optional<double> grown(const std::optional<double>& before, const std::optional<double>& now) {
  if (!before || !now || !(*now >= *before)) return std::nullopt;
  return *now - *before;
}

std::optional<Mean> mean_since(const std::optional<metrics::EngineLatency>& before,
                               const std::optional<metrics::EngineLatency>& now) {
  if (!before || !now) return std::nullopt;
  const auto sum = grown(before->sum_s, now->sum_s);
  const auto count = grown(before->count, now->count);
  if (!sum || !count || !(*count > 0) || !(*sum > 0)) return std::nullopt;
  return Mean{*sum / *count, *count};
}

bool fell(const metrics::EngineMetrics& before, const metrics::EngineMetrics& now) {
  const auto less = [](const std::optional<double>& a, const std::optional<double>& b) { return a && b && *b < *a; };
  if (before.start_time_s && now.start_time_s && *before.start_time_s != *now.start_time_s) return true;
  return before.engine != now.engine || less(before.prompt_tokens, now.prompt_tokens) ||
         less(before.generation_tokens, now.generation_tokens) || less(before.requests_finished, now.requests_finished);
}

double context_of(const Lengths& lengths) { return lengths.input_tokens + planner::kContextGrowth * lengths.output_tokens; }

double prompt_of(const WorkerWindow& window, const Lengths& lengths) {
  return window.prompt_tokens > 0 ? window.prompt_tokens : lengths.input_tokens;
}

// Of the time in which anything ran, the share that prefills took by the model.
double prefill_share(const WorkerWindow& window, const Lengths& lengths, const IterationModel& model) {
  if (!(window.prefills > 0)) return 0;
  const double busy_s = window.seconds * std::max(window.busy_share, 1e-3);
  return window.prefills * model.iteration_s(planner::prefill_batch(1, prompt_of(window, lengths))) / busy_s;
}

// (scale, offset) with which `of` says at both batches what `like` says; nullopt where there are none that make sense.
std::optional<std::pair<double, double>> line_through(const IterationModel& of, const IterationModel& like, const Batch& a,
                                                      const Batch& b) {
  const double of_a = of.iteration_s(a), of_b = of.iteration_s(b);
  const double like_a = like.iteration_s(a), like_b = like.iteration_s(b);
  double scale = (like_b - like_a) / (of_b - of_a);
  double offset = like_a - scale * of_a;
  if (!(of_b > of_a) || !(scale > 0.1) || !(scale < 10)) {  // they grow too differently for a line: the ratio under load
    scale = like_b / of_b;
    offset = 0;
  }
  if (!std::isfinite(scale) || !std::isfinite(offset) || !(scale > 0.1) || !(scale < 10)) return std::nullopt;
  return std::pair(scale, offset);
}

}  // namespace

planner::CalibrationOptions live_calibration_options() {
  planner::CalibrationOptions options;
  options.cold_observations = 1;  // an observation is ten seconds of work, behind a cold half minute
  return options;
}

std::shared_ptr<const IterationModel> planner_model(const planner::ModelShape& shape,
                                                    const planner::AcceleratorSpec& accelerator, int gpus) {
  const planner::LinearCoefficients c = planner::linear_coefficients(shape, accelerator, gpus);
  planner::LinearPhase prefill, decode;
  prefill.coefficients = {c.k1, 0, 0, c.c1};
  decode.coefficients = {c.k2, c.c2, 0, c.c3};
  return std::make_shared<planner::LinearIterationModel>(prefill, decode, c.kv_capacity_tokens);
}

void WindowReader::begin(const WorkerPage& page) {
  first_ = page;
  least_running_ = std::numeric_limits<double>::infinity();
  most_running_ = running_sum_ = running_squares_ = most_waiting_ = 0;
  readings_ = busy_ = 0;
}

WindowReader::Step WindowReader::take(const WorkerPage& page) {
  if (last_at_s_ && page.at_s <= *last_at_s_) return {};  // seen already
  last_at_s_ = page.at_s;
  if (!first_ || fell(first_->metrics, page.metrics)) {
    const bool restarted = first_.has_value();
    warm_at_s_ = page.at_s + kColdS;
    begin(page);
    return {std::nullopt, restarted};
  }
  const metrics::EngineMetrics& now = page.metrics;
  ++readings_;
  most_waiting_ = std::max(most_waiting_, now.requests_waiting.value_or(std::numeric_limits<double>::infinity()));
  if (now.requests_running && *now.requests_running > 0) {
    ++busy_;
    least_running_ = std::min(least_running_, *now.requests_running);
    most_running_ = std::max(most_running_, *now.requests_running);
    running_sum_ += *now.requests_running;
    running_squares_ += *now.requests_running * *now.requests_running;
  }
  const double seconds = page.at_s - first_->at_s;
  if (seconds < kWindowS || readings_ < kLeastReadings) return {};

  WorkerWindow window;
  window.seconds = seconds;
  window.cold = first_->at_s < *warm_at_s_;
  window.busy_share = static_cast<double>(busy_) / readings_;
  window.most_waiting = most_waiting_;
  const metrics::EngineMetrics& before = first_->metrics;
  if (now.token_time == before.token_time && now.token_time != metrics::TokenTime::kRequestMeanAll) {
    if (const auto gap = mean_since(before.time_per_token, now.time_per_token)) window.token_gap_s = gap->value;
  }
  if (const auto ttft = mean_since(before.ttft, now.ttft)) {
    window.ttft_s = ttft->value;
    window.prefills = ttft->count;
    const auto prompts = grown(before.prompt_tokens, now.prompt_tokens);
    if (prompts && *prompts >= ttft->count) {
      const double computed = *prompts - grown(before.cached_tokens, now.cached_tokens).value_or(0);
      window.prompt_tokens = std::max(1.0, computed / ttft->count);
    }
  }
  if (busy_ >= 3) {
    window.batch = running_squares_ / running_sum_;
    const double mean = running_sum_ / busy_;
    window.steady = most_running_ - least_running_ <= std::max(1.0, kSteadyShare * mean);
  } else if (const auto tokens = grown(before.generation_tokens, now.generation_tokens);
             tokens && window.token_gap_s > 0 && *tokens * window.token_gap_s / seconds <= kIdleBatch) {
    window.batch = 1;  // Little's law: too little work for two requests to meet
    window.steady = true;
    window.busy_share = std::clamp(*tokens * window.token_gap_s / seconds, 1e-3, 1.0);
  }
  begin(page);
  return {window, false};
}

std::optional<planner::LatencyObservation> decode_observation(const WorkerWindow& window, const Lengths& lengths,
                                                              const IterationModel& model) {
  if (!(window.token_gap_s > 0) || !window.steady || !(window.batch >= 1)) return std::nullopt;
  const double share = prefill_share(window, lengths, model);
  if (!(share <= kMostPrefillShare)) return std::nullopt;
  planner::LatencyObservation observation;
  const int batch = static_cast<int>(std::lround(std::min(window.batch, 1e6)));
  observation.batch = planner::decode_batch(batch, context_of(lengths));
  // Others' prefills stall a request; its own comes before its first gap.
  observation.seconds = window.token_gap_s * (1 - share * (batch - 1) / batch);
  observation.cold = window.cold;
  if (!(observation.seconds < kMostSeconds)) return std::nullopt;
  return observation;
}

std::optional<planner::LatencyObservation> prefill_observation(const WorkerWindow& window, const Lengths& lengths,
                                                               const IterationModel& model) {
  if (!(window.ttft_s > 0) || window.most_waiting > 0 || !window.steady || !(window.batch >= 1)) return std::nullopt;
  if (!(prefill_share(window, lengths, model) <= kMostQueueingShare)) return std::nullopt;
  planner::LatencyObservation observation;
  const int batch = static_cast<int>(std::lround(std::min(window.batch, 1e6)));
  const double under_way_s = batch > 1 ? model.iteration_s(planner::decode_batch(batch - 1, context_of(lengths))) : 0;
  observation.batch = planner::prefill_batch(1, prompt_of(window, lengths));
  observation.seconds = window.ttft_s - under_way_s;
  observation.cold = window.cold;
  if (!(observation.seconds >= kLeastLeft * window.ttft_s) || !(observation.seconds < kMostSeconds)) return std::nullopt;
  return observation;
}

Calibrator::Calibrator() = default;

void Calibrator::adopt(const Configuration& configuration, const api::PerformanceProfile& profile,
                       const IterationModel& of_profile, const IterationModel& of_planner) {
  if (!adopted_.insert(configuration).second) return;
  const planner::CalibrationState initial = planner::initial_calibration(live_calibration_options());
  Calibration& known = known_.try_emplace(configuration, Calibration{initial, initial, 0}).first->second;
  const api::CalibrationStatus& status = profile.status.calibration;
  if (status.prefill.samples > 0) known.of_profile.prefill = from_status(status.prefill);
  if (status.decode.samples > 0) known.of_profile.decode = from_status(status.decode);
  if (known.of_planner != initial) return;  // live workers have spoken before the profile came
  const planner::CalibratedModel measured(of_profile, known.of_profile);
  const auto decode = line_through(of_planner, measured, planner::decode_batch(1, 512), planner::decode_batch(32, 512));
  const auto prefill = line_through(of_planner, measured, planner::prefill_batch(1, 128), planner::prefill_batch(1, 2048));
  if (decode) std::tie(known.of_planner.decode.scale, known.of_planner.decode.offset_s) = *decode;
  if (prefill) std::tie(known.of_planner.prefill.scale, known.of_planner.prefill.offset_s) = *prefill;
  if (decode || prefill)
    known.profile_samples =
        std::max<std::int64_t>(1, profile.spec.source.rows + status.prefill.samples + status.decode.samples);
}

bool Calibrator::learn(const Configuration& configuration, const std::string& worker, const WorkerPage& page,
                       const Lengths& lengths, const IterationModel& of_planner, const IterationModel* of_profile) {
  const WindowReader::Step step = readers_[worker].take(page);
  if (step.restarted) {
    if (const auto known = known_.find(configuration); known != known_.end()) {
      planner::forget_worker(known->second.of_planner, worker);
      planner::forget_worker(known->second.of_profile, worker);
    }
  }
  if (!step.window) return false;
  const planner::CalibrationOptions options = live_calibration_options();
  const planner::CalibrationState initial = planner::initial_calibration(options);
  Calibration& known = known_.try_emplace(configuration, Calibration{initial, initial, 0}).first->second;
  bool learnt = false;
  const auto teach = [&](planner::CalibrationState& state, const IterationModel& model) {
    const planner::CalibratedModel corrected(model, state);
    for (auto observation :
         {decode_observation(*step.window, lengths, corrected), prefill_observation(*step.window, lengths, corrected)}) {
      if (!observation) continue;
      observation->worker = worker;
      planner::CalibrationStep next = planner::observe(std::move(state), model, *observation, options);
      state = std::move(next.state);
      learnt = learnt || next.learning == planner::Learning::kLearned || next.learning == planner::Learning::kChange;
    }
  };
  teach(known.of_planner, of_planner);
  if (of_profile != nullptr) teach(known.of_profile, *of_profile);
  return learnt;
}

const Calibration* Calibrator::find(const Configuration& configuration) const {
  const auto found = known_.find(configuration);
  return found == known_.end() ? nullptr : &found->second;
}

std::optional<planner::LatencyCorrection> Calibrator::correction(const Configuration& configuration) const {
  const Calibration* known = find(configuration);
  if (known == nullptr) return std::nullopt;
  const planner::PhaseCalibration& prefill = known->of_planner.prefill;
  const planner::PhaseCalibration& decode = known->of_planner.decode;
  planner::LatencyCorrection out;
  const auto samples_of = [&](const planner::PhaseCalibration& phase) { return phase.learned + known->profile_samples; };
  out.samples = std::max(samples_of(prefill), samples_of(decode));
  if (out.samples == 0) return std::nullopt;
  out.accelerator = configuration.accelerator;
  out.gpus_per_worker = configuration.gpus_per_worker;
  // Many observations of one phase make few of the other no better: it stays as the model has it until it has enough of its
  // own.
  const std::int64_t enough = std::min(out.samples, planner::kCorrectionSamples);
  double noise_variance = 0;
  const auto take = [&](const planner::PhaseCalibration& phase, double& scale, double& offset_s) {
    if (samples_of(phase) < enough) return;
    scale = phase.scale;
    offset_s = phase.offset_s;
    noise_variance = std::max(noise_variance, phase.noise_variance);
  };
  take(prefill, out.prefill_scale, out.prefill_offset_s);
  take(decode, out.decode_scale, out.decode_offset_s);
  out.relative_error = std::sqrt(noise_variance);
  return out;
}

void Calibrator::keep(const std::set<std::string>& workers, const std::set<Configuration>& configurations) {
  for (auto reader = readers_.begin(); reader != readers_.end();) {
    if (workers.contains(reader->first)) {
      ++reader;
      continue;
    }
    for (auto& [configuration, known] : known_) {
      planner::forget_worker(known.of_planner, reader->first);
      planner::forget_worker(known.of_profile, reader->first);
    }
    reader = readers_.erase(reader);
  }
  std::erase_if(known_, [&](const auto& one) { return !configurations.contains(one.first); });
  std::erase_if(adopted_, [&](const Configuration& one) { return !configurations.contains(one); });
}

api::PhaseCalibrationStatus to_status(const planner::PhaseCalibration& phase) {
  api::PhaseCalibrationStatus out;
  out.scale = phase.scale;
  out.offset_s = phase.offset_s;
  out.scale_variance = phase.scale_variance;
  out.covariance_s = phase.covariance_s;
  out.offset_variance_s2 = phase.offset_variance_s2;
  out.error = phase.scale > 0 ? std::sqrt(phase.noise_variance) / phase.scale : 0;
  out.samples = phase.learned;
  out.outliers = phase.outliers;
  out.cold_samples = phase.cold;
  out.changes = phase.changes;
  return out;
}

planner::PhaseCalibration from_status(const api::PhaseCalibrationStatus& status) {
  planner::PhaseCalibration out = planner::initial_calibration(live_calibration_options()).decode;
  const double noise = status.error * status.scale;
  // A status that somebody wrote by hand must not break the filter.
  const bool sound = std::isfinite(status.scale) && status.scale > 0 && std::isfinite(status.offset_s) &&
                     status.scale_variance > 0 && status.offset_variance_s2 > 0 && std::isfinite(status.scale_variance) &&
                     std::isfinite(status.offset_variance_s2) && std::isfinite(noise) &&
                     status.covariance_s * status.covariance_s <= status.scale_variance * status.offset_variance_s2;
  if (!sound) return out;
  out.scale = status.scale;
  out.offset_s = status.offset_s;
  out.scale_variance = status.scale_variance;
  out.covariance_s = status.covariance_s;
  out.offset_variance_s2 = status.offset_variance_s2;
  if (noise > 0) out.noise_variance = noise * noise;
  out.learned = std::max<std::int64_t>(0, status.samples);
  out.outliers = std::max<std::int64_t>(0, status.outliers);
  out.cold = std::max<std::int64_t>(0, status.cold_samples);
  out.changes = std::max<std::int64_t>(0, status.changes);
  return out;
}

}  // namespace windlass::controller
