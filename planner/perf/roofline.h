// Roofline computes the time of one operator from its FLOPs, its bytes and the accelerator's data sheet, with efficiency
// coefficients fitted to measured operators (planner/catalog/efficiency.h).
//
// HexGen-2 (Table 1) adds a compute time FLOPs / c_d and a memory time bytes / m_d per operator; communication is latency plus
// bytes over bandwidth. DistServe (Appendix A) uses the larger of the two and adds a constant overhead. Both are special cases
// of
//
//   t = launch + (compute^p + memory^p)^(1/p) + serial * length + per_group * groups     p = 1: the sum; p large: the larger
//   compute = (FLOPs + f * exponentials) / (peak * share)    memory = bytes / (bandwidth * share * cache(bytes))
//
// cache(bytes) = 1 + gain / (1 + (bytes / size)^2): data that fit in the L2 cache and were just used are read from there.
// Benchmarks that repeat one operator see this; weights in a model do not, and are priced as cold. `serial` is the loop that
// cannot be split over SMs (k of a matrix product, the sequence of an attention). `groups` are work items with a cost of their
// own (sequences x KV heads in decode). Pure.
#pragma once

#include "planner/catalog/efficiency.h"
#include "planner/perf/operator_table.h"

namespace windlass::planner {

// The part of a GPU's data sheet that operators need.
struct OperatorHardware {
  double flops_16bit = 0;  // FLOP/s, dense
  double flops_8bit = 0;   // 0: no FP8 or INT8 tensor cores; FP8 weights are then computed in 16 bits
  double memory_bandwidth_bytes_per_s = 0;
  double link_bandwidth_bytes_per_s = 0;  // to GPUs in the same node, one direction
};

struct OperatorWork {
  double flops = 0;
  double exponentials = 0;  // of an attention's softmax: one per pair of tokens and head
  double bytes = 0;
  double serial_length = 0;
  double groups = 0;
};

// Dense FLOP/s for the kind.
[[nodiscard]] double peak_flops(const OperatorHardware& hardware, GemmKind kind);

[[nodiscard]] OperatorWork gemm_work(GemmKind kind, double m, double n, double k);
// Causal, for `batch` sequences of `length` tokens.
[[nodiscard]] OperatorWork context_attention_work(const AttentionKey& key, double batch, double length, double heads,
                                                  double kv_heads);
[[nodiscard]] OperatorWork generation_attention_work(const AttentionKey& key, double batch, double context, double heads,
                                                     double kv_heads);

// The formula above. `cold`: nothing comes from the cache.
[[nodiscard]] double roofline_s(const OperatorWork& work, double peak_flops, double bandwidth_bytes_per_s,
                                const OperatorEfficiency& efficiency, bool cold = false);

// The smallest time that the data sheet allows: full efficiency, no launch, only the larger of FLOPs and (if cold) bytes.
[[nodiscard]] double physical_floor_s(const OperatorWork& work, double peak_flops, double bandwidth_bytes_per_s,
                                      bool cold = false);

[[nodiscard]] double gemm_roofline_s(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency, GemmKind kind,
                                     double m, double n, double k, bool cold = false);
[[nodiscard]] double context_attention_roofline_s(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency,
                                                  const AttentionKey& key, double batch, double length, double heads,
                                                  double kv_heads);
[[nodiscard]] double generation_attention_roofline_s(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency,
                                                     const AttentionKey& key, double batch, double context, double heads,
                                                     double kv_heads);
// Ring: launch + steps * hop + traffic / (link * share); an all-reduce takes 2 (g - 1) steps and moves 2 (g - 1) / g of the
// bytes.
[[nodiscard]] double all_reduce_roofline_s(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency, int gpus,
                                           double bytes);
[[nodiscard]] double send_recv_roofline_s(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency,
                                          double bytes);

}  // namespace windlass::planner
