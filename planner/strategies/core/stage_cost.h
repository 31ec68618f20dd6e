// Cost model of HexGen-2 (Jiang, Yan, Yuan, ICLR 2025, Table 1 and Appendix A; HexGen's, ICML 2024): the time of a stage, of a
// hop between stages and of a KV cache transfer, and how many layers fit into a stage's memory.
//
// Table 1 assumes a layer of 12 H^2 weights, each read once per iteration and costing 2 FLOP per token, with a KV cache of 2 H
// values per token. Here the model's own layer is used instead (for OPT it is 12 H^2): its matrices, and the KV cache of its KV
// heads (GQA, latent attention, windows). As in Table 1, latencies exclude attention, reading the KV cache, and embeddings. A
// stage's GPUs are on one node, so Table 1's maxima over a stage's GPUs and sums over its peers have closed forms. Plain data;
// pure functions.
#pragma once

#include <limits>
#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/accelerator.h"
#include "planner/catalog/model_shape.h"
#include "planner/deployment/gpu_cluster.h"

namespace windlass::hetero {

inline constexpr double kInfinite = std::numeric_limits<double>::infinity();  // seconds over a missing link

// Table 1's task t: a model and a request of mean lengths.
struct InferenceTask {
  int layers = 0;
  double model_bytes = 0;            // all weights, including embeddings
  double layer_flops_per_token = 0;  // 24 H^2
  double layer_weight_bytes = 0;     // 12 H^2 B_type
  double layer_kv_bytes = 0;         // per request at its end: 2 (s_in + s_out) H B_type
  double layer_prompt_kv_bytes = 0;  // of a request's prompt: 2 s_in H B_type
  int kv_shards = 1;                 // GPUs over which a layer's cache can be divided
  double token_bytes = 0;            // activations per token between layers: H B_type
  planner::DType compute_dtype = planner::DType::kFloat16;
  double input_tokens = 0;                          // s_in
  double output_tokens = 0;                         // s_out
  std::vector<int> tensor_parallel;                 // degrees that divide the model evenly, ascending
  double memory_share = 1;                          // share of a GPU's memory for weights, caches and activations
  int max_batch = std::numeric_limits<int>::max();  // sequences that decode at once in a group

  // Memory of one replica with 32 concurrent requests (Appendix A): weights and KV caches.
  [[nodiscard]] double replica_bytes() const;
};

inline constexpr double kMemoryShare = 0.9;     // default share of a GPU's memory
inline constexpr int kConcurrentRequests = 32;  // Appendix A's b_t for the number of groups

// `max_gpus`: per stage. Errors: lengths that are not positive, a share outside (0, 1], a shape that validate() rejects.
[[nodiscard]] Result<InferenceTask> inference_task(const planner::ModelShape& shape, double input_tokens, double output_tokens,
                                                   int max_gpus, double memory_share = 1);

// Table 1 for one stage of `tensor_parallel` GPUs, per layer.
struct StageFigures {
  int tensor_parallel = 1;
  double prefill_layer_s = 0;         // computation and TP communication of one request's prompt
  double decode_layer_s = 0;          // for all its output tokens: reading weights, and TP latency
  double decode_layer_request_s = 0;  // in addition per request of the batch: computation, and TP bytes
  double weight_bytes = 0;            // per layer and GPU
  double kv_bytes = 0;                // per layer, request and GPU
  double activation_bytes = 0;        // per request and GPU, for any number of layers: 4 (s_in + s_out) H B_type
  double memory_bytes = 0;            // usable on each GPU

  // Layers that fit with this many concurrent requests, at most `layers`; 0: none.
  [[nodiscard]] int max_layers(int batch, int layers) const;
};

// REQUIRES: tensor_parallel >= 1. Times are infinite if the GPU cannot compute in the type, or has no link to its peers.
[[nodiscard]] StageFigures stage_figures(const InferenceTask& task, const planner::AcceleratorSpec& accelerator,
                                         const Link& within, int tensor_parallel);

// PP communication from one stage to the next (Table 1): for one request's prompt, and for all output tokens of `batch`
// requests. Infinite without a link.
[[nodiscard]] double prefill_hop_s(const InferenceTask& task, const Link& link);
[[nodiscard]] double decode_hop_s(const InferenceTask& task, const Link& link, int batch);

// KV communication (Table 1) of `layers` layers of one prompt between two stages, in parallel over `connections` pairs of GPUs.
// Infinite without a link.
[[nodiscard]] double kv_transfer_s(const InferenceTask& task, const Link& link, int layers, int connections);

// K (Section 3.2, Appendix A): total memory over the memory of one replica with 32 concurrent requests, rounded down.
[[nodiscard]] int groups_by_memory(const InferenceTask& task, const GpuCluster& cluster);

}  // namespace windlass::hetero
