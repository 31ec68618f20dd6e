// IterationEstimate: how long a worker's iterations take, as live workers show it. A regression over what an iteration had in
// it:
//
//   t = constant + per_request * batch + per_prompt_token * prompt tokens + per_prompt * prompts
//
// in units of a LinearModel's coefficients, which give only its first guess and how requests grow with their context. The guess
// may be wrong by a factor of several: its spread is so wide that two seconds of measurement outweigh it.
//
// Recursive least squares with forgetting: residuals are relative to what was measured, so that one noise figure serves short
// iterations and long ones; what was learnt fades back to the first guess's spread, in information, with time (a steady load
// that tells nothing new lets the spread grow no further than that). An observation beyond kGateDeviations of what the running
// fit itself expects is passed over; three of them in a row on one side are a change (another engine version, a throttled GPU):
// the fit then keeps its figures and gives up its certainty. The first guess is never what an observation is judged by: its
// spread lets anything pass.
//
// Plain data and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/perf/latency_model.h"
#include "planner/perf/linear_model.h"

namespace windlass::planner {

// What was in an iteration, in the mean of those that were watched; or in the part of it that a figure speaks of.
struct IterationContent {
  double iterations = 1;      // of which the constant is paid: 1.5 where the rest of the one under way comes before
  double batch = 0;           // requests that decode
  double context_tokens = 0;  // of each of them, in the mean
  double prompt_tokens = 0;   // computed in it, of all its prompts
  double prompts = 0;
};

struct IterationObservation {
  IterationContent content;
  double seconds = 0;          // mean
  double count = 1;            // iterations, gaps or requests that it is the mean of
  double noise_deviation = 0;  // of it, beyond what the estimate has learnt, relative to `seconds`
  bool decodes = false;        // a time of decoding, not of a prompt
};

struct IterationEstimate {
  static constexpr std::size_t kTerms = 4;

  std::array<double, kTerms> mean{1, 1, 1, 0};  // times c3, k2 * context + c2, k1; and seconds a prompt
  // Covariance of `mean`, its upper triangle by rows. All 0: nothing has been learnt yet.
  std::array<double, kTerms*(kTerms + 1) / 2> covariance{};
  double noise_variance = 0;  // of one observation, relative to it
  std::int64_t samples = 0;   // observations that were learnt from
  std::int64_t outliers = 0;
  std::int64_t changes = 0;
  int outlier_run = 0;         // of decoding, in a row: above what was expected if positive, below if negative
  int prompt_outlier_run = 0;  // and of prompts
  double largest_batch = 0;    // at which decoding was seen within the last minutes
  double seen_batch = 0;       // at which decoding was seen last
  double decode_count = 0;     // iterations or tokens' gaps of decoding, of all samples together

  [[nodiscard]] bool knows() const { return samples > 0; }
  bool operator==(const IterationEstimate&) const = default;
};

enum class Learnt { kLearnt, kOutlier, kChange, kInvalid };

// `base`: always the same for one estimate. `elapsed_s`: since the observation before it, for forgetting.
[[nodiscard]] Learnt learn(IterationEstimate& estimate, const LinearCoefficients& base, const IterationObservation& observation,
                           double elapsed_s);

// The data sheet has changed: what was measured is the same, in units of the new one.
void rebase(IterationEstimate& estimate, const LinearCoefficients& from, const LinearCoefficients& to);

// What a measured fit says, as where an estimate begins: the same line, as sure as `relative_error` makes it.
[[nodiscard]] IterationEstimate estimate_from(const LinearCoefficients& base, const LatencyModel& measured,
                                              double relative_error, std::int64_t samples, double largest_batch);

// The model as it is believed to be: the coefficients with the estimate in them. The KV cache is the base's.
[[nodiscard]] LinearCoefficients estimated(const LinearCoefficients& base, const IterationEstimate& estimate);

// Standard deviation of a decode iteration's mean, in seconds.
[[nodiscard]] double decode_deviation_s(const LinearCoefficients& base, const IterationEstimate& estimate, double batch,
                                        double mean_context_tokens);

// An estimate of one kind of worker.
struct WorkerEstimate {
  std::string accelerator;
  int gpus_per_worker = 0;
  bool from_profile = false;  // it began with a PerformanceProfile
  IterationEstimate estimate;

  bool operator==(const WorkerEstimate&) const = default;
};

// Of this kind of worker; or of another number of GPUs of the same class, the nearest below or else above: a class whose sheet
// is wrong is so with any number. nullptr: nothing was measured on the class, or nothing that makes sense.
[[nodiscard]] const WorkerEstimate* find_estimate(std::span<const WorkerEstimate> estimates, const std::string& accelerator,
                                                  int gpus);

// What is believed of such a worker: measured where anything was, else the data sheet.
[[nodiscard]] LinearCoefficients believed_coefficients(const ModelShape& shape, const AcceleratorSpec& spec, int gpus,
                                                       std::span<const WorkerEstimate> estimates);

// How far what is believed of a worker has moved from `before`, in decoding or in prompts, whichever is more: a factor of at
// least 1. What is not known to some 15 % now has not moved. `sheet`: what the estimate is in units of.
[[nodiscard]] double moved_by(const LinearCoefficients& before, const LinearCoefficients& sheet, const IterationEstimate& now);

// Whether a class's data sheet fits what was measured, and what would. Both times are measured over planned.
struct SheetAdvice {
  double decode_times = 1;
  double prefill_times = 1;
  double memory_bandwidth_bytes_per_s = 0;  // of one accelerator, to two digits
  double peak_flops_per_s = 0;              // of the model's type
  bool off = false;                         // by more than a third

  [[nodiscard]] std::string to_text(const ModelShape& shape) const;
};
// nullopt: what was measured is not sure enough to say.
[[nodiscard]] std::optional<SheetAdvice> advise_on_sheet(const ModelShape& shape, const AcceleratorSpec& spec,
                                                         const WorkerEstimate& measured);

// As much slower in decoding as the estimate may be off: kBoundDeviations of its own standard error on top.
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
