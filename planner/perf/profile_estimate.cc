// See profile_estimate.h.
#include "planner/perf/profile_estimate.h"

namespace windlass::planner {
namespace {

constexpr int kLargestBatch = 256;     // looked for among the batches that a fit covers
constexpr double kAssumedError = 0.1;  // for a profile without one
constexpr double kLeastError = 0.02, kMaxError = 0.5;

double error_of(const PerformanceProfile& profile) {
  double error = profile.errors.empty() ? kAssumedError : 0;
  for (const FitError& one : profile.errors) error = std::max(error, one.median_ape);
  return std::isfinite(error) ? std::clamp(error, kLeastError, kMaxError) : kAssumedError;
}

}  // namespace

int largest_measured_batch(const IterationModel& fit, double context_tokens) {
  int most = 1;
  for (int batch = 2; batch <= kLargestBatch; batch *= 2) {
    if (fit.coverage(decode_batch(batch, context_tokens)) == Coverage::kMeasured) most = batch;
  }
  return most;
}

TimeErrors errors_of_fit(std::optional<double> decode_mape, std::optional<double> prefill_mape) {
  return {factor_of_mape(decode_mape.value_or(kAssumedError)), factor_of_mape(prefill_mape.value_or(kAssumedError)),
          Provenance::kInterpolated};
}

TimeErrors errors_of(const PerformanceProfile& profile) {
  std::optional<double> prefill, decode;
  for (const FitError& error : profile.errors) {
    const double mape = error.unseen_mape.value_or(error.mape);
    if (!(mape > 0)) continue;
    if (error.part == "prefill") prefill = mape;
    if (error.part == "decode") decode = mape;
  }
  return errors_of_fit(decode, prefill);
}

IterationEstimate estimate_of(const PerformanceProfile& profile, const IterationModel& fit, const LinearCoefficients& base,
                              const PhaseScales& scales) {
  const ReferenceSizes sizes = reference_sizes(fit.measured_contexts(), fit.measured_prompts());
  return estimate_from(base, FittedWorker(fit, scales), error_of(profile), profile.source.rows,
                       largest_measured_batch(fit, sizes.context_tokens), sizes);
}

bool knows_one_context(const IterationModel& fit) {
  const TokenRange contexts = fit.measured_contexts();
  return contexts.most < 2 * std::max(1.0, contexts.least);
}

}  // namespace windlass::planner
