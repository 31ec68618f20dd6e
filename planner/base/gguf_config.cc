// Maps the fields of a GGUF file to the fields of config.json with the same meaning.
#include "planner/base/gguf_config.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/foreign_text.h"

namespace windlass {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargest = 1 << 28;

struct KnownArchitecture {
  const char* gguf;
  const char* model_type;
  const char* class_name;
};
constexpr KnownArchitecture kLlama{"llama", "llama", "LlamaForCausalLM"};
constexpr KnownArchitecture kMixtral{"llama", "mixtral", "MixtralForCausalLM"};
constexpr KnownArchitecture kOthers[] = {{"qwen2", "qwen2", "Qwen2ForCausalLM"},
                                         {"qwen3", "qwen3", "Qwen3ForCausalLM"},
                                         {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM"}};

// The fields of one architecture; their keys begin with its name and a dot.
class Fields {
 public:
  Fields(const Gguf& gguf, std::string prefix) : gguf_(gguf), prefix_(std::move(prefix)) {}

  [[nodiscard]] std::string key(const char* field) const { return prefix_ + "." + field; }
  [[nodiscard]] bool has(const char* field) const { return gguf_.has(key(field)); }
  [[nodiscard]] Result<std::int64_t> whole(const char* field, std::int64_t low = 1) const {
    return gguf_.whole(key(field), low, kLargest);
  }
  [[nodiscard]] Result<std::int64_t> whole_or(const char* field, std::int64_t fallback) const {
    return has(field) ? whole(field) : Result<std::int64_t>(fallback);
  }
  [[nodiscard]] Result<double> number(const char* field) const { return gguf_.number(key(field)); }
  [[nodiscard]] Error bad(const char* field, std::string_view found, std::string_view allowed) const {
    return gguf_.bad(key(field), found, allowed);
  }
  // Refuse any value other than the only one that the engine computes.
  [[nodiscard]] Result<void> only(const char* field, std::int64_t allowed) const {
    if (!has(field)) return {};
    WINDLASS_ASSIGN_OR_RETURN(const std::int64_t found, whole(field, 0));
    if (found == allowed) return {};
    return bad(field, fmt::format("{}", found), fmt::format("{}", allowed));
  }

 private:
  const Gguf& gguf_;
  const std::string prefix_;
};

Result<KnownArchitecture> architecture_of(const Gguf& gguf) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string_view name, gguf.text("general.architecture"));
  if (name == kLlama.gguf) {
    if (!gguf.has("llama.expert_count")) return kLlama;
    WINDLASS_ASSIGN_OR_RETURN(const std::int64_t experts, gguf.whole("llama.expert_count", 0, kLargest));
    return experts > 0 ? kMixtral : kLlama;
  }
  std::string allowed = fmt::format("'{}'", kLlama.gguf);
  for (const KnownArchitecture& each : kOthers) {
    if (name == each.gguf) return each;
    allowed += fmt::format(", '{}'", each.gguf);
  }
  return gguf.bad("general.architecture", fmt::format("'{}'", shown_text(name)), allowed);
}

Result<void> read_heads(const Fields& fields, json& config) {
  WINDLASS_ASSIGN_OR_RETURN(const std::int64_t hidden, fields.whole("embedding_length"));
  WINDLASS_ASSIGN_OR_RETURN(const std::int64_t heads, fields.whole("attention.head_count"));
  WINDLASS_ASSIGN_OR_RETURN(const std::int64_t kv_heads, fields.whole_or("attention.head_count_kv", heads));
  if (!fields.has("attention.key_length") && hidden % heads != 0) {
    return fields.bad("attention.head_count", fmt::format("{}", heads),
                      fmt::format("a divisor of {} ({})", fields.key("embedding_length"), hidden));
  }
  WINDLASS_ASSIGN_OR_RETURN(const std::int64_t head, fields.whole_or("attention.key_length", hidden / heads));
  for (const char* same : {"attention.value_length", "rope.dimension_count"}) {
    WINDLASS_RETURN_IF_ERROR(fields.only(same, head));
  }
  config["hidden_size"] = hidden;
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = kv_heads;
  config["head_dim"] = head;
  return {};
}

Result<void> read_rope(const Gguf& gguf, const Fields& fields, json& config) {
  if (fields.has("rope.freq_base")) {
    WINDLASS_ASSIGN_OR_RETURN(config["rope_theta"], fields.number("rope.freq_base"));
  }
  if (!fields.has("rope.scaling.type")) return {};
  WINDLASS_ASSIGN_OR_RETURN(const std::string_view kind, gguf.text(fields.key("rope.scaling.type")));
  if (kind == "none") return {};
  if (kind != "linear") {
    return fields.bad("rope.scaling.type", fmt::format("'{}'", shown_text(kind)), "'none' or 'linear'");
  }
  WINDLASS_ASSIGN_OR_RETURN(const double factor, fields.number("rope.scaling.factor"));
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
  return {};
}

Result<void> read_experts(const Fields& fields, const KnownArchitecture& architecture, json& config) {
  const bool mixtral = architecture.model_type == std::string_view(kMixtral.model_type);
  if (!mixtral && !fields.has("expert_count")) return {};
  WINDLASS_ASSIGN_OR_RETURN(config[mixtral ? "num_local_experts" : "num_experts"], fields.whole("expert_count"));
  WINDLASS_ASSIGN_OR_RETURN(config["num_experts_per_tok"], fields.whole("expert_used_count"));
  if (mixtral) return {};
  WINDLASS_ASSIGN_OR_RETURN(config["moe_intermediate_size"], fields.whole("expert_feed_forward_length"));
  config["norm_topk_prob"] = true;  // llama.cpp always does this
  return {};
}

}  // namespace

Result<std::vector<std::int64_t>> end_tokens_of(const Gguf& gguf) {
  std::vector<std::int64_t> ids;
  for (const char* field : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (!gguf.has(field)) continue;
    WINDLASS_ASSIGN_OR_RETURN(const std::int64_t id, gguf.whole(field, 0, kLargest));
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

Result<json> config_json_of(const Gguf& gguf) {
  WINDLASS_ASSIGN_OR_RETURN(const KnownArchitecture architecture, architecture_of(gguf));
  const Fields fields(gguf, architecture.gguf);
  json config = {{"architectures", {architecture.class_name}}, {"model_type", architecture.model_type}};
  WINDLASS_RETURN_IF_ERROR(read_heads(fields, config));
  WINDLASS_ASSIGN_OR_RETURN(config["num_hidden_layers"], fields.whole("block_count"));
  WINDLASS_ASSIGN_OR_RETURN(config["intermediate_size"], fields.whole("feed_forward_length"));
  WINDLASS_ASSIGN_OR_RETURN(config["max_position_embeddings"], fields.whole("context_length"));
  WINDLASS_ASSIGN_OR_RETURN(config["rms_norm_eps"], fields.number("attention.layer_norm_rms_epsilon"));
  WINDLASS_RETURN_IF_ERROR(read_rope(gguf, fields, config));
  WINDLASS_RETURN_IF_ERROR(read_experts(fields, architecture, config));
  if (fields.has("attention.sliding_window")) {
    return fields.bad("attention.sliding_window", shown(gguf.metadata().at(fields.key("attention.sliding_window"))), "absent");
  }
  const GgufTensor* embedding = gguf.tensor("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: tensor 'token_embd.weight': must be a tensor of 2 dimensions (got {})", gguf.file(),
                             embedding == nullptr ? "none" : "another")};
  }
  config["vocab_size"] = embedding->shape.front();
  config["tie_word_embeddings"] = gguf.tensor("output.weight") == nullptr;
  if (architecture.gguf != std::string_view("qwen2")) {
    config["attention_bias"] = gguf.tensor("blk.0.attn_q.bias") != nullptr;
  }
  WINDLASS_ASSIGN_OR_RETURN(const auto ends, end_tokens_of(gguf));
  if (!ends.empty()) config["eos_token_id"] = ends;
  return config;
}

Result<GgufBits> bits_of(const Gguf& gguf) {
  struct Sum {
    double bytes = 0, numbers = 0;
    [[nodiscard]] double bits() const { return numbers > 0 ? 8 * bytes / numbers : 0; }
  };
  Sum blocks, embedding;
  GgufBits bits;
  for (const GgufTensor& tensor : gguf.tensors()) {
    const bool in_blocks = tensor.name.starts_with("blk.");
    if (tensor.shape.size() < 2 || (!in_blocks && tensor.name != "token_embd.weight" && tensor.name != "output.weight"))
      continue;
    const GgmlTypeInfo* info = ggml_type_info(tensor.type);
    if (info == nullptr) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("{}: tensor '{}': type must be one of {} (got {})", gguf.file(),
                                                            shown_text(tensor.name), known_ggml_types(), tensor.type)};
    }
    const auto size = static_cast<double>(tensor.bytes.size());
    Sum& sum = in_blocks ? blocks : embedding;
    sum.bytes += size;
    sum.numbers += size / info->block_bytes * info->block_numbers;
    bits.quantised = bits.quantised || info->block_numbers > 1;
  }
  bits.blocks = blocks.bits();
  bits.embedding = embedding.bits();
  return bits;
}

}  // namespace windlass
