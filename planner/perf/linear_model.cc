// Computes the linear model's coefficients from data sheets.
#include "planner/perf/linear_model.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>

#include "planner/catalog/efficiency.h"
#include "planner/perf/hop_times.h"
#include "planner/perf/operator_model.h"
#include "planner/perf/profile_operators.h"

namespace windlass::planner {
namespace {

// Seconds of an all-reduce over N GPUs per byte of the tensor: a ring moves 2 (N - 1) / N of the tensor over each link.
double all_reduce_s_per_byte(const AcceleratorSpec& spec, int gpus, const Efficiency& efficiency) {
  if (gpus <= 1) return 0;
  const double bandwidth = spec.intra_link_bandwidth_bytes_per_s * efficiency.link;
  if (bandwidth <= 0) return std::numeric_limits<double>::infinity();
  return 2.0 * (gpus - 1) / gpus / bandwidth;
}

// For a small all-reduce only latency matters: a tree goes up and down in log2(N) steps each way.
double all_reduce_latency_s(const AcceleratorSpec& spec, int gpus) {
  return gpus <= 1 ? 0 : 2.0 * std::log2(gpus) * spec.intra_link_latency_s;
}

// With more GPUs than KV heads each head is stored on several GPUs, and its bytes are read and kept that many times.
double kv_copies(const ModelShape& shape, int gpus) { return std::max(1.0, static_cast<double>(gpus) / kv_shards(shape)); }

// M = N m_gpu - m_model, minus activations: the residual stream and its norms in full, the MLP's inner width divided by N.
double memory_for_cache(const ModelShape& shape, const AcceleratorSpec& spec, int gpus, const Efficiency& efficiency,
                        double weights) {
  const double chunk = std::min(efficiency.prefill_chunk_tokens, shape.max_context_tokens);
  const double activation_bytes = chunk * bytes_of(shape.dtype) * (4.0 * shape.hidden * gpus + 2.0 * shape.intermediate);
  return gpus * spec.memory_bytes * efficiency.memory - weights - activation_bytes;
}

}  // namespace

LinearCoefficients linear_coefficients(const ModelShape& shape, const AcceleratorSpec& spec, int gpus,
                                       const Efficiency& efficiency) {
  const double n = gpus;
  const double flops_per_s = n * peak_flops_for(spec, shape.dtype) * efficiency.compute;
  const double bytes_per_s = n * spec.memory_bandwidth_bytes_per_s * efficiency.bandwidth;
  const double element = bytes_of(shape.dtype);
  const double kv_bytes = kv_bytes_per_token(shape) * kv_copies(shape, gpus);

  const double all_reduces = 2.0 * shape.layers;  // after attention and after the MLP
  const double token_comm_s =
      gpus <= 1 ? 0 : all_reduces * shape.hidden * element * all_reduce_s_per_byte(spec, gpus, efficiency);
  const double token_compute_s = flops_per_token(shape) / flops_per_s;
  // Every iteration reads all weights once, launches its kernels and starts its all-reduces.
  const double weights_s = matmul_weight_bytes(shape) / bytes_per_s;
  const double fixed_s =
      weights_s + shape.layers * efficiency.layer_overhead_s + all_reduces * all_reduce_latency_s(spec, gpus);

  LinearCoefficients c;
  c.k1 = token_compute_s + token_comm_s;
  c.c1 = fixed_s;
  c.k2 = kv_bytes / bytes_per_s;
  c.c2 = token_compute_s + token_comm_s;
  c.c3 = fixed_s;

  c.kv_capacity_tokens = std::floor(memory_for_cache(shape, spec, gpus, efficiency, weight_bytes(shape)) / kv_bytes);
  return c;
}

bool has_roofline_line(const ModelShape& shape, EngineType engine) {
  return overhead_of(engine) && bytes_of(shape.dtype) == 2 && gemm_kind(shape).ok();
}

LinearCoefficients roofline_line(const ModelShape& shape, const AcceleratorSpec& spec, int gpus,
                                 const EngineOverhead& overhead) {
  constexpr int kManyRequests = 64;
  constexpr double kShortContext = 512, kLongContext = 4096, kLongPrompt = 8192, kPromptRatio = 16;
  LinearCoefficients line = linear_coefficients(shape, spec, gpus, Efficiency{});
  const auto weights = gemm_kind(shape);
  assert(weights.ok());
  const OperatorHardware hardware = operator_hardware(spec);
  const OperatorTimes times(hardware, efficiency_of(spec.name, hardware.flops_8bit > 0).efficiency);
  OperatorModelOptions options;
  options.tensor_parallel = gpus;
  options.weights = *weights;
  options.overhead = overhead;

  const double longest = shape.max_context_tokens;
  const double deep = std::min(kLongContext, longest), shallow = std::min(kShortContext, deep / 2);
  const double prompt = std::min(kLongPrompt, longest), part = prompt / kPromptRatio;
  const std::array batches = {decode_batch(1, shallow), decode_batch(kManyRequests, shallow), decode_batch(kManyRequests, deep),
                              prefill_batch(1, part), prefill_batch(1, prompt)};
  const std::vector<double> seconds = OperatorModel::iterations_s(shape, spec, times, options, batches);
  const double alone_s = seconds[0], many_s = seconds[1], deep_s = seconds[2], part_s = seconds[3], prompt_s = seconds[4];
  line.k2 = (deep_s - many_s) / (kManyRequests * (deep - shallow));
  line.c2 = std::max(0.0, (many_s - alone_s) / (kManyRequests - 1) - line.k2 * shallow);
  line.c3 = alone_s - line.k2 * shallow - line.c2;
  // Launches may bound both prompts, but no prompt token is free: a quarter of the time by fixed shares is less than FP8 at
  // peak.
  line.k1 = std::max((prompt_s - part_s) / (prompt - part), line.k1 / 4);
  if (line.k1 * prompt > prompt_s) line.k1 = prompt_s / prompt;
  line.c1 = prompt_s - line.k1 * prompt;
  return line;
}

LinearCoefficients linear_coefficients(const ModelShape& shape, const AcceleratorSpec& spec, const GpuSplit& split,
                                       EngineType engine) {
  const LinearCoefficients server = has_roofline_line(shape, engine)
                                        ? roofline_line(shape, spec, split.tensor_parallel, *overhead_of(engine))
                                        : linear_coefficients(shape, spec, split.tensor_parallel, Efficiency{});
  return split.stages > 1 ? chained(server, shape, spec, split) : server;
}

LinearCoefficients chained(const LinearCoefficients& server, const ModelShape& shape, const AcceleratorSpec& spec,
                           const GpuSplit& split) {
  const HopTimes hop = hop_times(shape, spec.inter_link_bandwidth_bytes_per_s, spec.inter_link_latency_s);
  const double hops = split.stages - 1;
  LinearCoefficients chain = server;
  chain.k1 += hops * hop.s_per_token;
  chain.c1 += hops * hop.latency_s;
  chain.c2 += hops * hop.s_per_token;
  chain.c3 += hops * hop.latency_s;
  const double most = std::ceil(static_cast<double>(shape.layers) / split.stages);
  const double kv_bytes = most / shape.layers * kv_bytes_per_token(shape) * kv_copies(shape, split.tensor_parallel);
  chain.kv_capacity_tokens = std::floor(
      memory_for_cache(shape, spec, split.tensor_parallel, Efficiency{}, server_weight_bytes(shape, most)) / kv_bytes);
  return chain;
}

double max_mean_context(const LinearCoefficients& c, double batch, double tpot_s) {
  return ((tpot_s - c.c3) / batch - c.c2) / c.k2;
}

}  // namespace windlass::planner
