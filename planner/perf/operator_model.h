// OperatorModel: the time of an iteration, put together from the times of its operators (Vidur: Agrawal et al., MLSys 2024,
// Section 4).
//
// Three kinds of operators, by what their time depends on:
//   token level     matrix products, norms, activations: the tokens of the iteration, prefill and decode together
//   sequence level  attention: prefills of lengths p_i attend as one of length sqrt(sum p_i^2) (Section 4.3; here as
//                   equal ones, whose number the tables know too), decodes as equal ones whose contexts have the sum
//   communication   two all-reduces a layer under tensor parallelism; a send and receive between pipeline stages
// and what the engine's CPU adds (EngineOverhead). Mixture of experts: each expert's product has the tokens that routing sends
// it on average, and only the experts expected to be chosen are read.
//
// One class for measured tables and for roofline: what OperatorTimes knows decides. Of each prediction it is known how many of
// its seconds were interpolated, extrapolated or modelled (basis()), and coverage() goes by these: kMeasured, when at least
// kMeasuredShare of the kernels' time was interpolated inside of measured tables; else kModelled, when more of the rest comes
// from data sheets than from beyond the tables' edges; else kExtrapolated. So a norm, which no table has, or an output
// projection larger than measured ones does not turn a prediction into a guess, and an attention without a table does where it
// takes its share. The engine's CPU time is no part of it: it is the caller's. Everything is tabulated when the model is built,
// so that iteration_s() takes a few array reads. Immutable; pure.
#pragma once

#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/accelerator.h"
#include "planner/catalog/model_shape.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/operator_times.h"

namespace windlass::planner {

// Attention is tabulated at powers of two, so many steps apart, up to so many sequences and tokens of each.
inline constexpr int kAttentionStepsPerOctave = 4;
inline constexpr int kAttentionBatchOctaves = 12;   // 4096 sequences
inline constexpr int kAttentionLengthOctaves = 18;  // 262,144 tokens

// What the engine adds to its kernels.
struct EngineOverhead {
  double iteration_s = 0;           // schedule, prepare inputs, sample, process outputs: what is not hidden behind the GPU
  double sequence_s = 0;            // the same, for each sequence
  double eager_layer_s = 0;         // CPU time to launch one layer; the least that a layer takes when no CUDA graph is used
  double largest_graph_tokens = 0;  // batches of more tokens run without a CUDA graph
  double memory_share = 0.9;        // of a GPU's memory that the engine takes
  double reserved_bytes = 4e9;      // of these: activations, communication buffers, CUDA context and graphs
};

struct OperatorModelOptions {
  int tensor_parallel = 1;
  int pipeline_parallel = 1;
  GemmKind weights = GemmKind::kBFloat16;  // of the blocks' matrices; the output projection stays in 16 bit
  bool float8_cache = false;
  EngineOverhead overhead = {};
};

// Data sheet of the spec as operators ask for it.
[[nodiscard]] OperatorHardware operator_hardware(const AcceleratorSpec& spec);

class OperatorModel final : public IterationModel {
 public:
  // Error kInvalidArgument: invalid shape, spec or parallelism (heads not divisible by tensor_parallel, more stages than
  // layers).
  [[nodiscard]] static Result<OperatorModel> make(const ModelShape& shape, const AcceleratorSpec& spec,
                                                  const OperatorTimes& times, const OperatorModelOptions& options);

  [[nodiscard]] double iteration_s(const Batch& batch) const override;
  [[nodiscard]] Coverage coverage(const Batch& batch) const override;
  [[nodiscard]] double kv_capacity_tokens() const override { return kv_capacity_tokens_; }
  [[nodiscard]] int pipeline_stages() const override { return stages_; }

  // Where the time goes.
  struct Parts {
    double token_level_s = 0;
    double prefill_attention_s = 0;
    double decode_attention_s = 0;
    double communication_s = 0;
    double output_s = 0;    // final norm, output projection, sampling
    double overhead_s = 0;  // CPU: what the others do not hide
  };
  [[nodiscard]] Parts parts(const Batch& batch) const;

  // Of the kernels' time: what it rests on. The rest is interpolated measurement.
  struct Basis {
    double kernels_s = 0;
    double extrapolated_s = 0;  // beyond a table's edge, or a table's rows put to another use (grouped products of experts)
    double modelled_s = 0;      // roofline and data sheets
    [[nodiscard]] double measured_share() const { return kernels_s > 0 ? 1 - (extrapolated_s + modelled_s) / kernels_s : 1; }
  };
  [[nodiscard]] Basis basis(const Batch& batch) const;
  static constexpr double kMeasuredShare = 0.8;

 private:
  // By a whole number of tokens or sequences, linear between; beyond the last the slope carries on.
  struct Curve {
    std::vector<double> s;                      // [i]: of i + 1
    std::vector<float> extrapolated, modelled;  // shares of that time
    double slope_s = 0;
    [[nodiscard]] double at(double size) const;
    void add_basis(double size, Basis& to) const;
  };
  // By batch and length, both at powers of 2^(1/4), linear between. Beyond the largest length time grows with its power
  // `growth`.
  struct Surface {
    std::vector<double> s;  // [batch][length]
    std::vector<float> extrapolated, modelled;
    double growth = 1;
    [[nodiscard]] double at(double batch, double length) const;
    void add_basis(double batch, double length, Basis& to) const;
  };
  struct Builder;

  OperatorModel() = default;

  double layers_ = 0;
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
