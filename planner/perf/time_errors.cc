// See time_errors.h.
#include "planner/perf/time_errors.h"

#include <algorithm>
#include <cmath>

#include "planner/catalog/efficiency.h"
#include "planner/perf/linear_model.h"

namespace windlass::planner {
namespace {

constexpr double kTwoSided = 1.645;  // standard deviations that hold nine of ten
constexpr double kOneSided = 1.282;  // and those that one in ten exceeds
constexpr double kMaxFactor = 4;     // a wider interval says nothing
constexpr double kBeyond = 1.5;      // times the largest batch or length that was measured: extrapolated

double factor_of(double relative_deviation) { return std::min(kMaxFactor, std::exp(kTwoSided * relative_deviation)); }

double both(double a, double b) { return std::min(kMaxFactor, std::exp(std::hypot(std::log(a), std::log(b)))); }

bool nearly_holds(const TokenRange& range, double tokens) {
  return tokens <= 0 || (tokens * kBeyond >= range.least && tokens <= range.most * kBeyond);
}

}  // namespace

const char* to_string(Provenance provenance) {
  switch (provenance) {
    case Provenance::kMeasured: return "Measured";
    case Provenance::kInterpolated: return "Interpolated";
    case Provenance::kExtrapolated: return "Extrapolated";
    case Provenance::kDataSheet: return "DataSheet";
  }
  return "";
}

double one_sided(double factor) { return std::pow(factor, kOneSided / kTwoSided); }

double factor_of_mape(double mape) {
  constexpr double kMeanOfAbsolute = 0.798;  // of a normal variable, in standard deviations: sqrt(2 / pi)
  return factor_of(mape / kMeanOfAbsolute);
}

TimeErrors sheet_errors(const ModelShape& shape, const AcceleratorSpec& spec, EngineType engine) {
  // `scripts/bench fidelity`, below the table lines-left-out: each model left out; each engine left out.
  constexpr TimeErrors kPublished{1.27, 1.89}, kUnpublished{1.38, 2.06};
  const EfficiencyEntry entry = efficiency_of(spec.name, true);
  const bool runs = entry.measured && (entry.measured_on.starts_with("h100") || entry.measured_on.starts_with("h200"));
  return runs && has_roofline_line(shape, engine) ? kPublished : kUnpublished;
}

Interval interval_of_time(double value, double expected, double shorter, double longer) {
  if (!(expected > 0)) return {value, value};
  return {value * std::min({1.0, shorter / expected, longer / expected}),
          value * std::max({1.0, shorter / expected, longer / expected})};
}

Interval interval_of_share(double value, double expected, double shorter, double longer) {
  const double fast = shorter - expected, slow = longer - expected;
  return {std::clamp(value + std::min({0.0, fast, slow}), 0.0, 1.0), std::clamp(value + std::max({0.0, fast, slow}), 0.0, 1.0)};
}

TimeErrors estimate_errors(const LinearCoefficients& sheet, const WorkerEstimate& known, const GpuSplit& split,
                           const WorkerLoad& load, const TimeErrors& of_sheet) {
  const IterationEstimate& estimate = known.estimate;
  const auto factor = [&](const IterationContent& content) {
    const double deviation = relative_deviation(sheet, estimate, content);
    return factor_of(std::hypot(deviation, std::sqrt(estimate.noise_variance)));
  };
  const double prompts = load.prompt_tokens > 0 ? 1 : 0;
  TimeErrors errors;
  errors.ttft = factor({1, load.batch, load.context_tokens, load.prompt_tokens, prompts});
  errors.tpot = load.batch > 0 ? factor({1, load.batch, load.context_tokens, 0, 0}) : errors.ttft;
  const bool live = estimate.decode_count > 0 || !known.from_profile;
  errors.from = live ? Provenance::kMeasured : Provenance::kInterpolated;
  if (load.batch > kBeyond * std::max(1.0, estimate.largest_batch)) errors.from = Provenance::kExtrapolated;
  // Running workers are measured at the lengths that they get.
  const bool in_range =
      live || (nearly_holds(known.contexts, load.context_tokens) && nearly_holds(known.prompts, load.prompt_tokens));
  if (known.split() == split && in_range) return errors;
  return {both(errors.tpot, of_sheet.tpot), both(errors.ttft, of_sheet.ttft), Provenance::kExtrapolated};
}

TimeErrors believed_errors(const ModelShape& shape, const AcceleratorSpec& spec, const GpuSplit& split, EngineType engine,
                           const LinearCoefficients& sheet, std::span<const WorkerEstimate> estimates, const WorkerLoad& load) {
  const TimeErrors of_sheet = sheet_errors(shape, spec, engine);
  const WorkerEstimate* known = find_estimate(estimates, spec.name, split);
  if (known == nullptr) return of_sheet;
  return estimate_errors(sheet, *known, split, load, of_sheet);
}

}  // namespace windlass::planner
