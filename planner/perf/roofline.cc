// Computes operator times by the roofline; see roofline.h.
#include "planner/perf/roofline.h"

#include <algorithm>
#include <cmath>

namespace windlass::planner {

namespace {

const OperatorEfficiency& efficiency_of_gemm(const AcceleratorEfficiency& efficiency, GemmKind kind) {
  switch (kind) {
    case GemmKind::kBFloat16: return efficiency.gemm_16bit;
    case GemmKind::kFloat8: return efficiency.gemm_float8;
    case GemmKind::kFloat8Block: return efficiency.gemm_float8_block;
  }
  return efficiency.gemm_16bit;
}

// (a^p + b^p)^(1/p) without overflow.
double blend(double a, double b, double sharpness) {
  const double larger = std::max(a, b);
  if (larger <= 0) return 0;
  return larger * std::pow(1 + std::pow(std::min(a, b) / larger, sharpness), 1 / sharpness);
}

// Causal attention over `length` tokens with a window: pairs of tokens, and the mean length of the cache read.
double attended_pairs(double length, double window) {
  if (window <= 0 || window >= length) return length * length / 2;
  return window * length - window * window / 2;
}

}  // namespace

double peak_flops(const OperatorHardware& hardware, GemmKind kind) {
  return kind == GemmKind::kBFloat16 || hardware.flops_8bit <= 0 ? hardware.flops_16bit : hardware.flops_8bit;
}

OperatorWork gemm_work(GemmKind kind, double m, double n, double k) {
  constexpr double kOutputBytes = 2;
  return {
      .flops = 2 * m * n * k, .bytes = bytes_per_element(kind) * (m * k + n * k) + kOutputBytes * m * n, .serial_length = k};
}

OperatorWork context_attention_work(const AttentionKey& key, double batch, double length, double heads, double kv_heads) {
  const double cache_bytes = key.float8_cache ? 1 : 2;
  // Queries and outputs in 16 bits, keys and values as in the cache; two products of 2 FLOP per pair.
  const double pairs = batch * heads * attended_pairs(length, key.window_tokens);
  return {.flops = 4 * pairs * key.head_dim,
          .exponentials = pairs,
          .bytes = batch * length * key.head_dim * (2 * 2 * heads + 2 * cache_bytes * kv_heads),
          .serial_length = length,
          .groups = batch * kv_heads};
}

OperatorWork generation_attention_work(const AttentionKey& key, double batch, double context, double heads, double kv_heads) {
  const double cache_bytes = key.float8_cache ? 1 : 2;
  const double attended = key.window_tokens > 0 ? std::min<double>(context, key.window_tokens) : context;
  return {.flops = 4 * batch * heads * key.head_dim * attended,
          .bytes = batch * key.head_dim * (2 * 2 * heads + 2 * cache_bytes * kv_heads * attended),
          .serial_length = attended,
          .groups = batch * kv_heads};
}

double roofline_s(const OperatorWork& work, double peak_flops_per_s, double bandwidth_bytes_per_s,
                  const OperatorEfficiency& efficiency, bool cold) {
  const double share = work.bytes / efficiency.cache_bytes;
  const double cache = cold ? 1 : 1 + efficiency.cache_gain / (1 + share * share);
  const double compute_s =
      (work.flops + efficiency.exponential_flops * work.exponentials) / (peak_flops_per_s * efficiency.compute);
  const double memory_s = work.bytes / (bandwidth_bytes_per_s * efficiency.bandwidth * cache);
  return efficiency.launch_s + blend(compute_s, memory_s, efficiency.sharpness) + efficiency.serial_s * work.serial_length +
         efficiency.group_s * work.groups;
}

double physical_floor_s(const OperatorWork& work, double peak_flops_per_s, double bandwidth_bytes_per_s, bool cold) {
  return std::max(work.flops / peak_flops_per_s, cold ? work.bytes / bandwidth_bytes_per_s : 0);
}

double gemm_roofline_s(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency, GemmKind kind, double m,
                       double n, double k, bool cold) {
  return roofline_s(gemm_work(kind, m, n, k), peak_flops(hardware, kind), hardware.memory_bandwidth_bytes_per_s,
                    efficiency_of_gemm(efficiency, kind), cold);
}

double context_attention_roofline_s(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency,
                                    const AttentionKey& key, double batch, double length, double heads, double kv_heads) {
  return roofline_s(context_attention_work(key, batch, length, heads, kv_heads), hardware.flops_16bit,
                    hardware.memory_bandwidth_bytes_per_s, efficiency.context_attention);
}

double generation_attention_roofline_s(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency,
                                       const AttentionKey& key, double batch, double context, double heads, double kv_heads) {
  return roofline_s(generation_attention_work(key, batch, context, heads, kv_heads), hardware.flops_16bit,
                    hardware.memory_bandwidth_bytes_per_s, efficiency.generation_attention);
}

double all_reduce_roofline_s(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency, int gpus,
                             double bytes) {
  if (gpus <= 1) return 0;
  const double steps = 2.0 * (gpus - 1);
  return efficiency.collective_launch_s + steps * efficiency.collective_hop_s +
         steps / gpus * bytes / (hardware.link_bandwidth_bytes_per_s * efficiency.collective_share);
}

double send_recv_roofline_s(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency, double bytes) {
  return efficiency.collective_launch_s + efficiency.collective_hop_s +
         bytes / (hardware.link_bandwidth_bytes_per_s * efficiency.collective_share);
}

}  // namespace windlass::planner
