// TimeErrors: how far the predicted times of a kind of worker may be off, and what they are based on. Pure.
#pragma once

#include <array>
#include <span>

#include "planner/catalog/accelerator.h"
#include "planner/catalog/engine_type.h"
#include "planner/catalog/model_shape.h"
#include "planner/perf/iteration_estimate.h"

namespace windlass::planner {

// What a prediction is based on; the later, the less is known.
enum class Provenance {
  kMeasured,      // running workers of this model and engine
  kInterpolated,  // a profile of such a worker, within what it covers
  kExtrapolated,  // measurements of larger batches, other lengths or another number of GPUs
  kDataSheet      // no measurement
};
inline constexpr std::array kAllProvenances = {Provenance::kMeasured, Provenance::kInterpolated, Provenance::kExtrapolated,
                                               Provenance::kDataSheet};
const char* to_string(Provenance provenance);  // "Measured", "Interpolated", "Extrapolated", "DataSheet"

// Nine of ten true times are from t / factor to t * factor.
struct TimeErrors {
  double tpot = 1, ttft = 1;
  Provenance from = Provenance::kDataSheet;

  bool operator==(const TimeErrors&) const = default;
};

// An end of the interval, or its middle: times that are as short as the errors allow, as expected, or as long.
enum class End { kShort, kExpected, kLong };
// `factor`: a member of TimeErrors.
[[nodiscard]] inline double scale_of(End end, double factor) {
  return end == End::kExpected ? 1 : end == End::kLong ? factor : 1 / factor;
}

// The factor that one in ten true times exceeds, of an interval with this factor.
[[nodiscard]] double one_sided(double factor);

// Factor for a fit that had this mean relative error on measurements it had not seen, if errors are normal.
[[nodiscard]] double factor_of_mape(double mape);

// Errors of linear_coefficients(): those of lines on published runs that were left out of the fit
// (docs/algorithms/latency.md). They are wider for an engine or an accelerator without published runs; no run
// supports them for an accelerator other than H100 and H200.
[[nodiscard]] TimeErrors sheet_errors(const ModelShape& shape, const AcceleratorSpec& spec, EngineType engine);

// A 90 % interval.
struct Interval {
  double low = 0, high = 0;
};
// The interval of a time, by what came out with expected, shorter and longer times of the workers: `value` times their ratios.
// Without a positive `expected` it has no width.
[[nodiscard]] Interval interval_of_time(double value, double expected, double shorter, double longer);
// The same of a share, from 0 to 1, by their differences.
[[nodiscard]] Interval interval_of_share(double value, double expected, double shorter, double longer);

// Part of a worker's work, to which errors refer.
struct WorkerLoad {
  double batch = 1;           // decoding requests; 0: it computes prompts only
  double context_tokens = 0;  // mean of a decoding request
  double prompt_tokens = 0;   // 0: it computes no prompts
};

// Errors of estimated(sheet, known.estimate) for a worker that is split like this: the uncertainty of its coefficients and the
// scatter of its observations. An estimate of another number of GPUs, or by a profile of other lengths, is in addition as wrong
// as the data sheet. `sheet`: the units of the estimate.
[[nodiscard]] TimeErrors estimate_errors(const LinearCoefficients& sheet, const WorkerEstimate& known, const GpuSplit& split,
                                         const WorkerLoad& load, const TimeErrors& of_sheet);

// Errors of believed_coefficients(): with an estimate of the class estimate_errors(), otherwise sheet_errors(). `sheet`:
// linear_coefficients() of the same worker.
[[nodiscard]] TimeErrors believed_errors(const ModelShape& shape, const AcceleratorSpec& spec, const GpuSplit& split,
                                         EngineType engine, const LinearCoefficients& sheet,
                                         std::span<const WorkerEstimate> estimates, const WorkerLoad& load);

}  // namespace windlass::planner
