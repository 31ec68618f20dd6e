// Checks whether a model fits the host memory (CPU backend), and suggests what would fit instead
// (docs/decisions/2026-11-23-memory-is-counted-before-loading.md). For GPUs: backend/cuda/memory_need.h.
//
// Counts weights, KV cache and the buffers of a step. These are exact, but the process uses somewhat more. Available memory is
// an estimate, so a need up to a twentieth above it passes. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "planner/base/result.h"
#include "worker/model/weights.h"
#include "worker/serve/host_memory.h"

namespace windlass::worker {

struct HostMemoryNeed {
  WeightSizes weights;       // all ranks together
  WeightSizes rank_weights;  // one rank; without other ranks equal to `weights`
  WeightFormat format = WeightFormat::kFp32;
  std::int64_t step_bytes = 0, rank_step_bytes = 0;  // all ranks together, and one rank
  std::int64_t kv_bytes_per_token = 0;               // all ranks together, which share the cache
  std::int64_t kv_tokens = 0;
  std::int64_t max_context_tokens = 0;

  [[nodiscard]] std::int64_t kv_bytes() const { return kv_tokens * kv_bytes_per_token; }
};

// "weights take 1.20 GB as fp32, a KV cache of 4096 tokens 0.50 GB and buffers 0.06 GB"
[[nodiscard]] std::string to_text(const HostMemoryNeed& need);

// Error: kResourceExhausted with the missing amount, the size of weights and cache, and flags that would fit, if any.
[[nodiscard]] Result<void> check_memory(const HostMemoryNeed& need, const HostMemory& memory);

// Checks `bytes` in addition to what is already allocated. Error: kResourceExhausted with the missing amount.
[[nodiscard]] Result<void> check_growth(std::int64_t bytes, const HostMemory& memory);

}  // namespace windlass::worker
