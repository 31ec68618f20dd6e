// What a model, or one rank's part of it, takes of a device's memory, and how large a KV cache that leaves. Pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "planner/base/result.h"
#include "worker/backend/cuda/device.h"
#include "worker/collective/rank_group.h"
#include "worker/model/config.h"
#include "worker/model/tensor_slice.h"
#include "worker/model/weight_matrix.h"

namespace windlass::worker::cuda {

struct CudaBackendOptions {
  std::int64_t kv_blocks = 0;             // of kKvBlockTokens positions
  std::int64_t max_batch_tokens = 2048;   // per forward()
  std::int64_t max_logit_rows = 8;        // chunks that want logits, per forward()
  std::int64_t max_context_tokens = 0;    // positions that exist
  std::optional<BlockRange> blocks = {};  // nullopt: all of the model's
  // For how many decode attention is cut; 0: as many as the device has. Ranks must cut alike.
  int multiprocessors = 0;
  RankGroup* group = nullptr;  // of device_rank_sizes(); null: there is this rank alone
  // Of the layers' matrices: kFp32 is what the device computes with, else eight bits.
  WeightFormat weights = WeightFormat::kFp32;
  std::int64_t most_unpacked = 16LL << 20U;  // numbers at a time, of weights of eight bits: unpacked_rows()
  // With weights as kFp8 alone, and the device's precision BF16: of more than kMaxFewRows rows the activations become FP8,
  // too, row by row.
  bool fp8_activations = false;

  [[nodiscard]] bool eight_bits() const { return weights != WeightFormat::kFp32; }

  // This rank's part of the model.
  [[nodiscard]] TensorSlice slice() const {
    return group == nullptr ? TensorSlice{} : TensorSlice{group->rank(), group->ranks()};
  }
};

// Elements of the working memory's arrays; float where not said otherwise.
struct WorkingSizes {
  std::int64_t rows = 0;  // of tokens, that the following have
  std::int64_t residual = 0;
  std::int64_t normed = 0;  // of the precision, like these:
  std::int64_t qkv = 0;
  std::int64_t queries = 0;
  std::int64_t mixed = 0;
  std::int64_t mlp_in = 0;  // of rows, or of what goes to experts
  std::int64_t activated = 0;
  std::int64_t last = 0;
  std::int64_t rounded = 0;       // of narrow, or of what goes to the output matrix then
  std::int64_t unpacked = 0;      // to here
  std::int64_t activations = 0;   // FP8
  std::int64_t row_scales = 0;    // of them
  std::int64_t fp8_products = 0;  // before they are scaled
  std::int64_t narrow = 0;        // rows of the embedding, where it is narrower than the layers
  std::int64_t router_logits = 0;
  std::int64_t entry_numbers = 0;  // int32 and float: ExpertEntries, and which experts were chosen
  std::int64_t entry_rows = 0;     // what experts give, before it is added up
  std::int64_t logits = 0;
  std::int64_t summaries = 0;  // of the logits' rows, then of their segments
  std::int64_t partial = 0;
  std::int64_t partial_stats = 0;
  std::int64_t angles = 0;   // of cos, and of sin
  std::int64_t batch = 0;    // int32
  std::int64_t kv_copy = 0;  // of read_kv() and write_kv(), once
};

// As many floats as a summary takes.
inline constexpr std::int64_t kSummaryFloats = sizeof(LogitSummary) / sizeof(float);

struct MemoryNeed {
  std::int64_t weights_bytes = 0;
  std::int64_t as_plain_bytes = 0;  // what weights would take without eight bits
  std::int64_t working_bytes = 0;
  std::int64_t kv_block_bytes = 0;
};

// Rows of a decode batch are filled up to one of few numbers, for each of which there may be a graph: the least that is enough.
[[nodiscard]] std::int64_t padded_decode_rows(std::int64_t rows);

// Tokens that one piece of read_kv() and write_kv() moves.
inline constexpr std::int64_t kKvCopyTokens = 256;

// Rows of a matrix of eight bits (out, in) that are unpacked at a time, of `most` numbers if that is as many as 128 rows: a
// multiple of 128, so that what their product gives begins where products may write. Of products of FP8 numbers (rows, out),
// with `in` for their rows, so many channels are made at a time.
[[nodiscard]] std::int64_t unpacked_rows(std::int64_t out, std::int64_t in, std::int64_t most);

// Parts of a context that decode attention runs beside each other, so that `rows` of them fill the device: a power of two, at
// most kMaxSplits.
inline constexpr std::int64_t kMaxSplits = 64;
// `config`: with as many heads as are on this device.
[[nodiscard]] std::int64_t decode_splits(const ModelConfig& config, std::int64_t rows, std::int64_t longest_tokens,
                                         int multiprocessors);

// `config` is the whole model's here and below; `slice` may be another rank's than the options'.
[[nodiscard]] WorkingSizes working_sizes(const ModelConfig& config, const CudaBackendOptions& options, TensorSlice slice,
                                         int multiprocessors);

[[nodiscard]] MemoryNeed memory_need(const ModelConfig& config, const CudaBackendOptions& options, TensorSlice slice,
                                     Precision precision, int multiprocessors);

// What may be taken of a device: what is free, and no more than this share of all that it has.
[[nodiscard]] std::int64_t budget_bytes(const DeviceMemory& memory, double share);

// As many blocks as fit into `share` of the device's memory beside weights and working memory, at most `wanted`.
// Error: kResourceExhausted when not even `least` fit; names what there is, what is needed and the GB that are missing.
[[nodiscard]] Result<std::int64_t> affordable_kv_blocks(const MemoryNeed& need, const DeviceMemory& memory, double share,
                                                        std::int64_t wanted, std::int64_t least);

// What the ranks of one model share when each has a device of its own: the logits of all and their summaries (gather)
// alone; caches are on the devices. REQUIRES: check_tensor_parallel(config, ranks).
[[nodiscard]] RankGroupSizes device_rank_sizes(const ModelConfig& config, const CudaBackendOptions& options, int ranks);

// Whether each of so many ranks can have one of so many devices. Error: kFailedPrecondition naming the flag, found and allowed.
[[nodiscard]] Result<void> check_devices(int ranks, int devices);

// Whether the CUDA backend computes this model. Error: kInvalidArgument naming the field, what was found and what is allowed.
[[nodiscard]] Result<void> check_cuda_model(const ModelConfig& config);

}  // namespace windlass::worker::cuda
