// CpuBackend: the forward pass on the CPU in FP32, with a paged KV cache of fixed size.
//
// Cache and large buffers are allocated in make_cpu_backend(); a step allocates nothing in steady state. Owned by the engine's
// loop and used from its thread.
//
// As one of several ranks, it computes its slice of every layer and sums over a RankGroup; all ranks must run the same chunks.
// Its KV cache, with only its own heads, is in the group's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "planner/base/result.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/kv_cache.h"
#include "worker/collective/rank_group.h"
#include "worker/model/config.h"
#include "worker/model/tensor_slice.h"
#include "worker/model/weights.h"

namespace windlass::worker {

struct CpuBackendOptions {
  std::int64_t kv_blocks = 0;             // of kKvBlockTokens positions
  std::int64_t max_batch_tokens = 256;    // per forward()
  std::int64_t max_logit_rows = 8;        // chunks that want logits, per forward()
  std::int64_t max_context_tokens = 0;    // length of the model's context
  int threads = 1;                        // of this backend's team, and of OpenBLAS in the whole process
  std::vector<int> processors = {};       // one per thread, to pin the team's threads; empty: not pinned
  std::optional<BlockRange> blocks = {};  // those of the weights; nullopt: all of the model's
  RankGroup* group = nullptr;             // with rank_group_sizes(); null: only one rank
};

// Bytes of KV cache per token position in this many layers.
[[nodiscard]] std::int64_t kv_bytes_per_token(const ModelConfig& config, std::int64_t layers);

// Bytes that make_cpu_backend() allocates in addition to the KV cache, for one rank. REQUIRES: check_tensor_parallel(config,
// slice.ranks).
[[nodiscard]] std::int64_t cpu_step_bytes(const ModelConfig& config, const CpuBackendOptions& options, TensorSlice slice);

// Sizes of the ranks' shared memory. REQUIRES: check_tensor_parallel(config, ranks).
[[nodiscard]] RankGroupSizes rank_group_sizes(const ModelConfig& config, const CpuBackendOptions& options, int ranks);

// A rank's cache in the group's memory; accessible from every rank.
[[nodiscard]] cpu::KvCache kv_cache_of_rank(const ModelConfig& config, const CpuBackendOptions& options, const RankGroup& group,
                                            int rank);

// `config` is the whole model's; `weights` are the rank's slice. Weights may be shared and must not change while the backend
// lives. The group outlives the backend. vocab_size() is the model's, kv_shape() the rank's; forward() returns whole rows at
// rank 0 and nothing at the others. Error: kResourceExhausted, naming the size, if cache and buffers do not fit in memory.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelConfig& config,
                                                                std::shared_ptr<const ModelWeights> weights,
                                                                const CpuBackendOptions& options);
// With weights of its own.
[[nodiscard]] inline Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelConfig& config, ModelWeights weights,
                                                                       const CpuBackendOptions& options) {
  return make_cpu_backend(config, std::make_shared<const ModelWeights>(std::move(weights)), options);
}

}  // namespace windlass::worker
