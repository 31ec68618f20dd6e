// How much device memory a model, or one rank's part of it, needs, and how large a KV cache that leaves. Pure functions.
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
  std::int64_t max_context_tokens = 0;    // length of the model's context
  std::optional<BlockRange> blocks = {};  // nullopt: all of the model's
  // Multiprocessors for which decode attention is split; 0: as many as the device has. Ranks must split alike.
  int multiprocessors = 0;
  RankGroup* group = nullptr;  // with device_rank_sizes(); null: only one rank
  // Format of the layers' matrices: kFp32 means the device's precision; otherwise 8 bits.
  WeightFormat weights = WeightFormat::kFp32;
  std::int64_t max_unpacked = 16LL << 20U;  // 8-bit weights unpacked at a time, in numbers: unpacked_rows()
  // Only with kFp8 weights and precision BF16: for more than kMaxFewRows rows, activations are converted to FP8 too, row by
  // row.
  bool fp8_activations = false;

  [[nodiscard]] bool eight_bits() const { return weights != WeightFormat::kFp32; }

  // This rank's part of the model.
  [[nodiscard]] TensorSlice slice() const {
    return group == nullptr ? TensorSlice{} : TensorSlice{group->rank(), group->ranks()};
  }
};

// Number of elements in the working memory's arrays; float unless stated otherwise.
struct WorkingSizes {
  std::int64_t rows = 0;  // of tokens, for the following
  std::int64_t residual = 0;
  std::int64_t normed = 0;  // in the precision's type, like these:
  std::int64_t qkv = 0;
  std::int64_t queries = 0;
  std::int64_t mixed = 0;
  std::int64_t mlp_in = 0;  // of rows, or of entries for experts
  std::int64_t activated = 0;
  std::int64_t last = 0;
  std::int64_t rounded = 0;       // of narrow, or of the output matrix's input
  std::int64_t unpacked = 0;      // up to here
  std::int64_t activations = 0;   // FP8
  std::int64_t row_scales = 0;    // of the activations
  std::int64_t fp8_products = 0;  // before scaling
  std::int64_t narrow = 0;        // rows of an embedding that is narrower than the layers
  std::int64_t router_logits = 0;
  std::int64_t entry_numbers = 0;  // int32 and float: ExpertEntries and the chosen experts
  std::int64_t entry_rows = 0;     // the experts' outputs, before they are summed
  std::int64_t logits = 0;
  std::int64_t summaries = 0;  // of the rows of logits, then of their segments
  std::int64_t partial = 0;
  std::int64_t partial_stats = 0;
  std::int64_t angles = 0;   // of cos, and of sin
  std::int64_t batch = 0;    // int32
  std::int64_t kv_copy = 0;  // one buffer of read_kv() and write_kv()
};

// The size of a summary in floats.
inline constexpr std::int64_t kSummaryFloats = sizeof(LogitSummary) / sizeof(float);

struct MemoryNeed {
  std::int64_t weights_bytes = 0;
  std::int64_t as_plain_bytes = 0;  // size of the weights without 8-bit formats
  std::int64_t working_bytes = 0;
  std::int64_t kv_block_bytes = 0;
};

// Rows of a decode batch are padded to one of a few sizes, each of which may have a graph: the smallest that is large enough.
[[nodiscard]] std::int64_t padded_decode_rows(std::int64_t rows);

// Tokens moved in one piece by read_kv() and write_kv().
inline constexpr std::int64_t kKvCopyTokens = 256;

// Number of rows of an 8-bit matrix (out, in) to unpack at a time: together at most `most` numbers, but at least 128 rows.
// It is a multiple of 128, or all rows, so that each product's output starts at an address where products may write. Also
// used for FP8 products (rows, out), with `in` as their rows: then the number of channels to compute at a time.
[[nodiscard]] std::int64_t unpacked_rows(std::int64_t out, std::int64_t in, std::int64_t most);

// Parts of a context that decode attention computes in parallel so that `rows` rows fill the device: a power of two, at most
// kMaxSplits.
inline constexpr std::int64_t kMaxSplits = 64;
// `config`: with the heads of this device.
[[nodiscard]] std::int64_t decode_splits(const ModelConfig& config, std::int64_t rows, std::int64_t longest_tokens,
                                         int multiprocessors);

// Here and below `config` is the whole model's; `slice` may be of another rank than the options'.
[[nodiscard]] WorkingSizes working_sizes(const ModelConfig& config, const CudaBackendOptions& options, TensorSlice slice,
                                         int multiprocessors);

[[nodiscard]] MemoryNeed memory_need(const ModelConfig& config, const CudaBackendOptions& options, TensorSlice slice,
                                     Precision precision, int multiprocessors);

// Memory that may be used: what is free, but no more than this share of the total.
[[nodiscard]] std::int64_t budget_bytes(const DeviceMemory& memory, double share);

// Number of blocks that fit in `share` of the device's memory next to weights and working memory, at most `wanted`. Error:
// kResourceExhausted if not even `least` fit, naming the available, needed and missing GB.
[[nodiscard]] Result<std::int64_t> affordable_kv_blocks(const MemoryNeed& need, const DeviceMemory& memory, double share,
                                                        std::int64_t wanted, std::int64_t least);

// Sizes of the shared memory of ranks with one device each: only the logits and their summaries (gather), because the caches
// are on the devices. REQUIRES: check_tensor_parallel(config, ranks).
[[nodiscard]] RankGroupSizes device_rank_sizes(const ModelConfig& config, const CudaBackendOptions& options, int ranks);

// Checks whether there is a device for each rank. Error: kFailedPrecondition naming the flag, the rule and the value.
[[nodiscard]] Result<void> check_devices(int ranks, int devices);

// Checks whether the CUDA backend supports this model. Error: kInvalidArgument naming the field, the rule and the value.
[[nodiscard]] Result<void> check_cuda_model(const ModelConfig& config);

}  // namespace windlass::worker::cuda
