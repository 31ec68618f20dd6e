// Estimates the memory and throughput of an instance with t GPUs as Huawei's planner does: Xiong et al. 2025 ("High-Throughput
// LLM inference on Heterogeneous Clusters"), Eq. 1, Eq. 2 and Alg. 1.
//
// Alg. 1 is for static batches: as many sampled requests as the cache holds, in order; each batch takes as long as its longest
// prompt and answer. Engines with continuous batching serve several times more. continuous_batching() computes that from the
// same coefficients. Pure.
#pragma once

#include <span>
#include <utility>

#include "planner/base/result.h"
#include "planner/catalog/accelerator.h"
#include "planner/catalog/model_shape.h"
#include "planner/dispatch/batch_times.h"
#include "planner/strategies/core/steady_rate.h"

namespace windlass::hetero {

struct MemoryRules {
  double share = 0.9;         // phi_usage: share of a GPU's memory that the engine uses
  double engine_bytes = 2e9;  // delta_engine, per GPU: CUDA graphs and other memory that holds neither weights nor caches
};

// Eq. 1: bytes for KV caches in an instance of `tensor_parallel` GPUs; negative: bytes missing for the weights. The equation
// subtracts delta_engine once; the paper's text says once per GPU, as done here.
[[nodiscard]] double kv_cache_bytes(const planner::ModelShape& shape, const planner::AcceleratorSpec& spec, int tensor_parallel,
                                    const MemoryRules& rules = {});

// KV cache bytes per token in that instance: of the model's KV heads (the paper's 2 l h assumes as many as heads), with a copy
// on each GPU beyond the number of heads.
[[nodiscard]] double kv_token_bytes(const planner::ModelShape& shape, int tensor_parallel);

// Tokens of a request.
using Lengths = std::pair<int, int>;  // input, output

struct ThroughputEstimate {
  double tokens_per_s = 0;  // of one instance, input and output together
  double requests_per_s = 0;
  double total_s = 0;  // for all batches
  int batches = 0;
  int largest_batch = 0;
};

// Alg. 1 for one instance, with `kv_tokens` for caches and batches of at most `max_requests` (no limit in the paper). A
// machine serves u / t times that; the algorithm's last line says t, which contradicts Section 3.2. Errors kInvalidArgument: no
// requests, one that alone exceeds the cache (Eq. 2), with its number, or times that are all 0.
[[nodiscard]] Result<ThroughputEstimate> estimate_throughput(const dispatch::BatchTimes& times, double kv_tokens,
                                                             int max_requests, std::span<const Lengths> requests);

struct ContinuousEstimate {
  double tokens_per_s = 0;  // of one instance, input and output together
  double requests_per_s = 0;
  double batch = 0;  // sequences that decode at once
};

// What the instance serves with continuous batching: the steady state in which requests come and go one by one, without
// padding, and prompts run alone (vLLM). REQUIRES: times that Alg. 1 accepts, lengths above 0.
[[nodiscard]] ContinuousEstimate continuous_batching(const dispatch::BatchTimes& times, double kv_tokens, int max_requests,
                                                     const search::LengthMoments& lengths);

}  // namespace windlass::hetero
