// Validates config.json field by field and collects all errors, so that a user can fix a file in one go.
#include "worker/model/config.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/shown_json.h"
#include "worker/model/files.h"
#include "worker/model/gguf_model.h"
#include "worker/model/json_input.h"

namespace windlass::worker {
namespace {

using nlohmann::json;

// Reads fields of one JSON object and collects their errors.
class FieldReader {
 public:
  explicit FieldReader(const json& object, std::string prefix = "") : object_(object), prefix_(std::move(prefix)) {}

  [[nodiscard]] bool has(const char* field) const { return object_.contains(field) && !object_.at(field).is_null(); }

  std::int64_t whole(const char* field, std::int64_t low, std::int64_t high) {
    const std::string allowed = fmt::format("a whole number from {} to {}", low, high);
    if (!has(field)) return missing(field, allowed), low;
    const json& value = object_.at(field);
    if (!value.is_number_integer() && !value.is_number_unsigned()) return bad(field, value, allowed), low;
    const auto number =
        value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX ? INT64_MAX : value.get<std::int64_t>();
    if (number < low || number > high) return bad(field, value, allowed), low;
    return number;
  }

  double number(const char* field, double above, double below) {
    const std::string allowed = fmt::format("a number above {} and below {}", above, below);
    if (!has(field)) return missing(field, allowed), 1.0;
    const json& value = object_.at(field);
    if (!value.is_number()) return bad(field, value, allowed), 1.0;
    const auto number = value.get<double>();
    if (!(number > above) || !(number < below)) return bad(field, value, allowed), 1.0;
    return number;
  }

  // Nothing if it is absent.
  std::optional<double> number_within(const char* field, double low, double high) {
    if (!has(field)) return std::nullopt;
    const json& value = object_.at(field);
    if (value.is_number() && value.get<double>() >= low && value.get<double>() <= high) return value.get<double>();
    bad(field, value, fmt::format("a number from {} to {}", low, high));
    return std::nullopt;
  }

  bool boolean(const char* field, bool fallback) {
    if (!has(field)) return fallback;
    if (!object_.at(field).is_boolean()) return bad(field, object_.at(field), "true or false"), fallback;
    return object_.at(field).get<bool>();
  }

  // A field that must have this value or be absent, because nothing else is supported.
  void only(const char* field, const json& allowed) {
    if (has(field) && object_.at(field) != allowed) bad(field, object_.at(field), shown(allowed));
  }

  std::vector<std::int32_t> ids(const char* field) {
    std::vector<std::int32_t> out;
    if (!has(field)) return out;
    const json& value = object_.at(field);
    const json list = value.is_array() ? value : json::array({value});
    for (const json& id : list) {
      if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > INT32_MAX) {
        bad(field, value, "a token id or a list of token ids");
        return {};
      }
      out.push_back(id.get<std::int32_t>());
    }
    return out;
  }

  void missing(const char* field, const std::string& allowed) {
    complaints_.push_back(fmt::format("field '{}{}': must be {} (got nothing)", prefix_, field, allowed));
  }
  void bad(const char* field, const json& value, const std::string& allowed) {
    complaints_.push_back(fmt::format("field '{}{}': must be {} (got {})", prefix_, field, allowed, shown(value)));
  }
  void complain(std::string text) { complaints_.push_back(std::move(text)); }
  void take(FieldReader& other) { complaints_.insert(complaints_.end(), other.complaints_.begin(), other.complaints_.end()); }
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  const json& object_;
  std::string prefix_;
  std::vector<std::string> complaints_;
};

Result<json> parse_object(std::string_view text, const std::string& file) {
  auto value = parse_json(text);
  if (!value.ok()) return value.error().within(file);
  if (!value->is_object())
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be a JSON object (got {})", file, value->type_name())};
  return value;
}

// rope_scaling (transformers 4) or rope_parameters (transformers 5, which also contains rope_theta).
void read_rope(FieldReader& fields, const json& root, ModelConfig& config) {
  if (fields.has("rope_theta")) config.rope_theta = fields.number("rope_theta", 0, 1e12);
  const char* name = fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!fields.has(name)) return;
  const json& object = root.at(name);
  if (!object.is_object()) return fields.bad(name, object, "an object");
  FieldReader rope(object, std::string(name) + ".");
  if (rope.has("rope_theta")) config.rope_theta = rope.number("rope_theta", 0, 1e12);
  const char* kind_field = rope.has("rope_type") ? "rope_type" : "type";
  const json kind = rope.has(kind_field) ? object.at(kind_field) : json("default");
  if (kind == "linear") {
    config.rope_scaling.kind = RopeScaling::Kind::kLinear;
    config.rope_scaling.factor = rope.number("factor", 0, 1e6);
  } else if (kind == "llama3") {
    config.rope_scaling.kind = RopeScaling::Kind::kLlama3;
    config.rope_scaling.factor = rope.number("factor", 0, 1e6);
    config.rope_scaling.low_freq_factor = rope.number("low_freq_factor", 0, 1e6);
    config.rope_scaling.high_freq_factor = rope.number("high_freq_factor", 0, 1e6);
    config.rope_scaling.original_max_tokens = rope.number("original_max_position_embeddings", 0, 1e9);
    if (config.rope_scaling.high_freq_factor <= config.rope_scaling.low_freq_factor && rope.complaints().empty()) {
      rope.bad("high_freq_factor", object.at("high_freq_factor"), "a number above low_freq_factor");
    }
  } else if (kind != "default") {
    rope.bad(kind_field, kind, "\"default\", \"linear\" or \"llama3\"");
  }
  fields.take(rope);
}

struct KnownArchitecture {
  Architecture architecture;
  const char* model_type;
  const char* class_name;  // in transformers
};
constexpr KnownArchitecture kArchitectures[] = {{Architecture::kLlama, "llama", "LlamaForCausalLM"},
                                                {Architecture::kMistral, "mistral", "MistralForCausalLM"},
                                                {Architecture::kQwen2, "qwen2", "Qwen2ForCausalLM"},
                                                {Architecture::kQwen3, "qwen3", "Qwen3ForCausalLM"},
                                                {Architecture::kMixtral, "mixtral", "MixtralForCausalLM"},
                                                {Architecture::kQwen3Moe, "qwen3_moe", "Qwen3MoeForCausalLM"},
                                                {Architecture::kOpt, "opt", "OPTForCausalLM"}};

const KnownArchitecture& known(Architecture architecture) {
  return *std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                       [&](const KnownArchitecture& each) { return each.architecture == architecture; });
}

// From `architectures`, or from model_type if that is missing; both must agree.
Architecture read_architecture(FieldReader& fields, const json& root) {
  std::string types, classes;
  for (const KnownArchitecture& known : kArchitectures) {
    types += fmt::format("{}\"{}\"", types.empty() ? "" : ", ", known.model_type);
    classes += fmt::format("{}[\"{}\"]", classes.empty() ? "" : ", ", known.class_name);
  }
  const KnownArchitecture* found = nullptr;
  if (fields.has("architectures")) {
    const json& names = root.at("architectures");
    for (const KnownArchitecture& known : kArchitectures) {
      if (names.is_array() && names.size() == 1 && names.at(0) == known.class_name) found = &known;
    }
    if (found == nullptr) {
      fields.bad("architectures", names, classes);
    } else {
      fields.only("model_type", found->model_type);
    }
  } else if (fields.has("model_type")) {
    for (const KnownArchitecture& known : kArchitectures) {
      if (root.at("model_type") == known.model_type) found = &known;
    }
    if (found == nullptr) fields.bad("model_type", root.at("model_type"), types);
  } else {
    fields.missing("model_type", types);
  }
  if (fields.has("quantization_config")) {
    fields.bad("quantization_config", root.at("quantization_config"), "absent: weights must be F32, F16 or BF16");
  }
  return found == nullptr ? Architecture::kLlama : found->architecture;
}

void read_attention(FieldReader& fields, ModelConfig& config) {
  switch (config.architecture) {
    case Architecture::kQwen2:
      // Always on queries, keys and values, never on the output; no field says so.
      config.qkv_bias = true;
      return;
    case Architecture::kQwen3:
    case Architecture::kQwen3Moe: config.qk_norm = true; [[fallthrough]];
    case Architecture::kLlama: config.qkv_bias = config.attention_out_bias = fields.boolean("attention_bias", false); return;
    case Architecture::kMistral:
    case Architecture::kMixtral:
    case Architecture::kOpt: return;
  }
}

// Mistral and Mixtral: on every layer. Qwen: only if enabled, and then on layers from max_window_layers on, unless layer_types
// lists them; Qwen3-MoE: on every layer.
void read_windows(FieldReader& fields, const json& root, ModelConfig& config) {
  if (config.architecture == Architecture::kLlama || !fields.has("sliding_window")) return;
  const bool qwen = config.architecture != Architecture::kMistral && config.architecture != Architecture::kMixtral;
  if (qwen && !fields.boolean("use_sliding_window", false)) return;
  const std::int64_t window = fields.whole("sliding_window", 1, 1 << 28);
  config.windows.assign(static_cast<std::size_t>(config.layers), window);
  if (!qwen || config.architecture == Architecture::kQwen3Moe) return;
  if (fields.has("layer_types")) {
    const json& types = root.at("layer_types");
    bool known = types.is_array() && types.size() == config.windows.size();
    for (std::size_t i = 0; known && i < types.size(); ++i) {
      known = types[i] == "full_attention" || types[i] == "sliding_attention";
      if (types[i] == "full_attention") config.windows[i] = 0;
    }
    if (!known) {
      fields.bad("layer_types", types,
                 fmt::format("a list of {} times \"full_attention\" or \"sliding_attention\"", config.layers));
    }
    return;
  }
  const std::int64_t from = fields.whole("max_window_layers", 0, 1 << 14);
  std::fill_n(config.windows.begin(), std::min(from, config.layers), 0);
}

// Qwen3-MoE: experts in every decoder_sparse_step-th layer, except mlp_only_layers.
void read_dense_layers(FieldReader& fields, const json& root, ModelConfig& config) {
  const std::int64_t step = fields.has("decoder_sparse_step") ? fields.whole("decoder_sparse_step", 1, 1 << 14) : 1;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) config.dense_mlp.push_back((layer + 1) % step != 0);
  if (!fields.has("mlp_only_layers")) return;
  const json& list = root.at("mlp_only_layers");
  bool known = list.is_array();
  for (std::size_t i = 0; known && i < list.size(); ++i) {
    known = list[i].is_number_unsigned() && list[i].get<std::uint64_t>() < config.dense_mlp.size();
    if (known) config.dense_mlp[list[i].get<std::size_t>()] = true;
  }
  if (!known) fields.bad("mlp_only_layers", list, fmt::format("a list of layers from 0 to {}", config.layers - 1));
}

void read_experts(FieldReader& fields, const json& root, ModelConfig& config) {
  const bool qwen = config.architecture == Architecture::kQwen3Moe;
  // transformers 5 uses one name for both.
  const char* count = qwen && !fields.has("num_local_experts") ? "num_experts" : "num_local_experts";
  config.experts = fields.whole(count, 1, 1 << 14);
  config.experts_per_token = fields.whole("num_experts_per_tok", 1, 1 << 14);
  if (config.experts_per_token > config.experts) {
    fields.complain(fmt::format("field 'num_experts_per_tok': must be at most {}, which is {} (got {})", count, config.experts,
                                config.experts_per_token));
  }
  if (!qwen) {
    config.expert_intermediate_size = config.intermediate_size;
    config.normalise_expert_weights = true;
    return;
  }
  config.expert_intermediate_size = fields.whole("moe_intermediate_size", 1, 1 << 22);
  config.normalise_expert_weights = fields.boolean("norm_topk_prob", false);
  read_dense_layers(fields, root, config);
}

void read_head_dim(FieldReader& fields, ModelConfig& config) {
  if (fields.has("head_dim") && config.architecture != Architecture::kOpt) {
    config.head_dim = fields.whole("head_dim", 2, 1 << 16);
  } else if (config.architecture == Architecture::kQwen3) {
    config.head_dim = 128;  // transformers' default, whatever hidden_size is
  } else if (config.hidden_size % config.heads == 0) {
    config.head_dim = config.hidden_size / config.heads;
  } else {
    fields.complain(fmt::format("field 'num_attention_heads': must divide hidden_size, which is {}{} (got {})",
                                config.hidden_size,
                                config.architecture == Architecture::kOpt ? "" : ", if head_dim is not given", config.heads));
  }
}

void read_llama_family(FieldReader& fields, const json& root, ModelConfig& config) {
  fields.only("hidden_act", "silu");
  fields.only("mlp_bias", false);
  fields.only("pretraining_tp", 1);
  config.intermediate_size = fields.whole("intermediate_size", 1, 1 << 22);
  config.norm_eps = fields.number("rms_norm_eps", 0, 1);
  config.kv_heads = fields.has("num_key_value_heads") ? fields.whole("num_key_value_heads", 1, 1 << 14) : config.heads;
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  if (config.architecture == Architecture::kMixtral) config.rope_theta = 1e6;  // default if no field gives it
  read_rope(fields, root, config);
  read_attention(fields, config);
  read_windows(fields, root, config);
  if (has_experts(config.architecture)) read_experts(fields, root, config);
}

// Among the published models, only OPT-350M has norms after each part and an embedding narrower than its layers.
void read_opt(FieldReader& fields, ModelConfig& config) {
  fields.only("activation_function", "relu");
  fields.only("_remove_final_layer_norm", false);
  fields.only("enable_bias", true);
  fields.only("layer_norm_elementwise_affine", true);
  config.norm_after = !fields.boolean("do_layer_norm_before", true);
  if (fields.has("word_embed_proj_dim")) {
    const std::int64_t width = fields.whole("word_embed_proj_dim", 1, 1 << 20);
    if (width != config.hidden_size) config.embedding_size = width;
  }
  config.intermediate_size = fields.whole("ffn_dim", 1, 1 << 22);
  config.kv_heads = config.heads;
  config.norm = Norm::kLayer;
  config.norm_eps = 1e-5;  // PyTorch's default; no field gives it
  config.positions = Positions::kLearned;
  config.activation = Activation::kRelu;
  config.qkv_bias = config.attention_out_bias = config.mlp_bias = true;
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
}

}  // namespace

std::string to_string(BlockRange blocks) { return fmt::format("{}:{}", blocks.first, blocks.end); }

const char* to_string(Architecture architecture) { return known(architecture).model_type; }
const char* class_name(Architecture architecture) { return known(architecture).class_name; }
bool has_experts(Architecture architecture) {
  return architecture == Architecture::kMixtral || architecture == Architecture::kQwen3Moe;
}

Result<Architecture> architecture_from_string(std::string_view name) {
  std::string allowed;
  for (const KnownArchitecture& each : kArchitectures) {
    if (name == each.model_type) return each.architecture;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", each.model_type);
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("must be one of {} (got '{}')", allowed, name)};
}

Result<ModelConfig> parse_model_config(std::string_view text, const std::string& file) {
  WINDLASS_ASSIGN_OR_RETURN(const json root, parse_object(text, file));
  FieldReader fields(root);
  ModelConfig config;
  config.architecture = read_architecture(fields, root);
  config.hidden_size = fields.whole("hidden_size", 1, 1 << 20);
  config.layers = fields.whole("num_hidden_layers", 1, 1 << 14);
  config.heads = fields.whole("num_attention_heads", 1, 1 << 14);
  config.vocab_size = fields.whole("vocab_size", 1, 1 << 24);
  config.max_context_tokens = fields.whole("max_position_embeddings", 1, 1 << 28);
  config.eos_token_ids = fields.ids("eos_token_id");
  if (config.architecture == Architecture::kOpt) {
    read_opt(fields, config);
  } else {
    read_llama_family(fields, root, config);
  }
  read_head_dim(fields, config);
  if (fields.complaints().empty()) {
    if (config.heads % config.kv_heads != 0) {
      fields.complain(fmt::format("field 'num_key_value_heads': must divide num_attention_heads, which is {} (got {})",
                                  config.heads, config.kv_heads));
    }
    if (config.head_dim % 2 != 0) {
      fields.complain(fmt::format("field 'head_dim': must be even (got {})", config.head_dim));
    }
    for (const std::int32_t id : config.eos_token_ids) {
      if (id >= config.vocab_size) {
        fields.complain(
            fmt::format("field 'eos_token_id': must be below vocab_size, which is {} (got {})", config.vocab_size, id));
      }
    }
  }
  if (!fields.complaints().empty()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, fmt::join(fields.complaints(), "; "))};
  }
  return config;
}

Result<GenerationConfig> parse_generation_config(std::string_view text, const std::string& file) {
  WINDLASS_ASSIGN_OR_RETURN(const json root, parse_object(text, file));
  FieldReader fields(root);
  GenerationConfig config;
  config.eos_token_ids = fields.ids("eos_token_id");
  config.sampling.temperature = fields.number_within("temperature", 0, 2);
  config.sampling.top_p = fields.number_within("top_p", 1e-9, 1);
  config.sampling.min_p = fields.number_within("min_p", 0, 1);
  config.sampling.repetition_penalty = fields.number_within("repetition_penalty", 1e-9, 100);
  if (fields.has("top_k")) config.sampling.top_k = std::max<std::int64_t>(0, fields.whole("top_k", -1, INT32_MAX));
  if (!fields.complaints().empty()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, fmt::join(fields.complaints(), "; "))};
  }
  return config;
}

Result<ModelConfig> load_model_config(const std::filesystem::path& folder) {
  WINDLASS_ASSIGN_OR_RETURN(const auto parts, gguf_files_of(folder));
  if (!parts.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(const GgufModel model, GgufModel::open(parts));
    return model_config_of(model.gguf);
  }
  std::error_code failure;
  if (!std::filesystem::is_directory(folder, failure)) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: no such model; it must be a GGUF file, or a folder with config.json, "
                                                   "model.safetensors and tokenizer.json",
                                                   folder.string())};
  }
  const auto config_path = folder / "config.json";
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text_file(config_path));
  WINDLASS_ASSIGN_OR_RETURN(ModelConfig config, parse_model_config(text, config_path.string()));
  const auto generation_path = folder / "generation_config.json";
  if (std::filesystem::exists(generation_path, failure)) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string generation, read_text_file(generation_path));
    WINDLASS_ASSIGN_OR_RETURN(GenerationConfig given, parse_generation_config(generation, generation_path.string()));
    for (const std::int32_t id : given.eos_token_ids) {
      if (id >= config.vocab_size) {
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("{}: field 'eos_token_id': must be below vocab_size, which is {} (got {})",
                                 generation_path.string(), config.vocab_size, id)};
      }
    }
    if (!given.eos_token_ids.empty()) config.eos_token_ids = std::move(given.eos_token_ids);
    config.sampling = given.sampling;
  }
  return config;
}

}  // namespace windlass::worker
