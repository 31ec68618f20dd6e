// What follows from a model's shape, and the architectures that are known by name.
#include "planner/catalog/model_shape.h"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace windlass::planner {
namespace {

struct Named {
  const char* name;
  ModelShape shape;
};

ModelShape make_shape(const char* architecture, int layers, int hidden, int heads, int kv_heads, int head_dim, int intermediate,
                      int vocab, int max_context_tokens) {
  ModelShape shape;
  shape.architecture = architecture;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.intermediate = intermediate;
  shape.vocab = vocab;
  shape.max_context_tokens = max_context_tokens;
  return shape;
}

ModelShape with_bias(ModelShape shape) {
  shape.qkv_bias = true;
  return shape;
}

// What `windlass-worker model init` makes by default.
ModelShape tiny() {
  ModelShape shape = make_shape("llama", 4, 256, 8, 4, 32, 688, 512, 2048);
  shape.dtype = DType::kFloat32;
  return shape;
}

// From the models' own config.json.
const std::array<Named, 8>& catalog() {
  static const std::array<Named, 8> kCatalog = {{
      {"llama2-7b", make_shape("llama", 32, 4096, 32, 32, 128, 11008, 32000, 4096)},
      {"llama2-13b", make_shape("llama", 40, 5120, 40, 40, 128, 13824, 32000, 4096)},
      {"llama2-70b", make_shape("llama", 80, 8192, 64, 8, 128, 28672, 32000, 4096)},
      {"llama3-8b", make_shape("llama", 32, 4096, 32, 8, 128, 14336, 128256, 8192)},
      {"llama3-70b", make_shape("llama", 80, 8192, 64, 8, 128, 28672, 128256, 8192)},
      {"mistral-7b", make_shape("mistral", 32, 4096, 32, 8, 128, 14336, 32000, 32768)},
      {"qwen2.5-7b", with_bias(make_shape("qwen2", 28, 3584, 28, 4, 128, 18944, 152064, 32768))},
      {"windlass-tiny", tiny()},
  }};
  return kCatalog;
}

std::int64_t attention_width(const ModelShape& shape) { return static_cast<std::int64_t>(shape.heads) * shape.head_dim; }
std::int64_t kv_width(const ModelShape& shape) { return static_cast<std::int64_t>(shape.kv_heads) * shape.head_dim; }
std::int64_t embedding_count(const ModelShape& shape) { return static_cast<std::int64_t>(shape.vocab) * shape.hidden; }

}  // namespace

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat16: return "float16";
    case DType::kBFloat16: return "bfloat16";
    case DType::kFloat8: return "float8";
    case DType::kInt8: return "int8";
  }
  return "unknown";
}

Result<DType> dtype_from_string(std::string_view text) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8, DType::kInt8}) {
    if (text == to_string(dtype)) return dtype;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("data type: found '{}', allowed are float32, float16, bfloat16, float8 and int8", text)};
}

int bytes_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 4;
    case DType::kFloat16:
    case DType::kBFloat16: return 2;
    case DType::kFloat8:
    case DType::kInt8: return 1;
  }
  return 0;
}

std::vector<std::string> model_shape_names() {
  std::vector<std::string> names;
  for (const Named& entry : catalog()) names.emplace_back(entry.name);
  return names;
}

Result<ModelShape> model_shape_by_name(std::string_view name) {
  for (const Named& entry : catalog()) {
    if (name == entry.name) return entry.shape;
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("model architecture: found '{}', allowed are {}", name, fmt::join(model_shape_names(), ", "))};
}

Result<void> validate(const ModelShape& shape) {
  // Far above any model of today, and small enough that no product below overflows 64 bits.
  constexpr int kLargest = 10'000'000;
  const std::pair<const char*, int> sizes[] = {
      {"num_hidden_layers", shape.layers},  {"hidden_size", shape.hidden},
      {"num_attention_heads", shape.heads}, {"num_key_value_heads", shape.kv_heads},
      {"head_dim", shape.head_dim},         {"intermediate_size", shape.intermediate},
      {"vocab_size", shape.vocab},          {"max_position_embeddings", shape.max_context_tokens}};
  for (const auto& [field, found] : sizes) {
    const int largest = std::string_view(field) == "num_hidden_layers" ? 10'000 : kLargest;
    if (found < 1 || found > largest) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("{}: found {}, must be from 1 to {}", field, found, largest)};
    }
  }
  if (shape.heads % shape.kv_heads != 0) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("num_key_value_heads: found {}, must divide num_attention_heads ({})",
                                                          shape.kv_heads, shape.heads)};
  }
  constexpr std::int64_t kWidest = 10'000'000;
  if (attention_width(shape) > kWidest) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("num_attention_heads x head_dim: found {} x {}, must be at most {}",
                                                          shape.heads, shape.head_dim, kWidest)};
  }
  return {};
}

std::int64_t parameter_count(const ModelShape& shape) {
  // The norms and biases are multiplied with no one, but they are weights.
  const std::int64_t norms = (2 * static_cast<std::int64_t>(shape.layers) + 1) * shape.hidden;
  const std::int64_t biases = shape.qkv_bias ? shape.layers * (attention_width(shape) + 2 * kv_width(shape)) : 0;
  return matmul_parameter_count(shape) + (shape.tied_embeddings ? 0 : embedding_count(shape)) + norms + biases;
}

std::int64_t matmul_parameter_count(const ModelShape& shape) {
  const std::int64_t attention = shape.hidden * (2 * attention_width(shape) + 2 * kv_width(shape));  // Q and O, K and V
  const std::int64_t mlp = 3 * static_cast<std::int64_t>(shape.hidden) * shape.intermediate;         // gate, up, down
  return shape.layers * (attention + mlp) + embedding_count(shape);  // and the output projection
}

double weight_bytes(const ModelShape& shape) { return static_cast<double>(parameter_count(shape)) * bytes_of(shape.dtype); }

double kv_bytes_per_token(const ModelShape& shape) {
  return 2.0 * shape.layers * static_cast<double>(kv_width(shape)) * bytes_of(shape.dtype);
}

double flops_per_token(const ModelShape& shape) { return 2.0 * static_cast<double>(matmul_parameter_count(shape)); }

double attention_flops_per_token(const ModelShape& shape, double context_tokens) {
  return 4.0 * shape.layers * static_cast<double>(attention_width(shape)) * context_tokens;
}

}  // namespace windlass::planner
