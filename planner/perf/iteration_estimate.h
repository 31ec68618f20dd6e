// IterationEstimate estimates how long the iterations of a kind of worker take, from measurements of running workers. It is a
// regression over the content of an iteration:
//
//   t = constant + per_request * batch + per_prompt_token * prompt tokens + per_prompt * prompts
//
// Its units are the coefficients of a LinearModel. That model supplies only the prior, and how the cost of a request grows with
// its context. The prior may be wrong by a factor of several, so its spread is wide: two seconds of measurement outweigh it.
//
// It uses recursive least squares with forgetting. Residuals are relative to the measurement, so that one noise figure serves
// short and long iterations. What was learnt fades over time until the spread is that of the prior again. It never widens
// beyond that, even under a steady load that adds no information.
//
// An observation more than kGateDeviations away from the fit's own expectation is ignored. Three of them in a row on the same
// side are a change (another engine version, a throttled GPU): the fit then keeps its values and discards its certainty.
// Observations are never judged against the prior, because its spread would accept anything.
//
// Plain data and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/perf/iteration_model.h"
#include "planner/perf/latency_model.h"
#include "planner/perf/linear_model.h"

namespace windlass::planner {

// Content of an iteration: the mean over observed iterations, or the part that a figure refers to.
struct IterationContent {
  double iterations = 1;      // iterations whose constant counts: 1.5 if the rest of the current iteration comes first
  double batch = 0;           // decoding requests
  double context_tokens = 0;  // mean per decoding request
  double prompt_tokens = 0;   // of all its prompts
  double prompts = 0;
};

struct IterationObservation {
  IterationContent content;
  double seconds = 0;          // mean
  double count = 1;            // number of iterations, gaps or requests in the mean
  double noise_deviation = 0;  // deviation beyond what the estimate has learnt, relative to `seconds`
  bool decodes = false;        // a decode time and not a prompt time
};

struct IterationEstimate {
  static constexpr std::size_t kTerms = 4;

  std::array<double, kTerms> mean{1, 1, 1, 0};  // multiples of c3, k2 * context + c2 and k1; and seconds per prompt
  // Covariance of `mean`, upper triangle by rows. All 0: nothing learnt yet.
  std::array<double, kTerms*(kTerms + 1) / 2> covariance{};
  double noise_variance = 0;  // of one observation, relative to it
  std::int64_t samples = 0;   // number of observations used
  std::int64_t outliers = 0;
  std::int64_t changes = 0;
  int outlier_run = 0;                      // of decode outliers in a row: positive if above the expectation, negative if below
  int prompt_outlier_run = 0;               // the same for prompts
  double largest_batch = 0;                 // largest decode batch seen in the last minutes
  double seen_batch = 0;                    // last decode batch seen
  double decode_count = 0;                  // decode iterations or token gaps in all samples
  std::optional<double> changed_at_s = {};  // the last change

  static constexpr double kDriftS = 120;  // windows of a few seconds make the fit sure again in this time

  [[nodiscard]] bool knows() const { return samples > 0; }
  // Whether the times have changed lately, so that little is known of them.
  [[nodiscard]] bool drifted(double now_s) const {
    return changed_at_s && *changed_at_s <= now_s && now_s - *changed_at_s < kDriftS;
  }
  bool operator==(const IterationEstimate&) const = default;
};

enum class Learnt { kLearnt, kOutlier, kChange, kInvalid };

// `base`: always the same for one estimate. `elapsed_s`: time since the previous observation, for forgetting.
[[nodiscard]] Learnt learn(IterationEstimate& estimate, const LinearCoefficients& base, const IterationObservation& observation,
                           double elapsed_s);

// Converts the estimate to the units of a new data sheet; the measured times stay the same.
void rebase(IterationEstimate& estimate, const LinearCoefficients& from, const LinearCoefficients& to);

// The sizes at which a line is compared with a fit.
struct ReferenceSizes {
  double context_tokens = 512;
  double short_prompt = 128, long_prompt = 1024;  // tokens
};
// The same within what was measured.
[[nodiscard]] ReferenceSizes reference_sizes(const TokenRange& contexts, const TokenRange& prompts);

// An initial estimate from a measured fit: the same line at these sizes, with the certainty given by `relative_error`. How
// times grow with the context stays as in `base`. REQUIRES: sizes > 0, short_prompt < long_prompt.
[[nodiscard]] IterationEstimate estimate_from(const LinearCoefficients& base, const LatencyModel& measured,
                                              double relative_error, std::int64_t samples, double largest_batch,
                                              const ReferenceSizes& at = {});

// The base coefficients with the estimate applied. The KV cache is that of the base.
[[nodiscard]] LinearCoefficients estimated(const LinearCoefficients& base, const IterationEstimate& estimate);

// Standard deviation of the mean time of a decode iteration, in seconds.
[[nodiscard]] double decode_deviation_s(const LinearCoefficients& base, const IterationEstimate& estimate, double batch,
                                        double mean_context_tokens);
// The same of any iteration, relative to its time.
[[nodiscard]] double relative_deviation(const LinearCoefficients& base, const IterationEstimate& estimate,
                                        const IterationContent& content);

// The estimate of one kind of worker.
struct WorkerEstimate {
  std::string accelerator;
  int gpus_per_worker = 0;
  bool from_profile = false;  // its start was a PerformanceProfile
  IterationEstimate estimate;
  TokenRange contexts = {}, prompts = {};  // that the profile measured
  int stages = 1;                          // GpuSplit::stages

  [[nodiscard]] GpuSplit split() const { return {gpus_per_worker / stages, stages}; }

  bool operator==(const WorkerEstimate&) const = default;
};

// The estimate of this kind of worker; otherwise that of another number of GPUs of the same class, with as many stages if there
// is one, the nearest below or else above, because a wrong data sheet is wrong for any number. nullptr: no valid measurement of
// the class.
[[nodiscard]] const WorkerEstimate* find_estimate(std::span<const WorkerEstimate> estimates, const std::string& accelerator,
                                                  const GpuSplit& split);

// The best known coefficients of such a worker: measured if available, otherwise from the data sheet.
[[nodiscard]] LinearCoefficients believed_coefficients(const ModelShape& shape, const AcceleratorSpec& spec,
                                                       const GpuSplit& split, EngineType engine,
                                                       std::span<const WorkerEstimate> estimates);

// How far the best known coefficients of a worker have moved from `before`, for decoding or for prompts, whichever is more: a
// factor of at least 1. Values uncertain by more than about 15 % count as unmoved. `sheet`: the units of the estimate.
[[nodiscard]] double moved_by(const LinearCoefficients& before, const LinearCoefficients& sheet, const IterationEstimate& now);

// Whether the data sheet of a class fits the measurements, and figures that would. Both times are measured / planned.
struct SheetAdvice {
  double decode_times = 1;
  double prefill_times = 1;
  double memory_bandwidth_bytes_per_s = 0;  // of one accelerator, to two digits
  double peak_flops_per_s = 0;              // for the model's data type
  bool off = false;                         // by more than a third

  [[nodiscard]] std::string to_text(const ModelShape& shape) const;
};
// nullopt: the measurements are too uncertain.
[[nodiscard]] std::optional<SheetAdvice> advise_on_sheet(const ModelShape& shape, const AcceleratorSpec& spec,
                                                         EngineType engine, const WorkerEstimate& measured);

// The model with decode times raised by the uncertainty of the estimate: kBoundDeviations times its standard error.
class UpperBoundModel final : public LatencyModel {
 public:
  UpperBoundModel(const LinearCoefficients& base, const IterationEstimate& estimate)
      : base_(base), estimate_(estimate), mean_(estimated(base, estimate)) {}

  [[nodiscard]] double prefill_s(double total_input_tokens) const override { return mean_.prefill_s(total_input_tokens); }
  [[nodiscard]] double decode_s(double batch, double mean_context_tokens) const override;
  [[nodiscard]] double kv_capacity_tokens() const override { return mean_.kv_capacity_tokens(); }

 private:
  LinearCoefficients base_;
  IterationEstimate estimate_;
  LinearModel mean_;
};

}  // namespace windlass::planner
