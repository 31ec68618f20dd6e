// Field by field validation of config.json: every complaint is collected, so that a user mends a file once.
#include "worker/model/config.h"

#include <cmath>

#include <fmt/core.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "worker/model/files.h"

namespace windlass::worker {
namespace {

using nlohmann::json;

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

// Reads fields of one JSON object and remembers what was wrong with each.
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

  bool boolean(const char* field, bool fallback) {
    if (!has(field)) return fallback;
    if (!object_.at(field).is_boolean()) return bad(field, object_.at(field), "true or false"), fallback;
    return object_.at(field).get<bool>();
  }

  // A field that must hold this value or be absent: what we do not compute must not be asked for.
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
    complaints_.push_back(fmt::format("field '{}{}': missing, allowed is {}", prefix_, field, allowed));
  }
  void bad(const char* field, const json& value, const std::string& allowed) {
    complaints_.push_back(fmt::format("field '{}{}': found {}, allowed is {}", prefix_, field, shown(value), allowed));
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
  try {
    json value = json::parse(text);
    if (!value.is_object())
      return Error{ErrorCode::kInvalidArgument, fmt::format("{}: found {}, allowed is a JSON object", file, value.type_name())};
    return value;
  } catch (const json::exception& e) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: not JSON: {}", file, e.what())};
  }
}

// rope_scaling (transformers 4) or rope_parameters (transformers 5, which holds rope_theta too).
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

void read_architecture(FieldReader& fields, const json& root) {
  if (!fields.has("architectures") && !fields.has("model_type")) {
    fields.missing("model_type", "\"llama\"");
  } else if (fields.has("architectures")) {
    const json& found = root.at("architectures");
    if (!found.is_array() || found.size() != 1 || found.at(0) != "LlamaForCausalLM") {
      fields.bad("architectures", found, "[\"LlamaForCausalLM\"]");
    }
  }
  fields.only("model_type", "llama");
  fields.only("hidden_act", "silu");
  fields.only("attention_bias", false);
  fields.only("mlp_bias", false);
  fields.only("pretraining_tp", 1);
  if (fields.has("quantization_config")) {
    fields.bad("quantization_config", root.at("quantization_config"), "absence: weights are F32, F16 or BF16");
  }
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view text, const std::string& file) {
  WINDLASS_ASSIGN_OR_RETURN(const json root, parse_object(text, file));
  FieldReader fields(root);
  ModelConfig config;
  read_architecture(fields, root);
  config.hidden_size = fields.whole("hidden_size", 1, 1 << 20);
  config.layers = fields.whole("num_hidden_layers", 1, 1 << 14);
  config.heads = fields.whole("num_attention_heads", 1, 1 << 14);
  config.intermediate_size = fields.whole("intermediate_size", 1, 1 << 22);
  config.vocab_size = fields.whole("vocab_size", 1, 1 << 24);
  config.max_context_tokens = fields.whole("max_position_embeddings", 1, 1 << 28);
  config.rms_norm_eps = fields.number("rms_norm_eps", 0, 1);
  config.kv_heads = fields.has("num_key_value_heads") ? fields.whole("num_key_value_heads", 1, 1 << 14) : config.heads;
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  config.eos_token_ids = fields.ids("eos_token_id");
  read_rope(fields, root, config);

  if (fields.has("head_dim")) {
    config.head_dim = fields.whole("head_dim", 2, 1 << 16);
  } else if (config.hidden_size % config.heads == 0) {
    config.head_dim = config.hidden_size / config.heads;
  } else {
    fields.complain(fmt::format(
        "field 'num_attention_heads': found {}, allowed is a divisor of hidden_size ({}) where head_dim is not given",
        config.heads, config.hidden_size));
  }
  if (fields.complaints().empty()) {
    if (config.heads % config.kv_heads != 0) {
      fields.complain(fmt::format("field 'num_key_value_heads': found {}, allowed is a divisor of num_attention_heads ({})",
                                  config.kv_heads, config.heads));
    }
    if (config.head_dim % 2 != 0) {
      fields.complain(fmt::format("field 'head_dim': found {}, allowed is an even number (rotary embedding pairs dimensions)",
                                  config.head_dim));
    }
    for (const std::int32_t id : config.eos_token_ids) {
      if (id >= config.vocab_size) {
        fields.complain(fmt::format("field 'eos_token_id': found {}, allowed is below vocab_size ({})", id, config.vocab_size));
      }
    }
  }
  if (!fields.complaints().empty()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, fmt::join(fields.complaints(), "; "))};
  }
  return config;
}

Result<std::vector<std::int32_t>> parse_generation_eos(std::string_view text, const std::string& file) {
  WINDLASS_ASSIGN_OR_RETURN(const json root, parse_object(text, file));
  FieldReader fields(root);
  std::vector<std::int32_t> ids = fields.ids("eos_token_id");
  if (!fields.complaints().empty()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, fmt::join(fields.complaints(), "; "))};
  }
  return ids;
}

Result<ModelConfig> load_model_config(const std::filesystem::path& folder) {
  std::error_code failure;
  if (!std::filesystem::is_directory(folder, failure)) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: no such model folder; it must hold config.json, model.safetensors and "
                                                   "tokenizer.json",
                                                   folder.string())};
  }
  const auto config_path = folder / "config.json";
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text_file(config_path));
  WINDLASS_ASSIGN_OR_RETURN(ModelConfig config, parse_model_config(text, config_path.string()));
  const auto generation_path = folder / "generation_config.json";
  if (std::filesystem::exists(generation_path, failure)) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string generation, read_text_file(generation_path));
    WINDLASS_ASSIGN_OR_RETURN(auto ids, parse_generation_eos(generation, generation_path.string()));
    if (!ids.empty()) config.eos_token_ids = std::move(ids);
  }
  return config;
}

}  // namespace windlass::worker
