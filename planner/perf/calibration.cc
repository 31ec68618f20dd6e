// See calibration.h. All in shares of the prediction p: an observation y says y / p = scale + offset / p + noise, so that the
// filter's observation row is (1, 1 / p) and one noise figure serves short iterations and long ones.
#include "planner/perf/calibration.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "planner/base/json_reader.h"

namespace windlass::planner {
namespace {

constexpr double kLeastShare = 0.05;  // of the model's own time that a correction leaves
constexpr double kNoiseClipDeviations =
    2.5;  // a residual counts at most this much for the noise, or outliers would widen the gate

Batch prefill_part(const Batch& batch) {
  return {batch.prefill_sequences, batch.prefill_tokens, batch.prefill_attention, 0, 0};
}
Batch decode_part(const Batch& batch) { return {0, 0, 0, batch.decode_sequences, batch.decode_context_tokens}; }

PhaseCalibration initial_phase(const CalibrationOptions& options) {
  PhaseCalibration phase;
  phase.scale_variance = options.prior_scale_deviation * options.prior_scale_deviation;
  phase.offset_variance_s2 = options.prior_offset_deviation_s * options.prior_offset_deviation_s;
  phase.noise_variance = options.first_noise_deviation * options.first_noise_deviation;
  return phase;
}

// Variance of scale + offset / p.
double mean_variance(const PhaseCalibration& phase, double inverse) {
  return std::max(phase.scale_variance + 2 * inverse * phase.covariance_s + inverse * inverse * phase.offset_variance_s2, 0.0);
}

double corrected_s(const PhaseCalibration& phase, double predicted_s) {
  return std::max(phase.scale * predicted_s + phase.offset_s, kLeastShare * predicted_s);
}

// Kalman update by an innovation, in Joseph's form: it keeps the covariance symmetric and positive whatever the rounding.
void update(PhaseCalibration& phase, double inverse, double innovation) {
  const double variance = mean_variance(phase, inverse) + phase.noise_variance;
  const double gain_scale = (phase.scale_variance + inverse * phase.covariance_s) / variance;
  const double gain_offset = (phase.covariance_s + inverse * phase.offset_variance_s2) / variance;
  phase.scale += gain_scale * innovation;
  phase.offset_s += gain_offset * innovation;
  // P <- (I - K H) P (I - K H)' + K R K'
  const double a = 1 - gain_scale;
  const double b = -gain_scale * inverse;
  const double c = -gain_offset;
  const double d = 1 - gain_offset * inverse;
  const double p11 = phase.scale_variance;
  const double p12 = phase.covariance_s;
  const double p22 = phase.offset_variance_s2;
  const double noise = phase.noise_variance;
  phase.scale_variance = a * a * p11 + 2 * a * b * p12 + b * b * p22 + gain_scale * gain_scale * noise;
  phase.covariance_s = a * c * p11 + (a * d + b * c) * p12 + b * d * p22 + gain_scale * gain_offset * noise;
  phase.offset_variance_s2 = c * c * p11 + 2 * c * d * p12 + d * d * p22 + gain_offset * gain_offset * noise;
}

void forget(PhaseCalibration& phase, const CalibrationOptions& options) {
  const PhaseCalibration prior = initial_phase(options);
  const double f = options.forgetting;
  const double determinant = phase.scale_variance * phase.offset_variance_s2 - phase.covariance_s * phase.covariance_s;
  if (!(determinant > 0)) return;  // rounding left no information to weigh
  // Information, the inverse of the covariance.
  const double i11 = (1 - f) * phase.offset_variance_s2 / determinant + f / prior.scale_variance;
  const double i12 = -(1 - f) * phase.covariance_s / determinant;
  const double i22 = (1 - f) * phase.scale_variance / determinant + f / prior.offset_variance_s2;
  const double information = i11 * i22 - i12 * i12;
  phase.scale_variance = i22 / information;
  phase.covariance_s = -i12 / information;
  phase.offset_variance_s2 = i11 / information;
}

// REQUIRES: seconds and predicted_s positive and finite.
Learning learn(PhaseCalibration& phase, const LatencyObservation& observation, double predicted_s,
               const CalibrationOptions& options) {
  if (observation.cold) {
    ++phase.cold;
    return Learning::kCold;
  }
  if (int& seen = phase.seen[observation.worker]; seen < options.cold_observations) {
    ++seen;
    ++phase.cold;
    return Learning::kCold;
  }

  const double inverse = 1 / predicted_s;
  const double innovation = observation.seconds / predicted_s - (phase.scale + phase.offset_s * inverse);
  const double variance = mean_variance(phase, inverse) + phase.noise_variance;
  const double square = innovation * innovation;
  // In expectation, square / variance is 1: what it is above or below that is the noise estimate's error.
  const double clipped = std::min(square / variance, kNoiseClipDeviations * kNoiseClipDeviations);
  const double noise = phase.noise_variance * (1 + options.noise_memory * (clipped - 1));
  const double least = options.least_noise_deviation * options.least_noise_deviation;

  Learning learning = Learning::kLearned;
  if (square > options.outlier_deviations * options.outlier_deviations * variance) {
    ++phase.outliers;
    const int side = innovation > 0 ? 1 : -1;
    phase.outlier_run = phase.outlier_run * side > 0 ? phase.outlier_run + side : side;
    if (std::abs(phase.outlier_run) < options.outliers_for_change) {
      phase.noise_variance = std::max(noise, least);
      return Learning::kOutlier;
    }
    const PhaseCalibration prior = initial_phase(options);
    phase.scale_variance = prior.scale_variance;
    phase.covariance_s = prior.covariance_s;
    phase.offset_variance_s2 = prior.offset_variance_s2;
    ++phase.changes;
    learning = Learning::kChange;
  }
  phase.outlier_run = 0;
  update(phase, inverse, innovation);
  forget(phase, options);
  phase.noise_variance = std::max(noise, least);
  ++phase.learned;
  return learning;
}

CalibrationConfidence phase_confidence(const PhaseCalibration& phase, double predicted_s) {
  const double share = corrected_s(phase, predicted_s) / predicted_s;
  return {phase.learned, std::sqrt(mean_variance(phase, 1 / predicted_s)) / share, std::sqrt(phase.noise_variance) / share};
}

nlohmann::json phase_to_json(const PhaseCalibration& phase) {
  nlohmann::json seen = nlohmann::json::object();
  for (const auto& [worker, count] : phase.seen) seen[worker] = count;
  return {{"scale", json_number(phase.scale)},
          {"offsetS", json_number(phase.offset_s)},
          {"scaleVariance", json_number(phase.scale_variance)},
          {"covarianceS", json_number(phase.covariance_s)},
          {"offsetVarianceS2", json_number(phase.offset_variance_s2)},
          {"noiseVariance", json_number(phase.noise_variance)},
          {"learned", phase.learned},
          {"outliers", phase.outliers},
          {"cold", phase.cold},
          {"changes", phase.changes},
          {"outlierRun", phase.outlier_run},
          {"seen", std::move(seen)}};
}

Result<PhaseCalibration> phase_from_json(const nlohmann::json& json, const std::string& path) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  JsonReader reader(json, path);
  PhaseCalibration phase;
  const auto finite = [&](const char* key, bool not_negative) {
    const double value = reader.number(key);
    if (!std::isfinite(value) || (not_negative && value < 0)) {
      reader.fail(key, json_number(value), not_negative ? "a finite number of at least 0" : "a finite number");
    }
    return value;
  };
  phase.scale = finite("scale", false);
  phase.offset_s = finite("offsetS", false);
  phase.scale_variance = finite("scaleVariance", true);
  phase.covariance_s = finite("covarianceS", false);
  phase.offset_variance_s2 = finite("offsetVarianceS2", true);
  phase.noise_variance = finite("noiseVariance", true);
  phase.learned = reader.integer("learned", 0, kMost);
  phase.outliers = reader.integer("outliers", 0, kMost);
  phase.cold = reader.integer("cold", 0, kMost);
  phase.changes = reader.integer("changes", 0, kMost);
  phase.outlier_run = reader.int32("outlierRun");
  const nlohmann::json& seen = reader.require("seen");
  if (seen.is_object()) {
    JsonReader workers(seen, reader.path_of("seen"));
    for (const auto& [worker, count] : seen.items()) phase.seen[worker] = workers.int32(worker.c_str(), 0);
    reader.take(workers.finish());
  } else {
    reader.fail("seen", seen, "a map from workers to whole numbers");
  }
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return phase;
}

}  // namespace

Result<void> validate(const CalibrationOptions& options) {
  const auto positive = [](const char* field, double value, double limit) -> Result<void> {
    if (value > 0 && value < limit) return {};
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("calibration: {}: found {:g}, allowed is a number above 0 and below {:g}", field, value, limit)};
  };
  WINDLASS_RETURN_IF_ERROR(positive("cold_observations", options.cold_observations + 1.0, 1e9));
  WINDLASS_RETURN_IF_ERROR(positive("forgetting", options.forgetting, 1));
  WINDLASS_RETURN_IF_ERROR(positive("prior_scale_deviation", options.prior_scale_deviation, 1e3));
  WINDLASS_RETURN_IF_ERROR(positive("prior_offset_deviation_s", options.prior_offset_deviation_s, 1e6));
  WINDLASS_RETURN_IF_ERROR(positive("first_noise_deviation", options.first_noise_deviation, 1e3));
  WINDLASS_RETURN_IF_ERROR(positive("least_noise_deviation", options.least_noise_deviation, 1e3));
  WINDLASS_RETURN_IF_ERROR(positive("noise_memory", options.noise_memory, 1));
  WINDLASS_RETURN_IF_ERROR(positive("outlier_deviations", options.outlier_deviations, 1e6));
  return positive("outliers_for_change", options.outliers_for_change, 1e9);
}

const char* to_string(Learning learning) {
  switch (learning) {
    case Learning::kLearned: return "learned";
    case Learning::kCold: return "cold";
    case Learning::kOutlier: return "outlier";
    case Learning::kChange: return "change";
    case Learning::kMixed: return "mixed";
    case Learning::kInvalid: return "invalid";
  }
  std::abort();
}

CalibrationState initial_calibration(const CalibrationOptions& options) {
  assert(validate(options).ok());
  return {initial_phase(options), initial_phase(options)};
}

CalibrationStep observe(CalibrationState state, const IterationModel& model, const LatencyObservation& observation,
                        const CalibrationOptions& options) {
  const Batch& batch = observation.batch;
  if (batch.empty() || !(observation.seconds > 0) || !std::isfinite(observation.seconds))
    return {std::move(state), Learning::kInvalid};
  if (batch.prefill_sequences > 0 && batch.decode_sequences > 0) return {std::move(state), Learning::kMixed};
  const double predicted_s = model.iteration_s(batch);
  if (!(predicted_s > 0) || !std::isfinite(predicted_s)) return {std::move(state), Learning::kInvalid};
  PhaseCalibration& phase = batch.prefill_sequences > 0 ? state.prefill : state.decode;
  const Learning learning = learn(phase, observation, predicted_s, options);
  return {std::move(state), learning};
}

void forget_worker(CalibrationState& state, const std::string& worker) {
  state.prefill.seen.erase(worker);
  state.decode.seen.erase(worker);
}

double CalibratedModel::iteration_s(const Batch& batch) const {
  const double predicted_s = model_->iteration_s(batch);
  if (batch.decode_sequences == 0) return corrected_s(state_.prefill, predicted_s);
  if (batch.prefill_sequences == 0) return corrected_s(state_.decode, predicted_s);
  const double prefill_s = model_->iteration_s(prefill_part(batch));
  const double decode_s = model_->iteration_s(decode_part(batch));
  const double share = prefill_s + decode_s > 0 ? prefill_s / (prefill_s + decode_s) : 1;
  return share * corrected_s(state_.prefill, predicted_s) + (1 - share) * corrected_s(state_.decode, predicted_s);
}

CalibrationConfidence CalibratedModel::confidence(const Batch& batch) const {
  assert(!batch.empty());
  CalibrationConfidence worse;
  bool first = true;
  const auto add = [&](const PhaseCalibration& phase, const Batch& part) {
    const double predicted_s = model_->iteration_s(part);
    CalibrationConfidence one{phase.learned, 1, 1};  // a model that says 0 s: nothing is known in shares of it
    if (predicted_s > 0) one = phase_confidence(phase, predicted_s);
    worse.learned = first ? one.learned : std::min(worse.learned, one.learned);
    worse.mean_deviation = std::max(worse.mean_deviation, one.mean_deviation);
    worse.observation_deviation = std::max(worse.observation_deviation, one.observation_deviation);
    first = false;
  };
  if (batch.prefill_sequences > 0) add(state_.prefill, prefill_part(batch));
  if (batch.decode_sequences > 0) add(state_.decode, decode_part(batch));
  return worse;
}

nlohmann::json calibration_to_json(const CalibrationState& state) {
  return {{"prefill", phase_to_json(state.prefill)}, {"decode", phase_to_json(state.decode)}};
}

Result<CalibrationState> calibration_from_json(const nlohmann::json& json) {
  JsonReader reader(json, "");
  CalibrationState state;
  if (const nlohmann::json* prefill = reader.find("prefill"))
    state.prefill = reader.unwrap(phase_from_json(*prefill, "prefill"));
  if (const nlohmann::json* decode = reader.find("decode")) state.decode = reader.unwrap(phase_from_json(*decode, "decode"));
  static_cast<void>(reader.require("prefill"));
  static_cast<void>(reader.require("decode"));
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return state;
}

}  // namespace windlass::planner
