// ModelShape: the sizes of a model, and the parameters, bytes and FLOPs derived from them.
//
// It comes from a Hugging Face config.json (model_config.cc lists the architectures) or from the catalog by name
// (model_names.cc). Defaults are those of the Llama family, so set only fields that differ. Plain data; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/dtype.h"
#include "planner/catalog/weight_quantisation.h"

namespace windlass::planner {

// Some layers attend only to the last tokens and keep only those in the cache.
struct SlidingWindow {
  int tokens = 0;
  int layers = 0;  // number of layers with the window

  bool operator==(const SlidingWindow&) const = default;
};

// Multi-head latent attention (DeepSeek-V2, Section 2.1): the cache holds one compressed vector and one rotary key per token
// and layer.
struct LatentAttention {
  int kv_rank = 0;        // kv_lora_rank
  int query_rank = 0;     // q_lora_rank; 0: queries are projected directly
  int nope_head_dim = 0;  // qk_nope_head_dim; the shape's head_dim is this plus rope_head_dim
  int rope_head_dim = 0;  // qk_rope_head_dim
  int value_head_dim = 0;

  bool operator==(const LatentAttention&) const = default;
};

struct MixtureOfExperts {
  int experts = 0;  // routed experts of one layer
  int experts_per_token = 0;
  int intermediate = 0;         // width of one expert
  int shared_intermediate = 0;  // width of all shared experts together; every token uses them
  int layers = 0;               // number of layers with experts; the others have the dense MLP
  bool selection_bias = false;  // DeepSeek-V3's bias per expert

  bool operator==(const MixtureOfExperts&) const = default;
};

struct ModelShape {
  std::string architecture;  // config.json's model_type: "llama", ...
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int intermediate = 0;  // width of the dense MLP
  int vocab = 0;
  int max_context_tokens = 0;  // max_position_embeddings
  bool tied_embeddings = false;
  bool qkv_bias = false;
  DType dtype = DType::kBFloat16;  // of activations and KV cache, and of weights unless quantised

  bool gated_mlp = true;  // gate, up and down; otherwise up and down
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool norm_bias = false;  // LayerNorm with bias rather than RMSNorm
  bool qk_norm = false;    // separate norms of head_dim for queries and keys
  int norms_per_layer = 2;
  int outer_norms = 1;              // norms after the last layer; BLOOM also has one after the embedding
  bool parallel_attention = false;  // attention and MLP in parallel: one all-reduce per layer instead of two
  int embedding_dim = 0;            // 0: same as hidden; otherwise two projections convert (OPT-350M)
  int position_rows = 0;            // rows of a learned position table
  std::optional<SlidingWindow> sliding_window;
  std::optional<LatentAttention> latent_attention;
  std::optional<MixtureOfExperts> experts;
  std::optional<WeightQuantisation> quantisation;

  bool operator==(const ModelShape&) const = default;
};

// Parses the text of a config.json. Errors name the field, what was found and what is allowed.
[[nodiscard]] Result<ModelShape> model_shape_from_config_json(std::string_view text);

// "llama3-8b", ...; the error lists the known names.
[[nodiscard]] Result<ModelShape> model_shape_by_name(std::string_view name);
[[nodiscard]] std::vector<std::string> model_shape_names();

// Checks that sizes are positive, heads are divisible by kv_heads, and parts fit the whole.
[[nodiscard]] Result<void> validate(const ModelShape& shape);

// ---- weights; every expert counts unless the name says "active"

// All weights, embeddings included.
[[nodiscard]] std::int64_t parameter_count(const ModelShape& shape);
// Weights that one token uses: all except the experts it is not routed to.
[[nodiscard]] std::int64_t active_parameter_count(const ModelShape& shape);
// Weights that tokens are multiplied with: all except the input embedding, norms and biases. With tied embeddings the table is
// also the output projection and counts.
[[nodiscard]] std::int64_t matmul_parameter_count(const ModelShape& shape);
// The part of them that one token uses.
[[nodiscard]] std::int64_t active_matmul_parameter_count(const ModelShape& shape);
// Expected number of routed experts of one layer that `tokens` tokens use, if each token chooses uniformly and independently. 0
// for a dense model.
[[nodiscard]] double expected_distinct_experts(const ModelShape& shape, double tokens);

[[nodiscard]] double weight_bytes(const ModelShape& shape);
// The part of a server that has `layers` of the model's layers and, if that is more than the output matrix, its embedding.
[[nodiscard]] double server_weight_bytes(const ModelShape& shape, double layers);
// Bytes of the weights of matmul_parameter_count.
[[nodiscard]] double matmul_weight_bytes(const ModelShape& shape);
// Expected bytes that an iteration over `tokens` tokens reads: experts that no token chose are not read.
[[nodiscard]] double matmul_weight_bytes_read(const ModelShape& shape, double tokens);
// The type in which the blocks' matrix products run on a chip that supports it.
[[nodiscard]] DType compute_dtype(const ModelShape& shape);

// ---- KV cache

// Bytes that a token adds over all layers, unsharded, while no window is full.
[[nodiscard]] double kv_bytes_per_token(const ModelShape& shape);
// Bytes for a context of that many tokens; layers with a sliding window keep only the last ones.
[[nodiscard]] double kv_bytes(const ModelShape& shape, double context_tokens);
// The largest number of tensor-parallel GPUs that split the cache; every further GPU holds another copy.
[[nodiscard]] int kv_shards(const ModelShape& shape);

// ---- arithmetic

// Matrix products of one token, without attention: 2 FLOP per weight used.
[[nodiscard]] double flops_per_token(const ModelShape& shape);
// Scores and values of one token that attends to `context_tokens` others, over all layers, each with its window.
[[nodiscard]] double attention_flops_per_token(const ModelShape& shape, double context_tokens);
// The same in decode. With latent attention, engines attend to the compressed cache itself (weight absorption: DeepSeek-V2,
// Section 2.1.2), which is more arithmetic on fewer bytes. Otherwise equal.
[[nodiscard]] double decode_attention_flops_per_token(const ModelShape& shape, double context_tokens);

}  // namespace windlass::planner
