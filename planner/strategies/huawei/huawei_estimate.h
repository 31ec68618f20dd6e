// What an instance of t GPUs holds and serves, as the Huawei planner estimates it: Xiong et al. 2025 ("High-Throughput LLM
// inference on Heterogeneous Clusters"), Eq. 1, Eq. 2 and Alg. 1.
//
// The estimate is of static batches: as many of the sampled requests as the cache holds, in their order, each batch as long as
// its longest prompt and answer. Engines with continuous batching serve several times more; the paper claims of it, and uses,
// the order of the deployments alone. Pure.
#pragma once

#include <span>
#include <utility>

#include "planner/base/result.h"
#include "planner/catalog/accelerator.h"
#include "planner/catalog/model_shape.h"
#include "planner/dispatch/batch_times.h"

namespace windlass::hetero {

struct MemoryRules {
  double share = 0.9;         // phi_usage: of a GPU's memory that the engine takes
  double engine_bytes = 2e9;  // delta_engine, of each GPU: CUDA graphs and what else holds neither weights nor caches
};

// Eq. 1: bytes that an instance of `tensor_parallel` GPUs has for KV caches; below 0: so many are missing for the weights. The
// equation takes delta_engine once, the paper's text says that it is taken on every GPU, and so it is here.
[[nodiscard]] double kv_cache_bytes(const planner::ModelShape& shape, const planner::AcceleratorSpec& spec, int tensor_parallel,
                                    const MemoryRules& rules = {});

// Bytes of the caches of a token in that instance: of the model's KV heads (the paper's 2 l h takes as many as heads), and a
// copy more on each GPU beyond those that share them.
[[nodiscard]] double kv_token_bytes(const planner::ModelShape& shape, int tensor_parallel);

// A request's tokens.
using Lengths = std::pair<int, int>;  // input, output

struct ThroughputEstimate {
  double tokens_per_s = 0;  // of one instance, input and output
  double requests_per_s = 0;
  double total_s = 0;  // of all batches
  int batches = 0;
  int largest_batch = 0;
};

// Alg. 1 for one instance, with `kv_tokens` for caches and batches of at most `most_requests` (the paper: without a limit).
// What a machine serves is u / t times that; the algorithm's last line says t, which contradicts Section 3.2. Errors
// kInvalidArgument: no requests, or one that alone is longer than the cache (Eq. 2), by its number; times that are all 0.
[[nodiscard]] Result<ThroughputEstimate> estimate_throughput(const dispatch::BatchTimes& times, double kv_tokens,
                                                             int most_requests, std::span<const Lengths> requests);

}  // namespace windlass::hetero
