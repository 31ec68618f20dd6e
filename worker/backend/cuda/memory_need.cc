// Adds up sizes of weights, working memory and cache.
#include "worker/backend/cuda/memory_need.h"

#include <algorithm>
#include <array>
#include <tuple>

#include <fmt/core.h>

#include "worker/backend/backend.h"
#include "worker/backend/cuda/batch.h"

namespace windlass::worker::cuda {
namespace {

constexpr std::int64_t kBlocksPerProcessor = 4;  // thread blocks per multiprocessor, so that it has enough to choose from
constexpr std::int64_t kLeastSplitTokens = 128;  // shortest part of a context that is worth combining
constexpr std::int64_t kUnpackedStep = 128;
constexpr std::int64_t kFloat = sizeof(float);

// Thread blocks of decode attention per row and split.
std::int64_t blocks_of_row(const ModelConfig& config) {
  const std::int64_t group = config.heads / config.kv_heads;
  return config.kv_heads * ((group + kDecodeHeads - 1) / kDecodeHeads);
}

// Several matrices of equal shape.
struct Matrices {
  std::int64_t count, out, in;
};

// The matrices of a layer's attention and its MLP, or its experts.
std::array<Matrices, 4> layer_matrices(const ModelConfig& config, std::int64_t layer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t mlps = config.has_experts(layer) ? config.experts : 1;
  const std::int64_t width = config.has_experts(layer) ? config.expert_intermediate_size : config.intermediate_size;
  return {{{1, config.q_size() + 2 * config.kv_size(), hidden},
           {1, hidden, config.q_size()},
           {mlps, config.mlp_in_size(width), hidden},
           {mlps, hidden, width}}};
}

double gb(std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

}  // namespace

std::int64_t padded_decode_rows(std::int64_t rows) {
  for (std::int64_t small = 1; small < 8; small *= 2) {
    if (rows <= small) return small;
  }
  const std::int64_t step = rows <= 64 ? 8 : 32;
  return (rows + step - 1) / step * step;
}

std::int64_t decode_splits(const ModelConfig& config, std::int64_t rows, std::int64_t longest_tokens, int multiprocessors) {
  const std::int64_t room = kBlocksPerProcessor * multiprocessors / std::max<std::int64_t>(1, rows * blocks_of_row(config));
  const std::int64_t worth = longest_tokens / kLeastSplitTokens;
  const std::int64_t most = std::min({room, worth, kMaxSplits});
  std::int64_t splits = 1;
  while (splits * 2 <= most) splits *= 2;
  return splits;
}

std::int64_t unpacked_rows(std::int64_t out, std::int64_t in, std::int64_t most) {
  return std::min(out, std::max(most / in / kUnpackedStep, std::int64_t{1}) * kUnpackedStep);
}

WorkingSizes working_sizes(const ModelConfig& whole, const CudaBackendOptions& options, TensorSlice slice,
                           int multiprocessors) {
  const ModelConfig config = config_of_rank(whole, slice.ranks);
  const BlockRange blocks = options.blocks.value_or(config.all_blocks());
  const bool ends = blocks.end == config.layers;
  WorkingSizes sizes;
  sizes.rows =
      std::max(options.max_batch_tokens, padded_decode_rows(std::min(options.max_batch_tokens, options.max_logit_rows)));
  const std::int64_t logit_rows = ends ? padded_decode_rows(options.max_logit_rows) : 0;
  sizes.residual = sizes.rows * config.hidden_size;
  sizes.normed = sizes.rows * config.hidden_size;
  sizes.qkv = sizes.rows * (config.q_size() + 2 * config.kv_size());
  sizes.queries = sizes.rows * config.heads * padded_dim_of(config.head_dim);
  sizes.mixed = sizes.rows * config.q_size();
  const std::int64_t entries = sizes.rows * config.experts_per_token;
  const std::int64_t width = std::max(config.has_mlp() ? sizes.rows * config.intermediate_size : 0,
                                      entries * config.expert_intermediate_size);  // of all rows, or entries, together
  sizes.mlp_in = config.mlp_in_size(width);
  sizes.activated = width;
  sizes.router_logits = sizes.rows * config.experts;
  sizes.entry_numbers = config.experts > 0 ? config.experts + 1 + 4 * entries : 0;
  sizes.entry_rows = entries * config.hidden_size;
  sizes.last = logit_rows * config.hidden_size;
  const std::int64_t embedded = blocks.first == 0 ? sizes.rows : 0;
  sizes.narrow = embedded * config.embedding_size;
  sizes.rounded = std::max(embedded, logit_rows) * config.embedding_size;
  if (options.eight_bits()) {
    for (std::int64_t layer = blocks.first; layer < blocks.end; ++layer) {
      for (const auto& [count, out, in] : layer_matrices(config, layer)) {
        if (count > 1) continue;  // experts' products read codes directly
        sizes.unpacked = std::max(sizes.unpacked, unpacked_rows(out, in, options.max_unpacked) * in);
        if (!options.fp8_activations) continue;
        sizes.activations = std::max(sizes.activations, sizes.rows * in);
        sizes.row_scales = sizes.rows;
        // For fewer rows, more channels, but never more numbers than this.
        const std::int64_t most = std::max(options.max_unpacked, sizes.rows * kUnpackedStep);
        sizes.fp8_products = std::max(sizes.fp8_products, std::min(sizes.rows * out, most));
      }
    }
  }
  sizes.logits = logit_rows * slice.size(config.vocab_size);
  const std::int64_t segments = (slice.size(config.vocab_size) + kSummarySegment - 1) / kSummarySegment;
  sizes.summaries = logit_rows * (1 + segments) * kSummaryFloats;
  // With more than one split, decode_splits() limits rows * splits.
  const std::int64_t split_rows = kBlocksPerProcessor * multiprocessors / blocks_of_row(config) + 1;
  sizes.partial = split_rows * config.heads * config.head_dim;
  sizes.partial_stats = split_rows * config.heads * 2;
  sizes.angles = config.positions == Positions::kRotary ? options.max_context_tokens * (config.head_dim / 2) : 0;
  sizes.batch = max_packed(sizes.rows, logit_rows, sizes.rows * blocks_for(options.max_context_tokens));
  sizes.kv_copy = kKvCopyTokens * (2 * config.kv_size() + 1);
  return sizes;
}

MemoryNeed memory_need(const ModelConfig& whole, const CudaBackendOptions& options, TensorSlice slice, Precision precision,
                       int multiprocessors) {
  const ModelConfig config = config_of_rank(whole, slice.ranks);
  const BlockRange blocks = options.blocks.value_or(config.all_blocks());
  const bool begins = blocks.first == 0;
  const bool ends = blocks.end == config.layers;
  const std::int64_t element = bytes_of(precision);
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t norm = config.norm == Norm::kLayer ? 2 * hidden : hidden;
  std::int64_t layers = 0, plain_layers = 0;  // bytes of the layers' matrices
  std::int64_t layer_floats = 0;              // other numbers
  for (std::int64_t layer = blocks.first; layer < blocks.end; ++layer) {
    for (const auto& [count, out, in] : layer_matrices(config, layer)) {
      layers += count * (options.eight_bits() ? out * in + out * kFloat : out * in * element);
      plain_layers += count * out * in * element;
    }
    const bool experts = config.has_experts(layer);
    const std::int64_t mlp_biases = config.mlp_bias && !experts ? config.mlp_in_size(config.intermediate_size) + hidden : 0;
    layer_floats += 2 * norm + hidden + config.q_size() + 2 * config.kv_size() + 2 * config.head_dim + mlp_biases +
                    (experts ? config.experts * hidden : 0);
  }
  const std::int64_t positions =
      begins && config.positions == Positions::kLearned ? (config.max_context_tokens + kLearnedPositionsOffset) * hidden : 0;
  const std::int64_t tables = (begins ? 1 : 0) + (ends && !(begins && config.tie_word_embeddings) ? 1 : 0);
  MemoryNeed need;
  const std::int64_t projections = (begins ? 1 : 0) + (ends ? 1 : 0);
  need.weights_bytes = layers + tables * slice.size(config.vocab_size) * config.embedding_width() * element +
                       projections * hidden * config.embedding_size * element + (layer_floats + norm + positions) * kFloat;
  need.as_plain_bytes = need.weights_bytes + plain_layers - layers;
  const WorkingSizes sizes = working_sizes(whole, options, slice, multiprocessors);
  need.working_bytes = kFloat * (sizes.residual + sizes.router_logits + sizes.entry_numbers + sizes.entry_rows + sizes.logits +
                                 sizes.summaries + sizes.partial + sizes.partial_stats + 2 * sizes.angles + sizes.batch +
                                 sizes.kv_copy + sizes.row_scales + sizes.fp8_products + sizes.narrow) +
                       sizes.activations +
                       element * (sizes.normed + sizes.qkv + sizes.queries + sizes.mixed + sizes.mlp_in + sizes.activated +
                                  sizes.last + sizes.rounded + sizes.unpacked);
  need.kv_block_bytes = 2 * blocks.size() * kKvBlockTokens * config.kv_heads * padded_dim_of(config.head_dim) * element;
  return need;
}

std::int64_t budget_bytes(const DeviceMemory& memory, double share) {
  return std::min(memory.free_bytes, static_cast<std::int64_t>(share * static_cast<double>(memory.total_bytes)));
}

Result<std::int64_t> affordable_kv_blocks(const MemoryNeed& need, const DeviceMemory& memory, double share, std::int64_t wanted,
                                          std::int64_t least) {
  const std::int64_t budget = budget_bytes(memory, share);
  const std::int64_t left = budget - need.weights_bytes - need.working_bytes;
  if (left >= least * need.kv_block_bytes) return std::min(wanted, left / need.kv_block_bytes);
  return Error{
      ErrorCode::kResourceExhausted,
      fmt::format(
          "the device's memory: {:.1f} GB are missing: weights take {:.1f} GB, working memory {:.1f} GB and a KV "
          "cache of {} tokens {:.1f} GB; {:.1f} GB may be used ({:.1f} GB are free; --gpu-memory-share {} of {:.1f} GB)",
          gb(least * need.kv_block_bytes - left), gb(need.weights_bytes), gb(need.working_bytes), least * kKvBlockTokens,
          gb(least * need.kv_block_bytes), gb(budget), gb(memory.free_bytes), share, gb(memory.total_bytes))};
}

RankGroupSizes device_rank_sizes(const ModelConfig& config, const CudaBackendOptions& options, int ranks) {
  const BlockRange blocks = options.blocks.value_or(config.all_blocks());
  RankGroupSizes sizes;
  sizes.ranks = ranks;
  sizes.gather_floats = blocks.end == config.layers ? options.max_logit_rows * (config.vocab_size + ranks * kSummaryFloats) : 0;
  return sizes;
}

Result<void> check_devices(int ranks, int devices) {
  if (ranks <= devices) return {};
  return Error{ErrorCode::kFailedPrecondition,
               fmt::format("--tensor-parallel: must be at most {}, the number of visible GPUs, with --backend cuda (got {})",
                           devices, ranks)};
}

Result<void> check_cuda_model(const ModelConfig& config) {
  for (const auto& [name, found, most] : {std::tuple("num_experts", config.experts, kMaxExperts),
                                          std::tuple("num_experts_per_tok", config.experts_per_token, kMaxExpertsPerToken)}) {
    if (found <= most) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must be at most {} with --backend cuda (got {})", name, most, found)};
  }
  if (config.head_dim > kMaxHeadDim) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("head_dim: must be at most {} with --backend cuda (got {})", kMaxHeadDim, config.head_dim)};
  }
  constexpr std::int64_t kMaxTokens = std::int64_t{kMaxSummarySegments} * kSummarySegment;
  if (config.vocab_size > kMaxTokens) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("vocab_size: must be at most {} with --backend cuda (got {})", kMaxTokens, config.vocab_size)};
  }
  return {};
}

}  // namespace windlass::worker::cuda
