// CpuBackend: the forward pass on the CPU in FP32, with a paged KV cache of fixed size.
//
// The cache and the large buffers are taken at make(); a step allocates nothing in steady state. Owned by the engine's loop,
// used from its thread.
//
// One of several ranks computes its slice of every layer, with the sums over a RankGroup: all ranks must run the same chunks.
// Its KV cache, of its heads alone, lies in the group's memory.
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
  std::int64_t max_context_tokens = 0;    // positions that exist
  int threads = 1;                        // of this backend's team, and of OpenBLAS in the whole process
  std::vector<int> processors = {};       // where the team's threads stay, one each; empty: wherever the system puts them
  std::optional<BlockRange> blocks = {};  // those of the weights; nullopt: all of the model's
  RankGroup* group = nullptr;             // of rank_group_sizes(); null: there is this rank alone
};

// Bytes of KV cache for one token position in so many layers.
[[nodiscard]] std::int64_t kv_bytes_per_token(const ModelConfig& config, std::int64_t layers);

// Bytes that make_cpu_backend() takes beside the KV cache, of one rank. REQUIRES: check_tensor_parallel(config, slice.ranks).
[[nodiscard]] std::int64_t cpu_step_bytes(const ModelConfig& config, const CpuBackendOptions& options, TensorSlice slice);

// What the ranks of one model share. REQUIRES: check_tensor_parallel(config, ranks).
[[nodiscard]] RankGroupSizes rank_group_sizes(const ModelConfig& config, const CpuBackendOptions& options, int ranks);

// A rank's cache in the group's memory, as each rank sees it.
[[nodiscard]] cpu::KvCache kv_cache_of_rank(const ModelConfig& config, const CpuBackendOptions& options, const RankGroup& group,
                                            int rank);

// `weights` are the rank's slice, which others may have, too; nobody changes them while the backend lives. `config` is the
// whole model's. The group outlives the backend. vocab_size() is the model's, kv_shape() the rank's; forward() gives the whole
// rows to rank 0, the others get none. Error: kResourceExhausted when the cache and the buffers do not fit into memory; names
// the size.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelConfig& config,
                                                                std::shared_ptr<const ModelWeights> weights,
                                                                const CpuBackendOptions& options);
// With weights of its own.
[[nodiscard]] inline Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelConfig& config, ModelWeights weights,
                                                                       const CpuBackendOptions& options) {
  return make_cpu_backend(config, std::make_shared<const ModelWeights>(std::move(weights)), options);
}

}  // namespace windlass::worker
