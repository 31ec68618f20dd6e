// The cost model of HexGen-2 (Jiang, Yan, Yuan, ICLR 2025, Table 1 and Appendix A; HexGen's, ICML 2024): what a stage, a hop
// between stages and a transfer of KV cache take, and how many layers a stage's memory holds.
//
// Table 1 writes a layer of 12 H^2 weights, each read once an iteration and costing 2 FLOP a token, with a KV cache of 2 H
// values a token. Here the model's own layer stands in their place (for OPT it is 12 H^2): its matrices, and the KV cache of
// its KV heads (GQA, latent attention, windows). As there, latencies know neither attention nor the reading of the KV cache,
// and nothing of embeddings. A stage's GPUs are on one node, so that Table 1's maxima over a stage's GPUs and sums over its
// peers are closed. Plain data; pure functions.
#pragma once

#include <limits>
#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/accelerator.h"
#include "planner/catalog/model_shape.h"
#include "planner/deployment/gpu_cluster.h"

namespace windlass::hetero {

inline constexpr double kInfinite = std::numeric_limits<double>::infinity();  // seconds over a link that carries nothing

// Table 1's task t: a model and a request of mean lengths.
struct InferenceTask {
  int layers = 0;
  double model_bytes = 0;            // all weights, embeddings included
  double layer_flops_per_token = 0;  // 24 H^2
  double layer_weight_bytes = 0;     // 12 H^2 B_type
  double layer_kv_bytes = 0;         // of a request when it ends: 2 (s_in + s_out) H B_type
  double layer_prompt_kv_bytes = 0;  // of its prompt: 2 s_in H B_type
  int kv_shards = 1;                 // GPUs over which a layer's cache can be cut
  double token_bytes = 0;            // activations of a token between layers: H B_type
  planner::DType compute_dtype = planner::DType::kFloat16;
  double input_tokens = 0;           // s_in
  double output_tokens = 0;          // s_out
  std::vector<int> tensor_parallel;  // degrees that cut the model evenly, ascending
  double memory_share = 1;           // of a GPU's memory: what weights, caches and activations may have

  // Of one replica with 32 concurrent requests (Appendix A): weights and KV caches.
  [[nodiscard]] double replica_bytes() const;
};

inline constexpr double kMemoryShare = 0.9;     // of a GPU's memory, where nothing else is said
inline constexpr int kConcurrentRequests = 32;  // Appendix A's b_t for the number of groups

// `most_gpus`: of one stage. Errors: lengths that are not positive, a share outside (0, 1], a shape that validate() refuses.
[[nodiscard]] Result<InferenceTask> inference_task(const planner::ModelShape& shape, double input_tokens, double output_tokens,
                                                   int most_gpus, double memory_share = 1);

// Table 1's lines for one stage of `tensor_parallel` GPUs, a layer each.
struct StageFigures {
  int tensor_parallel = 1;
  double prefill_layer_s = 0;         // computation and TP communication of one request's prompt
  double decode_layer_s = 0;          // of all its output tokens: weights read, and TP latency
  double decode_layer_request_s = 0;  // and for each request of the batch: computation, and TP bytes
  double weight_bytes = 0;            // of a layer, on each GPU
  double kv_bytes = 0;                // of a layer and request, on each GPU
  double activation_bytes = 0;        // of a request, on each GPU, whatever its layers: 4 (s_in + s_out) H B_type
  double memory_bytes = 0;            // that each GPU may use

  // Layers that fit with this many concurrent requests, at most `layers`; 0: none.
  [[nodiscard]] int most_layers(int batch, int layers) const;
};

// REQUIRES: tensor_parallel >= 1. Infinite times where the GPU cannot compute in the type, or must talk to peers without a
// link.
[[nodiscard]] StageFigures stage_figures(const InferenceTask& task, const planner::AcceleratorSpec& accelerator,
                                         const Link& within, int tensor_parallel);

// PP communication from a stage to the next (Table 1), of one request's prompt, and of all output tokens of `batch` requests.
// Infinite without a link.
[[nodiscard]] double prefill_hop_s(const InferenceTask& task, const Link& link);
[[nodiscard]] double decode_hop_s(const InferenceTask& task, const Link& link, int batch);

// KV communication (Table 1) of one prompt's `layers` layers between two stages over `connections` pairs of GPUs at once, a
// part each. Infinite without a link.
[[nodiscard]] double kv_transfer_s(const InferenceTask& task, const Link& link, int layers, int connections);

// K (Section 3.2, Appendix A): total memory over the memory of one replica with 32 concurrent requests, rounded down.
[[nodiscard]] int groups_by_memory(const InferenceTask& task, const GpuCluster& cluster);

}  // namespace windlass::hetero
