// ModelConfig: the shape of a dense decoder, from a Hugging Face config.json.
//
// Llama 2, 3 and 3.1, Mistral (sliding windows), Qwen2 and 2.5 (biases on queries, keys and values), Qwen3 (norms on the heads
// of queries and keys), Mixtral and Qwen3-MoE (experts) and OPT (learned positions, LayerNorm, biases and ReLU; OPT-350M also
// norms after each part and has a narrower embedding): the same layers but for what stands in the fields here.
//
// What is read is checked at once and completely: an error names the file and every bad or missing field with what was found
// and what is allowed. Plain data; pure functions; any thread. The planner has a reader of its own (planner/catalog), which
// needs less; the two share no code because a worker must not depend on the planner.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::worker {

// How rotary frequencies are stretched beyond the trained context.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3, kFactors };
  Kind kind = Kind::kNone;
  double factor = 1;
  double low_freq_factor = 1;         // kLlama3 alone
  double high_freq_factor = 4;        // kLlama3 alone
  double original_max_tokens = 8192;  // kLlama3 alone
  std::vector<float> factors = {};    // kFactors alone, GGUF's: (head_dim / 2), each frequency is divided by its own
};

// Consecutive transformer blocks: first, first + 1, ... end - 1, counted from 0.
struct BlockRange {
  std::int64_t first = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - first; }
  bool operator==(const BlockRange&) const = default;
};
// "A:B", as flags have it.
[[nodiscard]] std::string to_string(BlockRange blocks);

enum class Architecture { kLlama, kMistral, kQwen2, kQwen3, kMixtral, kQwen3Moe, kOpt };
// As config.json has it under model_type: "llama", ...
[[nodiscard]] const char* to_string(Architecture architecture);
// The error names what was found and what is allowed.
[[nodiscard]] Result<Architecture> architecture_from_string(std::string_view name);
// Of transformers: "LlamaForCausalLM", ...
[[nodiscard]] const char* class_name(Architecture architecture);
// Whether its layers have experts.
[[nodiscard]] bool has_experts(Architecture architecture);

// What comes before attention, before the MLP and before the output matrix (but see norm_after); kLayer takes the mean away and
// has a bias.
enum class Norm { kRms, kLayer };
// How a token's position is told: queries and keys are rotated by it, or a row of a table is added to the token's embedding.
enum class Positions { kRotary, kLearned };
// What an MLP does between its matrices: silu(gate) * up, or relu(x).
enum class Activation { kSwiGlu, kRelu };

// The table of learned positions begins with rows that are no token's (OPT's; once for padding).
inline constexpr std::int64_t kLearnedPositionsOffset = 2;

// How the model's makers would have it sampled, where a request does not say; in SamplingParams' bounds.
struct SamplingDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<std::int64_t> top_k;
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  std::int64_t hidden_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;  // even
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_context_tokens = 0;  // max_position_embeddings
  Norm norm = Norm::kRms;
  double norm_eps = 1e-5;
  bool norm_after = false;  // of attention and of the MLP instead: of the sum of what goes in and comes out; none at the end
  std::int64_t embedding_size = 0;  // of embedding and output matrix, where matrices stand between them and the layers; else 0
  Positions positions = Positions::kRotary;
  double rope_theta = 10000;  // kRotary alone
  RopeScaling rope_scaling;   // kRotary alone
  Activation activation = Activation::kSwiGlu;
  // Mixture of experts: in place of its MLP a layer has so many, of which each token takes some. 0: none.
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_intermediate_size = 0;
  bool normalise_expert_weights = false;  // over the chosen ones; else softmax over all
  std::vector<bool> dense_mlp;            // by layer: an MLP although others have experts; no entry: false
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm over each head of queries and keys, before the rotation
  // By layer: a token sees this many, itself included; 0, or no entry: all.
  std::vector<std::int64_t> windows;
  bool tie_word_embeddings = false;
  std::vector<std::int32_t> eos_token_ids;  // generation_config.json's, else config.json's
  SamplingDefaults sampling;                // generation_config.json's

  [[nodiscard]] BlockRange all_blocks() const { return {0, layers}; }
  // Columns of the embedding and of the output matrix.
  [[nodiscard]] std::int64_t embedding_width() const { return embedding_size > 0 ? embedding_size : hidden_size; }
  [[nodiscard]] std::int64_t q_size() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t kv_size() const { return kv_heads * head_dim; }
  // Rows of the first matrix of an MLP so wide.
  [[nodiscard]] std::int64_t mlp_in_size(std::int64_t width) const {
    return activation == Activation::kSwiGlu ? 2 * width : width;
  }
  [[nodiscard]] bool has_experts(std::int64_t layer) const {
    const auto index = static_cast<std::size_t>(layer);
    return experts > 0 && (index >= dense_mlp.size() || !dense_mlp[index]);
  }
  // Whether some layer has an MLP of its own.
  [[nodiscard]] bool has_mlp() const {
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      if (!has_experts(layer)) return true;
    }
    return false;
  }
  [[nodiscard]] std::int64_t window_of(std::int64_t layer) const {
    return layer < static_cast<std::int64_t>(windows.size()) ? windows[static_cast<std::size_t>(layer)] : 0;
  }
};

// `file` is only named in messages.
[[nodiscard]] Result<ModelConfig> parse_model_config(std::string_view json, const std::string& file);

// A generation_config.json; what it leaves out is empty. Its do_sample is not read: defaults hold for who samples.
struct GenerationConfig {
  std::vector<std::int32_t> eos_token_ids;
  SamplingDefaults sampling;
};
[[nodiscard]] Result<GenerationConfig> parse_generation_config(std::string_view json, const std::string& file);

// Reads a GGUF file; or folder/config.json and, where it exists, folder/generation_config.json.
[[nodiscard]] Result<ModelConfig> load_model_config(const std::filesystem::path& model);

}  // namespace windlass::worker
