// Helpers for tests: parse a config.json, and sizes of published models that the catalog does not know by name.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "planner/catalog/model_shape.h"

namespace windlass::planner::testing {

inline ModelShape parse(const std::string& config) {
  Result<ModelShape> shape = model_shape_from_config_json(config);
  EXPECT_TRUE(shape.ok()) << (shape.ok() ? "" : shape.error().message) << "\n" << config;
  return shape.value_or(ModelShape{});
}

// `text` with the first occurrence of `from` replaced.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// 2 layers, width 4, 2 heads of 2, 1 KV head, MLP 8, vocabulary 10, 16 bits: small enough to compute by hand. 388 weights, 328
// of them in matrix products.
inline ModelShape paper_shape() {
  ModelShape shape;
  shape.layers = 2;
  shape.hidden = 4;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 2;
  shape.intermediate = 8;
  shape.vocab = 10;
  shape.max_context_tokens = 100;
  shape.dtype = DType::kFloat16;
  return shape;
}

inline constexpr const char* kLlama = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
  "max_position_embeddings": 8192, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "rope_theta": 500000.0
})";

inline constexpr const char* kMistral01 = R"({"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": 4096,
  "max_position_embeddings": 32768, "torch_dtype": "bfloat16"})";

inline constexpr const char* kGemma2 = R"({"model_type": "gemma2", "head_dim": 256, "hidden_size": 3584,
  "intermediate_size": 14336, "max_position_embeddings": 8192, "num_attention_heads": 16, "num_hidden_layers": 42,
  "num_key_value_heads": 8, "sliding_window": 4096, "torch_dtype": "bfloat16", "vocab_size": 256000})";

inline constexpr const char* kQwen3Moe = R"({"model_type": "qwen3_moe", "attention_bias": false, "decoder_sparse_step": 1,
  "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960, "mlp_only_layers": [],
  "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
  "num_hidden_layers": 48, "num_key_value_heads": 4, "sliding_window": null, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 151936})";

inline constexpr const char* kDeepSeekV2Lite = R"({"model_type": "deepseek_v2", "attention_bias": false,
  "first_k_dense_replace": 1, "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512,
  "max_position_embeddings": 163840, "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_routed_experts": 64,
  "n_shared_experts": 2, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
  "num_key_value_heads": 16, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 102400})";

}  // namespace windlass::planner::testing
