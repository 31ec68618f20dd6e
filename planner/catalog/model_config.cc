// A model's shape from the text of a Hugging Face config.json. The file is foreign: fields that are not ours are ignored, those
// that are must be right, and whatever would make the arithmetic wrong (a quantised model, a mixture of experts) is refused by
// name.
#include <string>

#include <fmt/format.h>

#include "planner/base/json_reader.h"
#include "planner/catalog/model_shape.h"

namespace windlass::planner {
namespace {

using nlohmann::json;

constexpr int kLargest = 10'000'000;

int size_or(JsonReader& reader, const char* key, int fallback) {
  const json* value = reader.find(key);
  if (value == nullptr || value->is_null()) return fallback;
  return reader.int32(key, 1, kLargest);
}

bool flag_or(JsonReader& reader, const char* key, bool fallback) {
  const json* value = reader.find(key);
  if (value == nullptr || value->is_null()) return fallback;
  return reader.boolean(key);
}

DType read_dtype(JsonReader& reader) {
  // transformers 5 writes "dtype", its predecessors "torch_dtype"; a file with neither holds float32.
  for (const char* key : {"dtype", "torch_dtype"}) {
    const json* value = reader.find(key);
    if (value == nullptr || value->is_null()) continue;
    const Result<DType> dtype = value->is_string() ? dtype_from_string(value->get_ref<const std::string&>())
                                                   : Result<DType>(Error{ErrorCode::kInvalidArgument, ""});
    if (dtype.ok()) return *dtype;
    reader.fail(key, *value, "\"float32\", \"float16\", \"bfloat16\", \"float8\" or \"int8\"");
    break;
  }
  return DType::kFloat32;
}

}  // namespace

Result<ModelShape> model_shape_from_config_json(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const json document, parse_json(text, "config.json"));
  JsonReader reader(document, "");
  ModelShape shape;
  shape.architecture = reader.string("model_type");
  if (shape.architecture != "llama" && shape.architecture != "mistral" && shape.architecture != "qwen2") {
    reader.fail("model_type", shape.architecture, "\"llama\", \"mistral\" or \"qwen2\"");
  }
  shape.layers = reader.int32("num_hidden_layers", 1, kLargest);
  shape.hidden = reader.int32("hidden_size", 1, kLargest);
  shape.heads = reader.int32("num_attention_heads", 1, kLargest);
  shape.kv_heads = size_or(reader, "num_key_value_heads", shape.heads);
  if (const json* head_dim = reader.find("head_dim"); head_dim != nullptr && !head_dim->is_null()) {
    shape.head_dim = reader.int32("head_dim", 1, kLargest);
  } else if (shape.hidden % shape.heads == 0) {
    shape.head_dim = shape.hidden / shape.heads;
  } else {
    reader.fail("hidden_size", shape.hidden,
                fmt::format("a multiple of num_attention_heads ({}) where head_dim is not given", shape.heads));
  }
  shape.intermediate = reader.int32("intermediate_size", 1, kLargest);
  shape.vocab = reader.int32("vocab_size", 1, kLargest);
  shape.max_context_tokens = reader.int32("max_position_embeddings", 1, kLargest);
  shape.tied_embeddings = flag_or(reader, "tie_word_embeddings", false);
  shape.qkv_bias = shape.architecture == "qwen2" || flag_or(reader, "attention_bias", false);
  shape.dtype = read_dtype(reader);
  if (const json* quantised = reader.find("quantization_config"); quantised != nullptr && !quantised->is_null()) {
    reader.fail("quantization_config", *quantised, "absent: the weights' size would not follow from the shape");
  }
  if (Result<void> read = reader.first_mistake(); !read.ok()) return read.error().within("config.json");
  if (Result<void> valid = validate(shape); !valid.ok()) return valid.error().within("config.json");
  return shape;
}

}  // namespace windlass::planner
