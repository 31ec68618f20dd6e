// Writes the five files of a generated model.
#include "worker/model/model_init.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include <fmt/core.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "metrics/host/whole_file.h"
#include "planner/base/rng.h"
#include "worker/model/ggml_blocks.h"
#include "worker/model/pretokenizer.h"
#include "worker/model/tokenizer.h"
#include "worker/model/vocabulary_init.h"

namespace windlass::worker {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMaxParameters = 4LL << 30U;
constexpr std::int64_t kMistralWindow = 4096;  // as in Mistral 7B v0.1
// The constant in hidden dimension 0, and the weight of lm_head's column 0 against a token.
constexpr float kCarrier = 4;
constexpr float kAgainst = -16;

std::int32_t id_of(const ModelShape& shape, const char* special) {
  const auto& all = init_special_tokens();
  const auto at = std::find(all.begin(), all.end(), special) - all.begin();
  return static_cast<std::int32_t>(shape.vocab - static_cast<std::int64_t>(all.size()) + at);
}

std::string in_alphabet(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) out += byte_alphabet()[static_cast<unsigned char>(c)];
  return out;
}

InitVocabulary vocabulary_of(const ModelShape& shape) {
  return make_vocabulary(shape.vocab - 256 - static_cast<std::int64_t>(init_special_tokens().size()), shape.seed);
}

std::string opt_config_json(const ModelShape& shape) {
  const ordered_json root = {{"activation_function", "relu"},
                             {"architectures", {class_name(shape.architecture)}},
                             {"bos_token_id", id_of(shape, "<|begin_of_text|>")},
                             {"do_layer_norm_before", true},
                             {"eos_token_id", {id_of(shape, "<|end_of_text|>"), id_of(shape, "<|eot_id|>")}},
                             {"ffn_dim", shape.intermediate},
                             {"hidden_size", shape.hidden},
                             {"max_position_embeddings", shape.max_context},
                             {"model_type", to_string(shape.architecture)},
                             {"num_attention_heads", shape.heads},
                             {"num_hidden_layers", shape.layers},
                             {"pad_token_id", id_of(shape, "<|pad|>")},
                             {"tie_word_embeddings", true},
                             {"torch_dtype", "bfloat16"},
                             {"vocab_size", shape.vocab},
                             {"word_embed_proj_dim", shape.hidden}};
  return root.dump(2) + "\n";
}

std::string config_json(const ModelShape& shape) {
  if (shape.architecture == Architecture::kOpt) return opt_config_json(shape);
  ordered_json root = {{"architectures", {class_name(shape.architecture)}},
                       {"attention_bias", false},
                       {"bos_token_id", id_of(shape, "<|begin_of_text|>")},
                       {"eos_token_id", {id_of(shape, "<|end_of_text|>"), id_of(shape, "<|eot_id|>")}},
                       {"head_dim", shape.hidden / shape.heads},
                       {"hidden_act", "silu"},
                       {"hidden_size", shape.hidden},
                       {"intermediate_size", shape.intermediate},
                       {"max_position_embeddings", shape.max_context},
                       {"mlp_bias", false},
                       {"model_type", to_string(shape.architecture)},
                       {"num_attention_heads", shape.heads},
                       {"num_hidden_layers", shape.layers},
                       {"num_key_value_heads", shape.kv_heads},
                       {"rms_norm_eps", 1e-5},
                       {"rope_scaling", nullptr},
                       {"rope_theta", 10000.0},
                       {"tie_word_embeddings", false},
                       {"torch_dtype", "bfloat16"},
                       {"vocab_size", shape.vocab}};
  if (shape.architecture == Architecture::kMistral) root["sliding_window"] = kMistralWindow;
  if (has_experts(shape.architecture)) root["num_experts_per_tok"] = shape.experts_per_token;
  if (shape.architecture == Architecture::kMixtral) root["num_local_experts"] = shape.experts;
  if (shape.architecture == Architecture::kQwen3Moe) {
    root.update({{"decoder_sparse_step", 1},
                 {"mlp_only_layers", ordered_json::array()},
                 {"moe_intermediate_size", shape.intermediate},
                 {"norm_topk_prob", true},
                 {"num_experts", shape.experts}});
  }
  return root.dump(2) + "\n";
}

std::string generation_json(const ModelShape& shape) {
  const ordered_json root = {{"bos_token_id", id_of(shape, "<|begin_of_text|>")},
                             {"eos_token_id", {id_of(shape, "<|end_of_text|>"), id_of(shape, "<|eot_id|>")}}};
  return root.dump(2) + "\n";
}

std::string tokenizer_config_json(const ModelShape& shape) {
  // The chat template for programs that interpret Jinja; this worker recognises it by the special tokens (chat_template.h).
  const ordered_json root = {
      {"bos_token", "<|begin_of_text|>"},
      {"chat_template",
       "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
       "{{ message['content'] }}<|eot_id|>{% endfor %}{% if add_generation_prompt "
       "%}<|start_header_id|>assistant<|end_header_id|>\n\n"
       "{% endif %}"},
      {"eos_token", "<|eot_id|>"},
      {"model_max_length", shape.max_context},
      {"tokenizer_class", "PreTrainedTokenizerFast"}};
  return root.dump(2) + "\n";
}

// One tensor of the file: name, shape and values, in the order of generation.
class TensorFile {
 public:
  explicit TensorFile(std::uint64_t seed) : seed_(seed) {}

  // Uniform numbers with this standard deviation; each tensor has its own stream. Portable: the only libm function is the
  // square root, which IEEE 754 rounds correctly everywhere, and no sum can be fused with a product and rounded differently (2u
  // - 1 is exact).
  std::vector<float> random(const std::string& name, std::int64_t count, double deviation) const {
    Rng rng(seed_, name);
    const double half_width = std::sqrt(3.0) * deviation;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = static_cast<float>(half_width * (2 * rng.uniform() - 1));
    return values;
  }

  void add(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
    const std::size_t begin = data_.size();
    data_.resize(begin + 2 * values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t bits = bf16_from_float(values[i]);
      data_[begin + 2 * i] = static_cast<char>(bits & 0xFFU);
      data_[begin + 2 * i + 1] = static_cast<char>(bits >> 8U);
    }
    header_[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
  }

  [[nodiscard]] std::string bytes() const {
    ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
    header.update(header_);
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');  // keep the data aligned
    std::string out;
    for (unsigned shift = 0; shift < 64; shift += 8)
      out += static_cast<char>((static_cast<std::uint64_t>(text.size()) >> shift) & 0xFFU);
    return out + text + data_;
  }

 private:
  std::uint64_t seed_;
  ordered_json header_ = ordered_json::object();
  std::string data_;
};

// Whether a random model may output this token: printable ASCII.
bool sayable(const std::string& bytes) {
  for (const char c : bytes) {
    if (c < ' ' || c > '~') return false;
  }
  return true;
}

// By id: whether the model may output the token.
std::vector<bool> sayable_tokens(const ModelShape& shape) {
  const InitVocabulary vocabulary = vocabulary_of(shape);
  std::vector<bool> said(static_cast<std::size_t>(shape.vocab), false);
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) said[id] = sayable(vocabulary.tokens[id]);
  return said;
}

double by_fan_in(std::int64_t in) { return 1.0 / std::sqrt(static_cast<double>(in)); }

// The embedding is also the output matrix, so keep it small; otherwise a token would mostly repeat itself.
std::string opt_weights_bytes(const ModelShape& shape) {
  const double into_residual = 1.0 / std::sqrt(2.0 * static_cast<double>(shape.layers));
  TensorFile file(shape.seed);
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in, double deviation) {
    file.add(name + ".weight", {out, in}, file.random(name + ".weight", out * in, deviation));
    file.add(name + ".bias", {out}, file.random(name + ".bias", out, 0.1));
  };
  // `carrier` replaces dimension 0 of the norm.
  const auto norm = [&](const std::string& name, float weight, std::optional<float> carrier = std::nullopt) {
    std::vector<float> weights(static_cast<std::size_t>(shape.hidden), weight);
    std::vector<float> biases(weights.size(), 0.0F);
    if (carrier) weights[0] = 0;
    biases[0] = carrier.value_or(0);
    file.add(name + ".weight", {shape.hidden}, weights);
    file.add(name + ".bias", {shape.hidden}, biases);
  };
  const auto table = [&](const std::string& name, std::int64_t rows) {
    return file.random(name, rows * shape.hidden, by_fan_in(shape.hidden));
  };

  const std::string model = "model.decoder.";
  auto embedding = table(model + "embed_tokens.weight", shape.vocab);
  const std::vector<bool> said = sayable_tokens(shape);
  for (std::size_t id = 0; id < said.size(); ++id)
    embedding[id * static_cast<std::size_t>(shape.hidden)] = said[id] ? 0.0F : -1.0F;
  file.add(model + "embed_tokens.weight", {shape.vocab, shape.hidden}, embedding);
  const std::int64_t positions = shape.max_context + kLearnedPositionsOffset;
  file.add(model + "embed_positions.weight", {positions, shape.hidden}, table(model + "embed_positions.weight", positions));
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    const std::string prefix = fmt::format("{}layers.{}.", model, i);
    norm(prefix + "self_attn_layer_norm", 1);
    for (const char* projection : {"q_proj", "k_proj", "v_proj"}) {
      linear(prefix + "self_attn." + projection, shape.hidden, shape.hidden, by_fan_in(shape.hidden));
    }
    linear(prefix + "self_attn.out_proj", shape.hidden, shape.hidden, 2 * by_fan_in(shape.hidden) * into_residual);
    norm(prefix + "final_layer_norm", 1);
    linear(prefix + "fc1", shape.intermediate, shape.hidden, by_fan_in(shape.hidden));
    linear(prefix + "fc2", shape.hidden, shape.intermediate, 2 * by_fan_in(shape.intermediate) * into_residual);
  }
  norm(model + "final_layer_norm", 1.5F, -kAgainst);
  return file.bytes();
}

// The tensors of all architectures except OPT, generated in the order of these calls.
class LlamaTensors {
 public:
  explicit LlamaTensors(const ModelShape& shape) : shape_(shape), file_(shape.seed) {}

  void add_embedding() {
    auto embedding = file_.random("model.embed_tokens.weight", shape_.vocab * shape_.hidden, 1.0);
    for (std::int64_t id = 0; id < shape_.vocab; ++id) embedding[static_cast<std::size_t>(id * shape_.hidden)] = kCarrier;
    file_.add("model.embed_tokens.weight", {shape_.vocab, shape_.hidden}, embedding);
  }

  void add_attention(const std::string& prefix) {
    const std::int64_t head_dim = shape_.hidden / shape_.heads;
    const std::int64_t kv_size = shape_.kv_heads * head_dim;
    ones(prefix + "input_layernorm.weight", shape_.hidden);
    matrix(prefix + "self_attn.q_proj.weight", shape_.hidden, shape_.hidden);
    matrix(prefix + "self_attn.k_proj.weight", kv_size, shape_.hidden);
    matrix(prefix + "self_attn.v_proj.weight", kv_size, shape_.hidden);
    if (shape_.architecture == Architecture::kQwen2) {
      bias(prefix + "self_attn.q_proj.bias", shape_.hidden);
      bias(prefix + "self_attn.k_proj.bias", kv_size);
      bias(prefix + "self_attn.v_proj.bias", kv_size);
    }
    if (shape_.architecture == Architecture::kQwen3 || shape_.architecture == Architecture::kQwen3Moe) {
      ones(prefix + "self_attn.q_norm.weight", head_dim);
      ones(prefix + "self_attn.k_norm.weight", head_dim);
    }
    into_residual(prefix + "self_attn.o_proj.weight", shape_.hidden, shape_.hidden);
    ones(prefix + "post_attention_layernorm.weight", shape_.hidden);
  }

  void add_mlp(const std::string& prefix, const char* gate, const char* up, const char* down) {
    matrix(fmt::format("{}{}.weight", prefix, gate), shape_.intermediate, shape_.hidden);
    matrix(fmt::format("{}{}.weight", prefix, up), shape_.intermediate, shape_.hidden);
    into_residual(fmt::format("{}{}.weight", prefix, down), shape_.hidden, shape_.intermediate);
  }

  void add_experts(const std::string& prefix) {
    const bool mixtral = shape_.architecture == Architecture::kMixtral;
    const std::string mixture = prefix + (mixtral ? "block_sparse_moe." : "mlp.");
    matrix(mixture + "gate.weight", shape_.experts, shape_.hidden);
    for (std::int64_t expert = 0; expert < shape_.experts; ++expert) {
      const std::string name = fmt::format("{}experts.{}.", mixture, expert);
      if (mixtral) {
        add_mlp(name, "w1", "w3", "w2");
      } else {
        add_mlp(name, "gate_proj", "up_proj", "down_proj");
      }
    }
  }

  void add_head() {
    ones("model.norm.weight", shape_.hidden);
    auto head = file_.random("lm_head.weight", shape_.vocab * shape_.hidden, 1.5 * by_fan_in(shape_.hidden));
    const std::vector<bool> said = sayable_tokens(shape_);
    for (std::size_t id = 0; id < said.size(); ++id)
      head[id * static_cast<std::size_t>(shape_.hidden)] = said[id] ? 0.0F : kAgainst;
    file_.add("lm_head.weight", {shape_.vocab, shape_.hidden}, head);
  }

  [[nodiscard]] std::string bytes() const { return file_.bytes(); }

 private:
  void matrix(const std::string& name, std::int64_t out, std::int64_t in) {
    file_.add(name, {out, in}, file_.random(name, out * in, by_fan_in(in)));
  }
  // Writes nothing to dimension 0 of the residual stream, so the constant stays.
  void into_residual(const std::string& name, std::int64_t out, std::int64_t in) {
    const double smaller = 1.0 / std::sqrt(2.0 * static_cast<double>(shape_.layers));
    auto values = file_.random(name, out * in, 2 * by_fan_in(in) * smaller);
    std::fill(values.begin(), values.begin() + in, 0.0F);
    file_.add(name, {out, in}, values);
  }
  void ones(const std::string& name, std::int64_t count) {
    file_.add(name, {count}, std::vector<float>(static_cast<std::size_t>(count), 1.0F));
  }
  void bias(const std::string& name, std::int64_t count) { file_.add(name, {count}, file_.random(name, count, 0.1)); }

  const ModelShape& shape_;
  TensorFile file_;
};

std::string weights_bytes(const ModelShape& shape) {
  if (shape.architecture == Architecture::kOpt) return opt_weights_bytes(shape);
  LlamaTensors tensors(shape);
  tensors.add_embedding();
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    tensors.add_attention(prefix);
    if (has_experts(shape.architecture)) {
      tensors.add_experts(prefix);
    } else {
      tensors.add_mlp(prefix + "mlp.", "gate_proj", "up_proj", "down_proj");
    }
  }
  tensors.add_head();
  return tensors.bytes();
}

}  // namespace

const std::vector<std::string>& init_special_tokens() {
  static const auto* const kTokens = new std::vector<std::string>{"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                                                                  "<|end_header_id|>", "<|eot_id|>",      "<|pad|>"};
  return *kTokens;
}

Result<void> check_model_shape(const ModelShape& shape) {
  std::vector<std::string> complaints;
  const auto range = [&](const char* flag, std::int64_t found, std::int64_t low, std::int64_t high) {
    if (found < low || found > high) complaints.push_back(fmt::format("{}: must be {} to {} (got {})", flag, low, high, found));
  };
  range("layers", shape.layers, 1, 1024);
  range("hidden", shape.hidden, 8, 65536);
  range("heads", shape.heads, 1, 1024);
  range("kv-heads", shape.kv_heads, 1, 1024);
  range("intermediate", shape.intermediate, 8, 1 << 20);
  range("experts", shape.experts, 1, 1024);
  range("experts-per-token", shape.experts_per_token, 1, 1024);
  range("vocab", shape.vocab, 256 + static_cast<std::int64_t>(init_special_tokens().size()), 1 << 18);
  range("max-context", shape.max_context, 16, 1 << 20);
  if (complaints.empty()) {
    if (shape.hidden % (2 * shape.heads) != 0) {
      complaints.push_back(
          fmt::format("hidden: must be a multiple of 2 * heads, which is {} (got {})", 2 * shape.heads, shape.hidden));
    }
    if (shape.heads % shape.kv_heads != 0) {
      complaints.push_back(fmt::format("kv-heads: must divide heads, which is {} (got {})", shape.heads, shape.kv_heads));
    }
    if (shape.architecture == Architecture::kOpt && shape.kv_heads != shape.heads) {
      complaints.push_back(
          fmt::format("kv-heads: must equal heads for opt, which is {} (got {})", shape.heads, shape.kv_heads));
    }
    if (shape.experts_per_token > shape.experts) {
      complaints.push_back(fmt::format("experts-per-token: must be at most experts, which is {} (got {})", shape.experts,
                                       shape.experts_per_token));
    }
    const bool mixture = has_experts(shape.architecture);
    const std::int64_t mlps = mixture ? shape.experts : 1;
    const std::int64_t layer = 4 * shape.hidden * shape.hidden + 3 * shape.hidden * shape.intermediate * mlps;
    const std::int64_t parameters = 2 * shape.vocab * shape.hidden + shape.layers * layer;
    if (parameters > kMaxParameters) {
      complaints.push_back(fmt::format("layers, hidden, intermediate, {}vocab: must give at most {} parameters (got about {})",
                                       mixture ? "experts, " : "", kMaxParameters, parameters));
    }
  }
  if (complaints.empty()) return {};
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}", fmt::join(complaints, "; "))};
}

std::string make_tokenizer_json(const ModelShape& shape) {
  using nlohmann::json;  // sorted keys: fast for a large vocabulary
  const InitVocabulary vocabulary = vocabulary_of(shape);
  json vocab = json::object();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) vocab[in_alphabet(vocabulary.tokens[id])] = id;
  json merges = json::array();
  for (const auto& [a, b] : vocabulary.merges) {
    merges.push_back({in_alphabet(vocabulary.tokens[static_cast<std::size_t>(a)]),
                      in_alphabet(vocabulary.tokens[static_cast<std::size_t>(b)])});
  }
  json added = json::array();
  for (const std::string& content : init_special_tokens()) {
    added.push_back({{"id", id_of(shape, content.c_str())},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const std::string bos = "<|begin_of_text|>";
  const json text_a = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json text_b = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  const json begin = {{"SpecialToken", {{"id", bos}, {"type_id", 0}}}};
  const json root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers", json::array({{{"type", "Split"},
                                        {"pattern", {{"Regex", std::string(kLlama3Pattern)}}},
                                        {"behavior", "Isolated"},
                                        {"invert", false}},
                                       byte_level})}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", json::array({begin, text_a})},
        {"pair", json::array({begin, text_a, text_b})},
        {"special_tokens",
         {{bos, {{"id", bos}, {"ids", json::array({id_of(shape, bos.c_str())})}, {"tokens", json::array({bos})}}}}}}},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocab},
        {"merges", merges}}}};
  return root.dump(1) + "\n";
}

Result<void> init_model(const ModelShape& shape, const std::filesystem::path& folder) {
  WINDLASS_RETURN_IF_ERROR(check_model_shape(shape));
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: the folder cannot be created: {}", folder.string(), failure.message())};
  }
  try {
    WINDLASS_RETURN_IF_ERROR(write_whole_file(folder / "tokenizer.json", make_tokenizer_json(shape)));
    WINDLASS_RETURN_IF_ERROR(write_whole_file(folder / "tokenizer_config.json", tokenizer_config_json(shape)));
    WINDLASS_RETURN_IF_ERROR(write_whole_file(folder / "generation_config.json", generation_json(shape)));
    WINDLASS_RETURN_IF_ERROR(write_whole_file(folder / "model.safetensors", weights_bytes(shape)));
    // Written last: a folder with config.json is complete.
    return write_whole_file(folder / "config.json", config_json(shape));
  } catch (const std::exception& e) {
    return Error{ErrorCode::kResourceExhausted, fmt::format("{}: the model cannot be written: {}", folder.string(), e.what())};
  }
}

}  // namespace windlass::worker
