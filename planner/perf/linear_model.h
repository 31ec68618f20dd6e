// LinearModel: Aladdin's linear performance model (Nie, Fonseca, Liu 2024, Eq. 1-5) with coefficients computed from the model's
// shape and the accelerator's data sheet instead of fitted to traces.
//
//   prefill   t = k1 * sum(l_in) + c1                  Eq. 2
//   decode    t = (k2 * l_ave + c2) * b + c3           Eq. 3
//   KV cache  kv = h * tokens + j, M = N m_gpu - model Eq. 1
//
// Tensor parallelism over N GPUs divides compute and weight reads by N (Eq. 5) and adds two all-reduces per layer, whose
// traffic grows with (N - 1) / N. The line omits that prefill attention is quadratic in the prompt: for an 8B model that is 3 %
// at 2,000 tokens and a third at 30,000.
#pragma once

#include "planner/catalog/accelerator.h"
#include "planner/catalog/engine_type.h"
#include "planner/catalog/gpu_split.h"
#include "planner/catalog/model_shape.h"
#include "planner/perf/engine_overhead.h"
#include "planner/perf/latency_model.h"

namespace windlass::planner {

// Fractions of the data sheet that real engines reach.
struct Efficiency {
  double compute = 0.5;    // of peak FLOP/s in prefill: end to end for well-tuned dense kernels (MFU 40-60 %)
  double bandwidth = 0.8;  // of peak memory bandwidth in decode: streaming reads reach 80-90 %
  double link = 0.7;       // of link bandwidth in an all-reduce: the rest goes to protocol and synchronisation
  double memory = 0.9;     // of a GPU's memory that an engine may use (vLLM's gpu_memory_utilization)
  double layer_overhead_s =
      20e-6;  // launches and small kernels (norms, rotary, share of sampling) of one layer in one iteration
  int prefill_chunk_tokens = 8192;  // activations are reserved for this many tokens
};

struct LinearCoefficients {
  double k1 = 0;  // s per prompt token
  double c1 = 0;  // s per prefill
  double k2 = 0;  // s per request and context token, per decode iteration
  double c2 = 0;  // s per request, per decode iteration
  double c3 = 0;  // s per decode iteration
  double kv_capacity_tokens = 0;

  bool operator==(const LinearCoefficients&) const = default;
};

// REQUIRES: valid shape and spec, gpus >= 1.
[[nodiscard]] LinearCoefficients linear_coefficients(const ModelShape& shape, const AcceleratorSpec& spec, int gpus,
                                                     const Efficiency& efficiency);

// Whether the engine has published runs and the model's matrix products are in 16 bits or FP8, which were measured.
[[nodiscard]] bool has_roofline_line(const ModelShape& shape, EngineType engine);

// The line through five iterations by the roofline (operator_model.h) with the engine's CPU time: decodes of 1 and 64 requests
// with short contexts and of 64 with long ones, a short and a long prompt. The KV cache is that of linear_coefficients().
// REQUIRES: as above; products in 16 bits or FP8.
[[nodiscard]] LinearCoefficients roofline_line(const ModelShape& shape, const AcceleratorSpec& spec, int gpus,
                                               const EngineOverhead& overhead);

// What is known of a worker with this engine without a measurement of its own: roofline_line() with overhead_of(engine) if
// has_roofline_line(), otherwise the line of Efficiency{}. A chain's is chained().
[[nodiscard]] LinearCoefficients linear_coefficients(const ModelShape& shape, const AcceleratorSpec& spec,
                                                     const GpuSplit& split, EngineType engine);

// A chain of `split.stages` servers, given `server`, the line of the whole model on one of them. The servers compute one after
// another, each its part of the layers; an iteration also takes the messages between them, over the class's link between nodes.
// The KV cache is that of the server with the most layers, and with the embedding or the output matrix.
[[nodiscard]] LinearCoefficients chained(const LinearCoefficients& server, const ModelShape& shape, const AcceleratorSpec& spec,
                                         const GpuSplit& split);

class LinearModel final : public LatencyModel {
 public:
  explicit LinearModel(const LinearCoefficients& coefficients) : c_(coefficients) {}

  [[nodiscard]] double prefill_s(double total_input_tokens) const override { return c_.k1 * total_input_tokens + c_.c1; }
  [[nodiscard]] double decode_s(double batch, double mean_context_tokens) const override {
    return (c_.k2 * mean_context_tokens + c_.c2) * batch + c_.c3;
  }
  [[nodiscard]] double kv_capacity_tokens() const override { return c_.kv_capacity_tokens; }

 private:
  LinearCoefficients c_;
};

// Eq. 4: the largest mean context at which a decode iteration of `batch` stays within `tpot_s`; negative if none does.
[[nodiscard]] double max_mean_context(const LinearCoefficients& coefficients, double batch, double tpot_s);

}  // namespace windlass::planner
