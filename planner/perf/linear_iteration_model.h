// LinearIterationModel predicts iteration times that are linear in sums over the batch, fitted to samples.
//
//   t = per_token * sum of tokens + per_sequence * sequences + per_mean_token * mean tokens + constant
//
// with one set of coefficients for prefill (prompt tokens) and one for decode (context tokens). It covers the models of two
// papers:
//
//   Aladdin (Nie, Fonseca, Liu 2024)     prefill  k1 sum(l) + c1                      Eq. 2
//                                        decode   (k2 l_ave + c2) b + c3              Eq. 3
//   Huawei (heterogeneous clusters)      prefill  p1 b I + p2 b + p3 I + p4           Eq. 3
//                                        decode   p5 b l + p6 b + p7 l + p8           Eq. 4, one iteration of its sum
//
// Huawei's I is the longest prompt of the batch, to which its engine pads. Our engines do not pad, so I is the mean here; for
// batches of equal prompts, which is what is profiled, both are the same. An iteration that mixes both phases reads the weights
// once: it takes the sum of both times minus the smaller of the two constants. The caller supplies the KV capacity (Aladdin Eq.
// 1).
#pragma once

#include <span>

#include "planner/base/result.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/least_squares.h"

namespace windlass::planner {

struct IterationSample {
  Batch batch;
  double seconds = 0;     // of all its iterations
  double iterations = 1;  // over which the batch was spread: each has the form's constant and its mean tokens
};

enum class LinearForm { kAladdin, kHuawei };

// Seconds per unit, for one phase.
struct PhaseCoefficients {
  double per_token_s = 0;       // Aladdin k1, k2; Huawei p1, p5
  double per_sequence_s = 0;    // Aladdin c2; Huawei p2, p6
  double per_mean_token_s = 0;  // Huawei p3, p7
  double constant_s = 0;        // Aladdin c1, c3; Huawei p4, p8

  bool operator==(const PhaseCoefficients&) const = default;
};

// The range of the samples of one phase.
struct PhaseRange {
  double fewest_sequences = 0, max_sequences = 0;
  double fewest_mean_tokens = 0, max_mean_tokens = 0;
  double fewest_tokens = 0, max_tokens = 0;  // summed over the batch

  [[nodiscard]] bool covers(double sequences, double tokens) const;
  bool operator==(const PhaseRange&) const = default;
};

struct LinearPhase {
  PhaseCoefficients coefficients;
  PhaseRange range;

  bool operator==(const LinearPhase&) const = default;
};

class LinearIterationModel final : public IterationModel {
 public:
  LinearIterationModel(const LinearPhase& prefill, const LinearPhase& decode, double kv_capacity_tokens)
      : prefill_(prefill), decode_(decode), kv_capacity_tokens_(kv_capacity_tokens) {}

  [[nodiscard]] double iteration_s(const Batch& batch) const override;
  // A mixed batch counts as measured if both of its phases are, because its time is the sum of theirs.
  [[nodiscard]] Coverage coverage(const Batch& batch) const override;
  [[nodiscard]] double kv_capacity_tokens() const override { return kv_capacity_tokens_; }
  [[nodiscard]] TokenRange measured_contexts() const override;
  [[nodiscard]] TokenRange measured_prompts() const override;

  [[nodiscard]] const LinearPhase& prefill() const { return prefill_; }
  [[nodiscard]] const LinearPhase& decode() const { return decode_; }

 private:
  LinearPhase prefill_;
  LinearPhase decode_;
  double kv_capacity_tokens_ = 0;
};

struct LinearIterationFit {
  LinearIterationModel model;
  LinearFit prefill;  // with their errors
  LinearFit decode;
};

// Errors kInvalidArgument: a sample that is empty or mixes both phases, a time that is not positive and finite, or fewer
// samples of a phase than its coefficients.
[[nodiscard]] Result<LinearIterationFit> fit_linear_iteration(std::span<const IterationSample> samples, LinearForm form,
                                                              double kv_capacity_tokens, const FitOptions& options = {});

}  // namespace windlass::planner
