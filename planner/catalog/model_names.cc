// The models known by name. Each entry holds the fields of the published config.json that define the shape, and is read by the
// same code as a user's file. Tests compare every entry with the parameter count of the published checkpoint.
//
// opt-175b was published without a config.json; its sizes are from Table 1 of "OPT: Open Pre-trained Transformer Language
// Models" (2022). mistral-7b is version 0.2, without a sliding window. The multi-token prediction module of deepseek-v3 (14B
// more) is not served.
#include <array>
#include <cassert>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/catalog/model_shape.h"

namespace windlass::planner {
namespace {

struct NamedModel {
  const char* name;
  const char* config;
};

constexpr std::array<NamedModel, 23> kModels = {{
    {"llama2-7b", R"({"model_type": "llama", "torch_dtype": "float16", "num_hidden_layers": 32, "hidden_size": 4096,
      "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000, "max_position_embeddings": 4096})"},
    {"llama2-13b", R"({"model_type": "llama", "torch_dtype": "float16", "num_hidden_layers": 40, "hidden_size": 5120,
      "num_attention_heads": 40, "intermediate_size": 13824, "vocab_size": 32000, "max_position_embeddings": 4096})"},
    {"llama2-70b", R"({"model_type": "llama", "torch_dtype": "float16", "num_hidden_layers": 80, "hidden_size": 8192,
      "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 32000,
      "max_position_embeddings": 4096})"},
    {"llama3-8b", R"({"model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 32, "hidden_size": 4096,
      "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
      "max_position_embeddings": 8192})"},
    {"llama3-70b", R"({"model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 80, "hidden_size": 8192,
      "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256,
      "max_position_embeddings": 8192})"},
    {"llama3.1-8b", R"({"model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 32, "hidden_size": 4096,
      "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
      "max_position_embeddings": 131072})"},
    {"llama3.1-70b", R"({"model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 80, "hidden_size": 8192,
      "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256,
      "max_position_embeddings": 131072})"},
    {"llama3.1-405b", R"({"model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 126, "hidden_size": 16384,
      "num_attention_heads": 128, "num_key_value_heads": 8, "intermediate_size": 53248, "vocab_size": 128256,
      "max_position_embeddings": 131072})"},
    {"mistral-7b", R"({"model_type": "mistral", "torch_dtype": "bfloat16", "num_hidden_layers": 32, "hidden_size": 4096,
      "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
      "max_position_embeddings": 32768, "sliding_window": null})"},
    {"mixtral-8x7b", R"({"model_type": "mixtral", "torch_dtype": "bfloat16", "num_hidden_layers": 32, "hidden_size": 4096,
      "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
      "max_position_embeddings": 32768, "sliding_window": null, "num_local_experts": 8, "num_experts_per_tok": 2})"},
    {"qwen2.5-7b", R"({"model_type": "qwen2", "torch_dtype": "bfloat16", "num_hidden_layers": 28, "hidden_size": 3584,
      "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064,
      "max_position_embeddings": 32768})"},
    {"qwen2.5-32b", R"({"model_type": "qwen2", "torch_dtype": "bfloat16", "num_hidden_layers": 64, "hidden_size": 5120,
      "num_attention_heads": 40, "num_key_value_heads": 8, "intermediate_size": 27648, "vocab_size": 152064,
      "max_position_embeddings": 32768})"},
    {"qwen2.5-72b", R"({"model_type": "qwen2", "torch_dtype": "bfloat16", "num_hidden_layers": 80, "hidden_size": 8192,
      "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 29568, "vocab_size": 152064,
      "max_position_embeddings": 32768})"},
    {"qwen3-8b", R"({"model_type": "qwen3", "torch_dtype": "bfloat16", "num_hidden_layers": 36, "hidden_size": 4096,
      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
      "max_position_embeddings": 40960})"},
    {"qwen3-32b", R"({"model_type": "qwen3", "torch_dtype": "bfloat16", "num_hidden_layers": 64, "hidden_size": 5120,
      "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 25600, "vocab_size": 151936,
      "max_position_embeddings": 40960})"},
    {"codellama-34b", R"({"model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 48, "hidden_size": 8192,
      "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 22016, "vocab_size": 32000,
      "max_position_embeddings": 16384})"},
    {"opt-13b", R"({"model_type": "opt", "torch_dtype": "float16", "num_hidden_layers": 40, "hidden_size": 5120,
      "num_attention_heads": 40, "ffn_dim": 20480, "vocab_size": 50272, "max_position_embeddings": 2048})"},
    {"opt-30b", R"({"model_type": "opt", "torch_dtype": "float16", "num_hidden_layers": 48, "hidden_size": 7168,
      "num_attention_heads": 56, "ffn_dim": 28672, "vocab_size": 50272, "max_position_embeddings": 2048})"},
    {"opt-66b", R"({"model_type": "opt", "torch_dtype": "float16", "num_hidden_layers": 64, "hidden_size": 9216,
      "num_attention_heads": 72, "ffn_dim": 36864, "vocab_size": 50272, "max_position_embeddings": 2048})"},
    {"opt-175b", R"({"model_type": "opt", "torch_dtype": "float16", "num_hidden_layers": 96, "hidden_size": 12288,
      "num_attention_heads": 96, "ffn_dim": 49152, "vocab_size": 50272, "max_position_embeddings": 2048})"},
    {"bloom-176b", R"({"model_type": "bloom", "torch_dtype": "bfloat16", "n_layer": 70, "hidden_size": 14336, "n_head": 112,
      "vocab_size": 250880, "seq_length": 2048})"},
    {"deepseek-v3", R"({"model_type": "deepseek_v3", "torch_dtype": "bfloat16", "num_hidden_layers": 61, "hidden_size": 7168,
      "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
      "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
      "vocab_size": 129280, "max_position_embeddings": 163840,
      "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                              "weight_block_size": [128, 128]}})"},
    // The default model of `windlass-worker model init`.
    {"windlass-tiny", R"({"model_type": "llama", "torch_dtype": "float32", "num_hidden_layers": 4, "hidden_size": 256,
      "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 688, "vocab_size": 512,
      "max_position_embeddings": 2048})"},
}};

}  // namespace

std::vector<std::string> model_shape_names() {
  std::vector<std::string> names;
  for (const NamedModel& each : kModels) names.emplace_back(each.name);
  return names;
}

Result<ModelShape> model_shape_by_name(std::string_view name) {
  // Parsed once, because a controller asks for the shape of each service at every step.
  static const std::map<std::string_view, ModelShape> shapes = [] {
    std::map<std::string_view, ModelShape> all;
    for (const NamedModel& each : kModels) {
      Result<ModelShape> shape = model_shape_from_config_json(each.config);
      assert(shape.ok());
      all.emplace(each.name, *std::move(shape));
    }
    return all;
  }();
  if (const auto found = shapes.find(name); found != shapes.end()) return found->second;
  return Error{ErrorCode::kNotFound,
               fmt::format("model architecture: must be one of {} (got '{}')", fmt::join(model_shape_names(), ", "), name)};
}

}  // namespace windlass::planner
