// Reads a model's shape from a Hugging Face config.json. The file comes from outside: unknown fields are ignored, known fields
// must be valid, and anything that would make the arithmetic wrong is refused by name. A missing field takes the default of the
// architecture's configuration class in transformers.
#include <array>
#include <string>

#include <fmt/format.h>

#include "planner/base/json_reader.h"
#include "planner/catalog/model_shape.h"

namespace windlass::planner {
namespace {

using nlohmann::json;

constexpr int kLargest = 10'000'000;

int size_or(JsonReader& reader, const char* key, int fallback, int low = 1) {
  return reader.given(key) ? reader.int32(key, low, kLargest) : fallback;
}

// Reads a field that also has an older name; errors use the newer one.
int size_of(JsonReader& reader, const char* key, const char* older_key) {
  return reader.int32(!reader.given(key) && reader.given(older_key) ? older_key : key, 1, kLargest);
}

DType read_dtype(JsonReader& reader) {
  // transformers 5 writes "dtype", older versions "torch_dtype"; a file with neither holds float32.
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

void set_head_dim(JsonReader& reader, ModelShape& shape) {
  if (shape.heads > 0 && shape.hidden % shape.heads == 0) {
    shape.head_dim = shape.hidden / shape.heads;
  } else {
    reader.fail("hidden_size", shape.hidden, fmt::format("a multiple of num_attention_heads ({})", shape.heads));
  }
}

void read_head_dim(JsonReader& reader, ModelShape& shape) {
  if (reader.given("head_dim")) {
    shape.head_dim = reader.int32("head_dim", 1, kLargest);
  } else {
    set_head_dim(reader, shape);
  }
}

// Newer files list in layer_types which layers have the window; without that list, `layers` of them have it.
void read_window(JsonReader& reader, ModelShape& shape, int tokens, int layers) {
  if (reader.given("layer_types")) {
    layers = 0;
    int listed = 0;
    reader.list("layer_types", [&](const json& type, const std::string& path) {
      ++listed;
      if (type == "sliding_attention") {
        ++layers;
      } else if (type != "full_attention") {
        reader.take(Error{ErrorCode::kInvalidArgument,
                          fmt::format("{}: must be \"full_attention\" or \"sliding_attention\" (got {})", path, type.dump())});
      }
    });
    if (listed != shape.layers) {
      reader.fail("layer_types", listed, fmt::format("a list of num_hidden_layers ({}) entries", shape.layers));
    }
  }
  if (tokens > 0 && layers > 0) shape.sliding_window = SlidingWindow{tokens, layers};
}

// The fields shared by the Llama family and its relatives.
void read_llama_sizes(JsonReader& reader, ModelShape& shape) {
  shape.layers = reader.int32("num_hidden_layers", 1, kLargest);
  shape.hidden = reader.int32("hidden_size", 1, kLargest);
  shape.heads = reader.int32("num_attention_heads", 1, kLargest);
  shape.kv_heads = size_or(reader, "num_key_value_heads", shape.heads);
  shape.intermediate = reader.int32("intermediate_size", 1, kLargest);
  shape.vocab = reader.int32("vocab_size", 1, kLargest);
  shape.max_context_tokens = reader.int32("max_position_embeddings", 1, kLargest);
  shape.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
}

void read_llama(JsonReader& reader, ModelShape& shape) {
  read_llama_sizes(reader, shape);
  read_head_dim(reader, shape);
  shape.qkv_bias = shape.attention_output_bias = reader.boolean_or("attention_bias", false);
  shape.mlp_bias = reader.boolean_or("mlp_bias", false);
}

void read_mistral(JsonReader& reader, ModelShape& shape) {
  read_llama_sizes(reader, shape);
  read_head_dim(reader, shape);
  // A missing field means 4096. Files since version 0.2 say null, which means no window.
  read_window(reader, shape, reader.has("sliding_window") ? size_or(reader, "sliding_window", 0) : 4096, shape.layers);
}

void read_mixtral(JsonReader& reader, ModelShape& shape) {
  read_llama_sizes(reader, shape);
  read_head_dim(reader, shape);
  read_window(reader, shape, size_or(reader, "sliding_window", 0), shape.layers);
  shape.experts = MixtureOfExperts{.experts = size_or(reader, "num_local_experts", 8),
                                   .experts_per_token = size_or(reader, "num_experts_per_tok", 2),
                                   .intermediate = shape.intermediate,
                                   .layers = shape.layers};
}

void read_qwen_window(JsonReader& reader, ModelShape& shape) {
  if (!reader.boolean_or("use_sliding_window", false)) return;
  const int first = size_or(reader, "max_window_layers", 28, 0);
  read_window(reader, shape, size_or(reader, "sliding_window", 4096), std::max(0, shape.layers - first));
}

void read_qwen2(JsonReader& reader, ModelShape& shape) {
  read_llama_sizes(reader, shape);
  read_head_dim(reader, shape);
  read_qwen_window(reader, shape);
  shape.qkv_bias = true;
}

void read_qwen3(JsonReader& reader, ModelShape& shape) {
  read_llama_sizes(reader, shape);
  shape.head_dim = size_or(reader, "head_dim", 128);
  read_qwen_window(reader, shape);
  shape.qkv_bias = shape.attention_output_bias = reader.boolean_or("attention_bias", false);
  shape.qk_norm = true;
}

void read_qwen3_moe(JsonReader& reader, ModelShape& shape) {
  read_qwen3(reader, shape);
  MixtureOfExperts moe{.experts = reader.int32("num_experts", 1, kLargest),
                       .experts_per_token = reader.int32("num_experts_per_tok", 1, kLargest),
                       .intermediate = reader.int32("moe_intermediate_size", 1, kLargest)};
  // Every decoder_sparse_step-th layer has experts, except those listed in mlp_only_layers.
  const int step = size_or(reader, "decoder_sparse_step", 1);
  const json* dense = reader.find("mlp_only_layers");
  for (int layer = 0; layer < shape.layers; ++layer) {
    bool named = false;
    if (dense != nullptr && dense->is_array()) {
      for (const json& each : *dense) named = named || each == layer;
    }
    if (!named && (layer + 1) % step == 0) ++moe.layers;
  }
  if (moe.layers > 0) shape.experts = moe;
}

void read_gemma2(JsonReader& reader, ModelShape& shape) {
  read_llama_sizes(reader, shape);
  shape.head_dim = size_or(reader, "head_dim", 256);
  shape.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  shape.qkv_bias = shape.attention_output_bias = reader.boolean_or("attention_bias", false);
  shape.norms_per_layer = 4;  // before and after attention, before and after the MLP
  read_window(reader, shape, size_or(reader, "sliding_window", 4096), (shape.layers + 1) / 2);  // the first, third, ... layer
}

void read_phi3(JsonReader& reader, ModelShape& shape) {
  read_llama_sizes(reader, shape);
  read_head_dim(reader, shape);
  read_window(reader, shape, size_or(reader, "sliding_window", 0), shape.layers);
}

// LayerNorm with bias, biases everywhere, and an MLP without a gate: OPT, BLOOM, GPT-NeoX.
void set_gpt_style(ModelShape& shape) {
  shape.kv_heads = shape.heads;
  shape.gated_mlp = false;
  shape.norm_bias = true;
  shape.qkv_bias = shape.attention_output_bias = shape.mlp_bias = true;
}

void read_opt(JsonReader& reader, ModelShape& shape) {
  shape.layers = reader.int32("num_hidden_layers", 1, kLargest);
  shape.hidden = reader.int32("hidden_size", 1, kLargest);
  shape.heads = reader.int32("num_attention_heads", 1, kLargest);
  set_head_dim(reader, shape);
  set_gpt_style(shape);
  shape.intermediate = reader.int32("ffn_dim", 1, kLargest);
  shape.vocab = reader.int32("vocab_size", 1, kLargest);
  shape.max_context_tokens = reader.int32("max_position_embeddings", 1, kLargest);
  shape.position_rows = shape.max_context_tokens + 2;  // offset of OPTLearnedPositionalEmbedding
  shape.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  shape.qkv_bias = shape.attention_output_bias = shape.mlp_bias = reader.boolean_or("enable_bias", true);
  const int embedding = size_or(reader, "word_embed_proj_dim", shape.hidden);
  shape.embedding_dim = embedding == shape.hidden ? 0 : embedding;
  // With norms after the sums, the last layer already ends with one.
  if (!reader.boolean_or("do_layer_norm_before", true) || reader.boolean_or("_remove_final_layer_norm", false))
    shape.outer_norms = 0;
  if (!reader.boolean_or("layer_norm_elementwise_affine", true)) shape.norms_per_layer = shape.outer_norms = 0;
}

void read_bloom(JsonReader& reader, ModelShape& shape) {
  shape.layers = size_of(reader, "num_hidden_layers", "n_layer");
  shape.hidden = size_of(reader, "hidden_size", "n_embed");
  shape.heads = size_of(reader, "num_attention_heads", "n_head");
  set_head_dim(reader, shape);
  set_gpt_style(shape);
  shape.intermediate = shape.hidden <= kLargest / 4 ? 4 * shape.hidden : kLargest;
  shape.vocab = reader.int32("vocab_size", 1, kLargest);
  shape.max_context_tokens = size_or(reader, "seq_length", 2048);  // ALiBi has no position table; this is the trained length
  shape.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  shape.outer_norms = 2;
}

void read_gpt_neox(JsonReader& reader, ModelShape& shape) {
  read_llama_sizes(reader, shape);
  set_head_dim(reader, shape);
  set_gpt_style(shape);
  shape.qkv_bias = shape.attention_output_bias = reader.boolean_or("attention_bias", true);
  shape.parallel_attention = reader.boolean_or("use_parallel_residual", true);
}

void read_falcon(JsonReader& reader, ModelShape& shape) {
  shape.layers = size_of(reader, "num_hidden_layers", "n_layer");
  shape.hidden = reader.int32("hidden_size", 1, kLargest);
  shape.heads = size_of(reader, "num_attention_heads", "n_head");
  set_head_dim(reader, shape);
  const bool new_decoder = reader.boolean_or("new_decoder_architecture", false);
  if (new_decoder) {
    shape.kv_heads = reader.given("n_head_kv") ? size_or(reader, "n_head_kv", 1) : size_or(reader, "num_kv_heads", shape.heads);
  } else {
    shape.kv_heads = reader.boolean_or("multi_query", true) ? 1 : shape.heads;
  }
  shape.gated_mlp = false;
  shape.norm_bias = true;
  shape.intermediate = size_or(reader, "ffn_hidden_size", shape.hidden <= kLargest / 4 ? 4 * shape.hidden : kLargest);
  shape.vocab = reader.int32("vocab_size", 1, kLargest);
  shape.max_context_tokens = size_or(reader, "max_position_embeddings", 2048);
  shape.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  shape.qkv_bias = shape.attention_output_bias = shape.mlp_bias = reader.boolean_or("bias", false);
  shape.parallel_attention = new_decoder || reader.boolean_or("parallel_attn", true);
  shape.norms_per_layer = new_decoder ? size_or(reader, "num_ln_in_parallel_attn", 2) : shape.parallel_attention ? 1 : 2;
}

void read_deepseek(JsonReader& reader, ModelShape& shape) {
  read_llama_sizes(reader, shape);
  if (reader.boolean_or("attention_bias", false)) reader.fail("attention_bias", true, "false");
  LatentAttention latent{.kv_rank = reader.int32("kv_lora_rank", 1, kLargest),
                         .query_rank = size_or(reader, "q_lora_rank", 0),
                         .nope_head_dim = reader.int32("qk_nope_head_dim", 1, kLargest),
                         .rope_head_dim = reader.int32("qk_rope_head_dim", 1, kLargest),
                         .value_head_dim = reader.int32("v_head_dim", 1, kLargest)};
  shape.head_dim = latent.nope_head_dim + latent.rope_head_dim;
  shape.latent_attention = latent;
  if (!reader.given("n_routed_experts")) return;
  MixtureOfExperts moe{.experts = reader.int32("n_routed_experts", 1, kLargest),
                       .experts_per_token = reader.int32("num_experts_per_tok", 1, kLargest),
                       .intermediate = reader.int32("moe_intermediate_size", 1, kLargest)};
  const std::int64_t shared = static_cast<std::int64_t>(size_or(reader, "n_shared_experts", 0, 0)) * moe.intermediate;
  if (shared > kLargest) reader.fail("n_shared_experts", shared, fmt::format("at most {} wide together", kLargest));
  moe.shared_intermediate = static_cast<int>(std::min<std::int64_t>(shared, kLargest));
  moe.selection_bias = shape.architecture == "deepseek_v3";
  const int first = size_or(reader, "first_k_dense_replace", 0, 0);
  const int step = size_or(reader, "moe_layer_freq", 1);
  for (int layer = first; layer < shape.layers; ++layer) {
    if (layer % step == 0) ++moe.layers;
  }
  if (moe.layers > 0) shape.experts = moe;
}

struct Architecture {
  const char* model_type;
  void (*read)(JsonReader& reader, ModelShape& shape);
};

constexpr std::array<Architecture, 14> kArchitectures = {{
    {"llama", read_llama},
    {"mistral", read_mistral},
    {"mixtral", read_mixtral},
    {"qwen2", read_qwen2},
    {"qwen3", read_qwen3},
    {"qwen3_moe", read_qwen3_moe},
    {"gemma2", read_gemma2},
    {"phi3", read_phi3},
    {"opt", read_opt},
    {"bloom", read_bloom},
    {"gpt_neox", read_gpt_neox},
    {"falcon", read_falcon},
    {"deepseek_v2", read_deepseek},
    {"deepseek_v3", read_deepseek},
}};

const Architecture* architecture_of(JsonReader& reader, const std::string& model_type) {
  std::string allowed;
  for (const Architecture& each : kArchitectures) {
    if (model_type == each.model_type) return &each;
    const char* separator = allowed.empty() ? "" : &each == &kArchitectures.back() ? " or " : ", ";
    allowed += fmt::format("{}\"{}\"", separator, each.model_type);
  }
  reader.fail("model_type", model_type, allowed);
  return nullptr;
}

}  // namespace

Result<ModelShape> model_shape_from_config_json(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const json document, parse_json(text, "config.json"));
  JsonReader reader(document, "");
  ModelShape shape;
  shape.architecture = reader.string("model_type");
  if (const Architecture* architecture = architecture_of(reader, shape.architecture)) architecture->read(reader, shape);
  shape.dtype = read_dtype(reader);
  if (reader.given("quantization_config")) {
    shape.quantisation =
        reader.unwrap(weight_quantisation_from_json(*reader.find("quantization_config"), "quantization_config"));
  }
  if (Result<void> read = reader.first_mistake(); !read.ok()) return read.error().within("config.json");
  if (Result<void> valid = validate(shape); !valid.ok()) return valid.error().within("config.json");
  return shape;
}

}  // namespace windlass::planner
