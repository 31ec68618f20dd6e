// Validates a model's shape.
#include "planner/catalog/model_shape.h"

#include <fmt/format.h>

namespace windlass::planner {
namespace {

// Far above any model of today, and small enough that no parameter count overflows 64 bits.
constexpr int kLargestSize = 10'000'000;
constexpr int kMaxLayers = 10'000;
constexpr int kLargestRank = 1'000'000;

Result<void> within(const char* field, std::int64_t found, std::int64_t low, std::int64_t high) {
  if (found >= low && found <= high) return {};
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be from {} to {} (got {})", field, low, high, found)};
}

Result<void> validate_latent(const ModelShape& shape, const LatentAttention& latent) {
  WINDLASS_RETURN_IF_ERROR(within("kv_lora_rank", latent.kv_rank, 1, kLargestRank));
  WINDLASS_RETURN_IF_ERROR(within("q_lora_rank", latent.query_rank, 0, kLargestRank));
  WINDLASS_RETURN_IF_ERROR(within("qk_nope_head_dim", latent.nope_head_dim, 1, kLargestRank));
  WINDLASS_RETURN_IF_ERROR(within("qk_rope_head_dim", latent.rope_head_dim, 1, kLargestRank));
  WINDLASS_RETURN_IF_ERROR(within("v_head_dim", latent.value_head_dim, 1, kLargestRank));
  if (shape.head_dim != latent.nope_head_dim + latent.rope_head_dim) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("head_dim: must be qk_nope_head_dim + qk_rope_head_dim, {} + {} (got {})", latent.nope_head_dim,
                             latent.rope_head_dim, shape.head_dim)};
  }
  const std::int64_t width = static_cast<std::int64_t>(shape.heads) * (latent.nope_head_dim + latent.value_head_dim);
  return within("num_attention_heads x (qk_nope_head_dim + v_head_dim)", width, 1, kLargestSize);
}

Result<void> validate_experts(const ModelShape& shape, const MixtureOfExperts& moe) {
  WINDLASS_RETURN_IF_ERROR(within("number of experts", moe.experts, 1, kLargestSize));
  WINDLASS_RETURN_IF_ERROR(within("num_experts_per_tok", moe.experts_per_token, 1, moe.experts));
  WINDLASS_RETURN_IF_ERROR(within("width of an expert", moe.intermediate, 1, kLargestSize));
  WINDLASS_RETURN_IF_ERROR(within("width of the shared experts", moe.shared_intermediate, 0, kLargestSize));
  WINDLASS_RETURN_IF_ERROR(within("layers with experts", moe.layers, 1, shape.layers));
  const std::int64_t width = static_cast<std::int64_t>(moe.experts) * moe.intermediate + moe.shared_intermediate;
  return within("width of all experts of a layer", width, 1, kLargestSize);
}

}  // namespace

Result<void> validate(const ModelShape& shape) {
  WINDLASS_RETURN_IF_ERROR(within("num_hidden_layers", shape.layers, 1, kMaxLayers));
  WINDLASS_RETURN_IF_ERROR(within("hidden_size", shape.hidden, 1, kLargestSize));
  WINDLASS_RETURN_IF_ERROR(within("num_attention_heads", shape.heads, 1, kLargestSize));
  WINDLASS_RETURN_IF_ERROR(within("num_key_value_heads", shape.kv_heads, 1, kLargestSize));
  WINDLASS_RETURN_IF_ERROR(within("head_dim", shape.head_dim, 1, kLargestSize));
  WINDLASS_RETURN_IF_ERROR(within("intermediate_size", shape.intermediate, 1, kLargestSize));
  WINDLASS_RETURN_IF_ERROR(within("vocab_size", shape.vocab, 1, kLargestSize));
  WINDLASS_RETURN_IF_ERROR(within("max_position_embeddings", shape.max_context_tokens, 1, kLargestSize));
  if (shape.heads % shape.kv_heads != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("num_key_value_heads: must divide num_attention_heads, {} (got {})", shape.heads, shape.kv_heads)};
  }
  if (static_cast<std::int64_t>(shape.heads) * shape.head_dim > kLargestSize) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("num_attention_heads x head_dim: must be at most {} (got {} x {})",
                                                          kLargestSize, shape.heads, shape.head_dim)};
  }
  WINDLASS_RETURN_IF_ERROR(within("norms of a layer", shape.norms_per_layer, 0, 16));
  WINDLASS_RETURN_IF_ERROR(within("norms outside the layers", shape.outer_norms, 0, 16));
  WINDLASS_RETURN_IF_ERROR(within("word_embed_proj_dim", shape.embedding_dim, 0, kLargestSize));
  WINDLASS_RETURN_IF_ERROR(within("rows of the position table", shape.position_rows, 0, kLargestSize + 2));
  if (shape.sliding_window) {
    WINDLASS_RETURN_IF_ERROR(within("sliding_window", shape.sliding_window->tokens, 1, kLargestSize));
    WINDLASS_RETURN_IF_ERROR(within("layers with a sliding window", shape.sliding_window->layers, 1, shape.layers));
  }
  if (shape.latent_attention) WINDLASS_RETURN_IF_ERROR(validate_latent(shape, *shape.latent_attention));
  if (shape.experts) WINDLASS_RETURN_IF_ERROR(validate_experts(shape, *shape.experts));
  if (shape.quantisation) WINDLASS_RETURN_IF_ERROR(validate(*shape.quantisation));
  return {};
}

}  // namespace windlass::planner
