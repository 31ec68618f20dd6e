// CpuBackend: the forward pass on the CPU in FP32, with a paged KV cache of fixed size.
//
// All memory is taken at make(); a step allocates nothing in steady state. Owned by the engine's loop, used from its thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "planner/base/result.h"
#include "worker/backend/backend.h"
#include "worker/model/config.h"
#include "worker/model/weights.h"

namespace windlass::worker {

struct CpuBackendOptions {
  std::int64_t kv_blocks = 0;             // of kKvBlockTokens positions
  std::int64_t max_batch_tokens = 256;    // per forward()
  std::int64_t max_logit_rows = 8;        // chunks that want logits, per forward()
  std::int64_t max_context_tokens = 0;    // positions that exist
  int threads = 1;                        // for matrix products; of the whole process, as BLAS has it
  std::optional<BlockRange> blocks = {};  // those of the weights; nullopt: all of the model's
};

// Bytes of KV cache for one token position in so many layers.
[[nodiscard]] std::int64_t kv_bytes_per_token(const ModelConfig& config, std::int64_t layers);

// Error: kResourceExhausted when the cache and the buffers do not fit into memory; names the size.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelConfig& config, ModelWeights weights,
                                                                const CpuBackendOptions& options);

}  // namespace windlass::worker
