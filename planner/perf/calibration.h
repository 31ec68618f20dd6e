// Online calibration: an IterationModel corrected from what live workers report, prefill and decode apart.
//
//   corrected = scale * predicted + offset
//
// A Kalman filter estimates (scale, offset) of a phase. Noise is relative to the prediction and its size is learnt too.
// Forgetting fades what was learnt back to the prior, in information: P^-1 <- (1 - f) P^-1 + f P0^-1 after every observation.
// Where observations come in this is exponential forgetting, which follows drift; where load stands still and tells nothing new
// it ends at the prior, while plain exponential forgetting would let the covariance grow without limit.
//
// Not learnt from: observations marked cold, the first of each worker (weights, caches and compiled graphs warm up), times that
// are not positive, batches that mix both phases, and outliers: a residual beyond `outlier_deviations` of its standard
// deviation. A run of outliers on one side is a change, not an accident: the filter then forgets all and starts again from
// there.
//
// Pure: the state is a plain value, observe() returns the next one.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "planner/base/result.h"
#include "planner/perf/iteration_model.h"

namespace windlass::planner {

struct CalibrationOptions {
  int cold_observations = 20;          // of each worker and phase that are passed over
  double forgetting = 0.005;           // f: about 1 / f observations are remembered
  double prior_scale_deviation = 0.5;  // standard deviations before the first observation
  double prior_offset_deviation_s = 0.01;
  double first_noise_deviation = 0.1;    // of one observation, relative to the prediction, until it has been learnt
  double least_noise_deviation = 0.002;  // and what it never falls below
  double noise_memory = 0.02;            // share of the newest observation in the noise estimate
  double outlier_deviations = 4;
  int outliers_for_change = 12;  // on one side, with no other observation between them
};

// Each field positive, shares below 1. Names the field.
[[nodiscard]] Result<void> validate(const CalibrationOptions& options);

struct PhaseCalibration {
  double scale = 1;
  double offset_s = 0;
  // Covariance of (scale, offset).
  double scale_variance = 0;
  double covariance_s = 0;
  double offset_variance_s2 = 0;
  double noise_variance = 0;  // of one observation, relative to the prediction
  std::int64_t learned = 0;   // observations
  std::int64_t outliers = 0;
  std::int64_t cold = 0;
  std::int64_t changes = 0;         // times that it started again
  int outlier_run = 0;              // outliers in a row: above the expectation if positive, below if negative
  std::map<std::string, int> seen;  // by worker: its observations so far, up to cold_observations

  bool operator==(const PhaseCalibration&) const = default;
};

struct CalibrationState {
  PhaseCalibration prefill;
  PhaseCalibration decode;

  bool operator==(const CalibrationState&) const = default;
};

struct LatencyObservation {
  std::string worker;
  Batch batch;
  double seconds = 0;
  bool cold = false;  // the reporter knows that the worker was warming up
};

enum class Learning { kLearned, kCold, kOutlier, kChange, kMixed, kInvalid };

[[nodiscard]] const char* to_string(Learning learning);

// No correction, with the prior's uncertainty. REQUIRES: valid options.
[[nodiscard]] CalibrationState initial_calibration(const CalibrationOptions& options = {});

struct CalibrationStep {
  CalibrationState state;
  Learning learning = Learning::kLearned;
};

// REQUIRES: valid options, a state made by initial_calibration with them.
[[nodiscard]] CalibrationStep observe(CalibrationState state, const IterationModel& model,
                                      const LatencyObservation& observation, const CalibrationOptions& options = {});

// The worker started anew, or is gone: what it reports next is cold again.
void forget_worker(CalibrationState& state, const std::string& worker);

// What the planner may ask before it trusts a correction.
struct CalibrationConfidence {
  std::int64_t learned = 0;
  double mean_deviation = 0;         // standard deviation of the corrected mean, as a share of it
  double observation_deviation = 0;  // and of one observation around it
};

class CalibratedModel final : public IterationModel {
 public:
  // Borrows the model, which must outlive it.
  CalibratedModel(const IterationModel& model, CalibrationState state) : model_(&model), state_(std::move(state)) {}

  // At least a twentieth of the model's own time, whatever the correction. A mixed batch is corrected by both phases in
  // proportion to their times alone.
  [[nodiscard]] double iteration_s(const Batch& batch) const override;
  [[nodiscard]] Coverage coverage(const Batch& batch) const override { return model_->coverage(batch); }
  [[nodiscard]] double kv_capacity_tokens() const override { return model_->kv_capacity_tokens(); }
  [[nodiscard]] int pipeline_stages() const override { return model_->pipeline_stages(); }

  // Of the phase that the batch is in; for a mixed batch the worse of both. REQUIRES: !batch.empty().
  [[nodiscard]] CalibrationConfidence confidence(const Batch& batch) const;

  [[nodiscard]] const CalibrationState& state() const { return state_; }

 private:
  const IterationModel* model_;
  CalibrationState state_;
};

// Exact round trip.
[[nodiscard]] nlohmann::json calibration_to_json(const CalibrationState& state);
// Errors name the path of the field.
[[nodiscard]] Result<CalibrationState> calibration_from_json(const nlohmann::json& json);

}  // namespace windlass::planner
