// OperatorModel predicts the time of an iteration as the sum of the times of its operators (Vidur: Agrawal et al., MLSys 2024,
// Section 4).
//
// There are three kinds of operators, by what their time depends on:
//   token level     matrix products, norms, activations: the tokens of the iteration, prefill and decode together
//   sequence level  attention: prefills of lengths p_i attend like one of length sqrt(sum p_i^2) (Section 4.3; here like
//                   several equal ones, because the tables know their number too), decodes like equal ones with that sum of
//                   contexts
//   communication   two all-reduces per layer under tensor parallelism; a send and receive between pipeline stages
// EngineOverhead adds the CPU time of the engine. Mixture of experts: each expert's product has the average number of tokens
// routed to it, and only the experts expected to be chosen are read.
//
// The same class serves measured tables and the roofline, depending on what OperatorTimes knows. basis() says how many seconds
// of a prediction were interpolated, extrapolated or modelled. coverage() follows from it:
// - kMeasured if at least kMeasuredShare of the kernel time was interpolated within measured tables;
// - otherwise kModelled if more of the rest comes from data sheets than from beyond the edges of tables;
// - otherwise kExtrapolated.
// So small parts do not make a prediction a guess: a norm, which no table has, or an output projection larger than the measured
// ones. Attention without a table does, if it takes a large share. The CPU time of the engine does not count, because the
// caller supplies it.
//
// Everything is tabulated when the model is built, so iteration_s() takes a few array reads. Immutable; pure.
#pragma once

#include <span>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "planner/catalog/accelerator.h"
#include "planner/catalog/model_shape.h"
#include "planner/perf/engine_overhead.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/operator_times.h"

namespace windlass::planner {

// Attention is tabulated at powers of two with this many steps between, up to a maximum number of sequences and of tokens in
// each.
inline constexpr int kAttentionStepsPerOctave = 4;
inline constexpr int kAttentionBatchOctaves = 12;   // 4096 sequences
inline constexpr int kAttentionLengthOctaves = 18;  // 262,144 tokens

struct OperatorModelOptions {
  int tensor_parallel = 1;
  int pipeline_parallel = 1;
  GemmKind weights = GemmKind::kBFloat16;  // of the blocks' matrices; the output projection stays in 16 bits
  bool float8_cache = false;
  EngineOverhead overhead = {};
};

// The spec's data sheet in the form that operators use.
[[nodiscard]] OperatorHardware operator_hardware(const AcceleratorSpec& spec);

class OperatorModel final : public IterationModel {
 public:
  // Error kInvalidArgument: invalid shape, spec or parallelism (heads not divisible by tensor_parallel, or more stages than
  // layers). `like`: a model that differs at most in stages and overhead, or null; its tables are copied instead of computed.
  // `executor`: for computing the tables, or null.
  [[nodiscard]] static Result<OperatorModel> make(const ModelShape& shape, const AcceleratorSpec& spec,
                                                  const OperatorTimes& times, const OperatorModelOptions& options,
                                                  const OperatorModel* like = nullptr, Executor* executor = nullptr);
  // iteration_s() of each batch without building a model, which is faster for a few. REQUIRES: what make() accepts.
  [[nodiscard]] static std::vector<double> iterations_s(const ModelShape& shape, const AcceleratorSpec& spec,
                                                        const OperatorTimes& times, const OperatorModelOptions& options,
                                                        std::span<const Batch> batches);

  [[nodiscard]] double iteration_s(const Batch& batch) const override;
  [[nodiscard]] Coverage coverage(const Batch& batch) const override;
  [[nodiscard]] double kv_capacity_tokens() const override { return kv_capacity_tokens_; }
  [[nodiscard]] int pipeline_stages() const override { return stages_; }
  [[nodiscard]] int layers() const { return layers_; }

  // The parts of an iteration's time.
  struct Parts {
    double token_level_s = 0;
    double prefill_attention_s = 0;
    double decode_attention_s = 0;
    double communication_s = 0;
    double output_s = 0;    // final norm, output projection, sampling
    double overhead_s = 0;  // CPU time that the other parts do not hide

    // The time of the layers' kernels, during which the CPU can launch and prepare.
    [[nodiscard]] double layers_s() const { return token_level_s + prefill_attention_s + decode_attention_s + communication_s; }
    [[nodiscard]] double sum_s() const { return layers_s() + output_s + overhead_s; }
  };
  [[nodiscard]] Parts parts(const Batch& batch) const;

  // What the kernel time is based on. The rest is interpolated from measurements.
  struct Basis {
    double kernels_s = 0;
    double extrapolated_s = 0;  // beyond the edge of a table, or rows used for another purpose (grouped products of experts)
    double modelled_s = 0;      // roofline and data sheets
    [[nodiscard]] double measured_share() const { return kernels_s > 0 ? 1 - (extrapolated_s + modelled_s) / kernels_s : 1; }
  };
  [[nodiscard]] Basis basis(const Batch& batch) const;
  static constexpr double kMeasuredShare = 0.8;

 private:
  // Indexed by a whole number of tokens or sequences, linear between; beyond the last the slope continues.
  struct Curve {
    std::vector<double> s;                      // [i]: for i + 1
    std::vector<float> extrapolated, modelled;  // fractions of that time
    double slope_s = 0;
    [[nodiscard]] double at(double size) const;
    void add_basis(double size, Basis& to) const;
  };
  // Indexed by batch and length, both at powers of 2^(1/4), linear between. Beyond the largest length, time grows as length to
  // the power `growth`.
  struct Surface {
    std::vector<double> s;  // [batch][length]
    std::vector<float> extrapolated, modelled;
    double growth = 1;
    [[nodiscard]] double at(double batch, double length) const;
    void add_basis(double batch, double length, Basis& to) const;
  };
  struct Builder;

  OperatorModel() = default;

  int layers_ = 0;
  int stages_ = 1;
  EngineOverhead overhead_;
  Curve tokens_;         // token-level operators of all layers, by tokens
  Curve communication_;  // by tokens
  Curve output_;         // by sequences
  Surface prefill_;      // attention of all layers
  Surface decode_;
  double kv_capacity_tokens_ = 0;
};

}  // namespace windlass::planner
