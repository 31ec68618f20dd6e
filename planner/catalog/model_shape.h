// ModelShape: what the planner must know of a model: its sizes, and what follows from them (parameters, bytes, FLOPs).
//
// It comes from a Hugging Face config.json of the Llama family (Llama, Mistral, Qwen2) or from a short list of well-known
// architectures by name. Plain data; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::planner {

// Of weights, activations and KV cache alike.
enum class DType { kFloat32, kFloat16, kBFloat16, kFloat8, kInt8 };

const char* to_string(DType dtype);  // "float32", "float16", "bfloat16", "float8", "int8"
[[nodiscard]] Result<DType> dtype_from_string(std::string_view text);
[[nodiscard]] int bytes_of(DType dtype);

struct ModelShape {
  std::string architecture;  // "llama", "mistral", "qwen2"
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int intermediate = 0;  // width of the gated MLP
  int vocab = 0;
  int max_context_tokens = 0;  // max_position_embeddings
  bool tied_embeddings = false;
  bool qkv_bias = false;  // Qwen2
  DType dtype = DType::kBFloat16;

  bool operator==(const ModelShape&) const = default;
};

// Parses the text of a config.json. The error names the field, what was found and what is allowed.
[[nodiscard]] Result<ModelShape> model_shape_from_config_json(std::string_view text);

// "llama3-8b", ...; the error lists the allowed names.
[[nodiscard]] Result<ModelShape> model_shape_by_name(std::string_view name);
[[nodiscard]] std::vector<std::string> model_shape_names();

// All sizes positive, heads divisible by kv_heads.
[[nodiscard]] Result<void> validate(const ModelShape& shape);

// All weights, embeddings included.
[[nodiscard]] std::int64_t parameter_count(const ModelShape& shape);
// Weights that every token is multiplied with: all but the input embedding's table (with tied embeddings that table is also the
// output projection, and counts).
[[nodiscard]] std::int64_t matmul_parameter_count(const ModelShape& shape);
[[nodiscard]] double weight_bytes(const ModelShape& shape);
// Keys and values of one token over all layers, unsharded.
[[nodiscard]] double kv_bytes_per_token(const ModelShape& shape);
// Matrix products of one token, without attention: 2 FLOP a weight.
[[nodiscard]] double flops_per_token(const ModelShape& shape);
// Scores and values of one token that attends to `context_tokens` others, over all layers.
[[nodiscard]] double attention_flops_per_token(const ModelShape& shape, double context_tokens);

}  // namespace windlass::planner
