// Computes the linear model's coefficients from data sheets.
#include "planner/perf/linear_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

}  // namespace

LinearCoefficients linear_coefficients(const ModelShape& shape, const AcceleratorSpec& spec, int gpus,
                                       const Efficiency& efficiency) {
  const double n = gpus;
  const double flops_per_s = n * peak_flops_for(spec, shape.dtype) * efficiency.compute;
  const double bytes_per_s = n * spec.memory_bandwidth_bytes_per_s * efficiency.bandwidth;
  const double element = bytes_of(shape.dtype);
  // With more GPUs than KV heads each head is stored on several GPUs, and its bytes are read and kept that many times.
  const double kv_copies = std::max(1.0, n / kv_shards(shape));
  const double kv_bytes = kv_bytes_per_token(shape) * kv_copies;

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

  // M = N m_gpu - m_model, minus activations: the residual stream and its norms in full, the MLP's inner width divided by N.
  const double chunk = std::min(efficiency.prefill_chunk_tokens, shape.max_context_tokens);
  const double activation_bytes = chunk * element * (4.0 * shape.hidden * n + 2.0 * shape.intermediate);
  const double kv_memory = n * spec.memory_bytes * efficiency.memory - weight_bytes(shape) - activation_bytes;
  c.kv_capacity_tokens = std::floor(kv_memory / kv_bytes);
  return c;
}

double max_mean_context(const LinearCoefficients& c, double batch, double tpot_s) {
  return ((tpot_s - c.c3) / batch - c.c2) / c.k2;
}

}  // namespace windlass::planner
