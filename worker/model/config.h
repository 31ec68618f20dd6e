// ModelConfig: the shape of a decoder model, from a Hugging Face config.json.
//
// Supports Llama 2, 3 and 3.1, Mistral (sliding windows), Qwen2 and 2.5 (biases on queries, keys and values), Qwen3 (norms on
// the heads of queries and keys), Mixtral and Qwen3-MoE (experts) and OPT (learned positions, LayerNorm, biases and ReLU;
// OPT-350M also applies norms after each part and has a narrower embedding). All share the same layers apart from what the
// fields here describe.
//
// Everything is validated on reading: an error names the file and each bad or missing field with the rule and the value. Plain
// data; pure functions; any thread. The planner has its own reader (planner/catalog), which needs less; no code is shared
// because a worker must not depend on the planner.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::worker {

// How rotary frequencies are scaled beyond the trained context.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3, kFactors };
  Kind kind = Kind::kNone;
  double factor = 1;
  double low_freq_factor = 1;         // only kLlama3
  double high_freq_factor = 4;        // only kLlama3
  double original_max_tokens = 8192;  // only kLlama3
  std::vector<float> factors = {};    // only kFactors (GGUF): (head_dim / 2); each frequency is divided by its factor
};

// Consecutive transformer blocks: first, first + 1, ... end - 1, counted from 0.
struct BlockRange {
  std::int64_t first = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - first; }
  bool operator==(const BlockRange&) const = default;
};
// "A:B", as in flags.
[[nodiscard]] std::string to_string(BlockRange blocks);

enum class Architecture { kLlama, kMistral, kQwen2, kQwen3, kMixtral, kQwen3Moe, kOpt };
// The model_type in config.json: "llama", ...
[[nodiscard]] const char* to_string(Architecture architecture);
// Error: names the value and the allowed ones.
[[nodiscard]] Result<Architecture> architecture_from_string(std::string_view name);
// The class in transformers: "LlamaForCausalLM", ...
[[nodiscard]] const char* class_name(Architecture architecture);
// Whether its layers have experts.
[[nodiscard]] bool has_experts(Architecture architecture);

// The norm before attention, the MLP and the output matrix (but see norm_after). kLayer subtracts the mean and has a bias.
enum class Norm { kRms, kLayer };
// How positions are encoded: queries and keys are rotated, or a row of a table is added to the token's embedding.
enum class Positions { kRotary, kLearned };
// What an MLP computes between its matrices: silu(gate) * up, or relu(x).
enum class Activation { kSwiGlu, kRelu };

// Number of unused rows at the start of the table of learned positions (OPT; originally for padding).
inline constexpr std::int64_t kLearnedPositionsOffset = 2;

// Sampling parameters recommended by the model's authors, for requests that give none; within the bounds of SamplingParams.
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
  bool norm_after = false;  // norms come after attention and MLP, on the sum of input and output; none before the output matrix
  std::int64_t embedding_size = 0;  // width of embedding and output matrix, if projections connect them to the layers; else 0
  Positions positions = Positions::kRotary;
  double rope_theta = 10000;  // only kRotary
  RopeScaling rope_scaling;   // only kRotary
  Activation activation = Activation::kSwiGlu;
  // Mixture of experts: replaces a layer's MLP by this many experts, of which each token uses some. 0: none.
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_intermediate_size = 0;
  bool normalise_expert_weights = false;  // over the chosen experts; else softmax over all
  std::vector<bool> dense_mlp;            // by layer: a dense MLP although others have experts; no entry: false
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm over each head of queries and keys, before the rotation
  // By layer: the number of tokens visible to a token, itself included; 0 or no entry: all.
  std::vector<std::int64_t> windows;
  bool tie_word_embeddings = false;
  std::vector<std::int32_t> eos_token_ids;  // from generation_config.json, else config.json
  SamplingDefaults sampling;                // from generation_config.json

  [[nodiscard]] BlockRange all_blocks() const { return {0, layers}; }
  // Columns of the embedding and the output matrix.
  [[nodiscard]] std::int64_t embedding_width() const { return embedding_size > 0 ? embedding_size : hidden_size; }
  [[nodiscard]] std::int64_t q_size() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t kv_size() const { return kv_heads * head_dim; }
  // Rows of the first matrix of an MLP of this width.
  [[nodiscard]] std::int64_t mlp_in_size(std::int64_t width) const {
    return activation == Activation::kSwiGlu ? 2 * width : width;
  }
  [[nodiscard]] bool has_experts(std::int64_t layer) const {
    const auto index = static_cast<std::size_t>(layer);
    return experts > 0 && (index >= dense_mlp.size() || !dense_mlp[index]);
  }
  // Whether some layer has a dense MLP.
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

// `file`: name for messages.
[[nodiscard]] Result<ModelConfig> parse_model_config(std::string_view json, const std::string& file);

// The fields of a generation_config.json; those it lacks are empty. do_sample is ignored: defaults apply only when sampling.
struct GenerationConfig {
  std::vector<std::int32_t> eos_token_ids;
  SamplingDefaults sampling;
};
[[nodiscard]] Result<GenerationConfig> parse_generation_config(std::string_view json, const std::string& file);

// Reads a GGUF file; or folder/config.json and, if it exists, folder/generation_config.json.
[[nodiscard]] Result<ModelConfig> load_model_config(const std::filesystem::path& model);

}  // namespace windlass::worker
