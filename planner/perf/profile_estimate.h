// What a PerformanceProfile says of a worker in the form in which running workers are believed: an IterationEstimate. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>

#include "planner/perf/iteration_estimate.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/performance_profile.h"
#include "planner/perf/time_errors.h"

namespace windlass::planner {

// Factors of the times of each phase.
struct PhaseScales {
  double prefill = 1;
  double decode = 1;
};

// A fit as the closed forms see it, with corrections. Borrows the fit.
class FittedWorker final : public LatencyModel {
 public:
  explicit FittedWorker(const IterationModel& fit, const PhaseScales& scales = {}) : fit_(&fit), scales_(scales) {}

  [[nodiscard]] double prefill_s(double total_input_tokens) const override {
    return scales_.prefill * fit_->iteration_s(prefill_batch(1, total_input_tokens));
  }
  [[nodiscard]] double decode_s(double batch, double mean_context_tokens) const override {
    const int sequences = std::max(1, static_cast<int>(std::lround(batch)));
    return scales_.decode * fit_->iteration_s(decode_batch(sequences, mean_context_tokens));
  }
  [[nodiscard]] double kv_capacity_tokens() const override { return fit_->kv_capacity_tokens(); }

 private:
  const IterationModel* fit_;
  PhaseScales scales_;
};

// `fit`: iteration_model(profile). It is taken at sizes that were measured (reference_sizes()), with the largest error of its
// parts; `base`: from the data sheet, by which times grow with the context.
[[nodiscard]] IterationEstimate estimate_of(const PerformanceProfile& profile, const IterationModel& fit,
                                            const LinearCoefficients& base, const PhaseScales& scales = {});

// The largest batch of this context, up to 256 requests, that the fit was measured at; at least 1.
[[nodiscard]] int largest_measured_batch(const IterationModel& fit, double context_tokens);

// 90 % intervals of a fit with these mean relative errors on what it had not seen; none: 10 %.
[[nodiscard]] TimeErrors errors_of_fit(std::optional<double> decode_mape, std::optional<double> prefill_mape);
// Those of lines or medians, each phase by its error on shapes that were left out, if that is known.
[[nodiscard]] TimeErrors errors_of(const PerformanceProfile& profile);

// Whether so few contexts were measured that a fitted line cannot tell the cost of a context from that of a request.
[[nodiscard]] bool knows_one_context(const IterationModel& fit);

}  // namespace windlass::planner
