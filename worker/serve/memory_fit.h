// What a model takes of the memory of the machine that computes it (the CPU backend), whether that fits, and what would fit
// instead (docs/decisions/2026-11-23-memory-is-counted-before-loading.md). On a GPU: backend/cuda/memory_need.h.
//
// Counted are weights, KV cache and the buffers of a step: exact, and less than what the process takes in the end. What is left
// is an estimate, so that a twentieth more is let pass. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "planner/base/result.h"
#include "worker/model/weights.h"
#include "worker/serve/host_memory.h"

namespace windlass::worker {

struct HostMemoryNeed {
  WeightSizes weights;       // of all ranks together
  WeightSizes rank_weights;  // of one rank; of a worker without others the same
  WeightFormat format = WeightFormat::kFp32;
  std::int64_t step_bytes = 0, rank_step_bytes = 0;  // as of weights
  std::int64_t kv_bytes_per_token = 0;               // of all ranks together, which share the cache
  std::int64_t kv_tokens = 0;
  std::int64_t max_context_tokens = 0;

  [[nodiscard]] std::int64_t kv_bytes() const { return kv_tokens * kv_bytes_per_token; }
};

// "weights take 1.20 GB as fp32, a KV cache of 4096 tokens 0.50 GB and buffers 0.06 GB"
[[nodiscard]] std::string to_text(const HostMemoryNeed& need);

// Error: kResourceExhausted with how much is missing, what weights and cache take, and what would fit: flags that do, or that
// none does.
[[nodiscard]] Result<void> check_memory(const HostMemoryNeed& need, const HostMemory& memory);

// For what comes beside what is there already. Error: kResourceExhausted with how much is missing.
[[nodiscard]] Result<void> check_growth(std::int64_t bytes, const HostMemory& memory);

}  // namespace windlass::worker
