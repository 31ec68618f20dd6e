// Lists the JSON fields of a ModelShape. Differences from the Llama family are written only if present, so that snapshots stay
// short and those of earlier versions still parse. See json_fields.h.
#include "planner/policy/json_fields.h"

namespace windlass::planner {

DType read_dtype(JsonReader& reader, const char* key, const std::string& text) {
  const Result<DType> dtype = dtype_from_string(text);
  if (dtype.ok()) return *dtype;
  reader.fail(key, text, "float32, float16, bfloat16, float8 or int8");
  return DType::kFloat32;
}

constexpr auto json_fields(JsonType<SlidingWindow>) {
  return json_object(field("tokens", &SlidingWindow::tokens), field("layers", &SlidingWindow::layers));
}

constexpr auto json_fields(JsonType<LatentAttention>) {
  using T = LatentAttention;
  return json_object(field("kvRank", &T::kv_rank), field("queryRank", &T::query_rank), field("nopeHeadDim", &T::nope_head_dim),
                     field("ropeHeadDim", &T::rope_head_dim), field("valueHeadDim", &T::value_head_dim));
}

constexpr auto json_fields(JsonType<MixtureOfExperts>) {
  using T = MixtureOfExperts;
  return json_object(field("experts", &T::experts), field("expertsPerToken", &T::experts_per_token),
                     field("intermediate", &T::intermediate), field("sharedIntermediate", &T::shared_intermediate),
                     field("layers", &T::layers), field("selectionBias", &T::selection_bias));
}

constexpr auto json_fields(JsonType<WeightQuantisation>) {
  using T = WeightQuantisation;
  return json_object(field("method", &T::method), field("weightBits", &T::weight_bits), field("groupRows", &T::group_rows),
                     field("groupColumns", &T::group_columns), field("scaleBits", &T::scale_bits),
                     field("compute", &T::compute), rare("embeddingBits", &T::embedding_bits));
}

constexpr auto json_fields(JsonType<ModelShape>) {
  using T = ModelShape;
  return json_object(field("architecture", &T::architecture), field("layers", &T::layers), field("hidden", &T::hidden),
                     field("heads", &T::heads), field("kvHeads", &T::kv_heads), field("headDim", &T::head_dim),
                     field("intermediate", &T::intermediate), field("vocab", &T::vocab),
                     field("maxContextTokens", &T::max_context_tokens), field("tiedEmbeddings", &T::tied_embeddings),
                     field("qkvBias", &T::qkv_bias), field("dtype", &T::dtype),
                     // Defaults for most models.
                     rare("gatedMlp", &T::gated_mlp), rare("attentionOutputBias", &T::attention_output_bias),
                     rare("mlpBias", &T::mlp_bias), rare("normBias", &T::norm_bias), rare("qkNorm", &T::qk_norm),
                     rare("normsPerLayer", &T::norms_per_layer), rare("outerNorms", &T::outer_norms),
                     rare("parallelAttention", &T::parallel_attention), rare("embeddingDim", &T::embedding_dim),
                     rare("positionRows", &T::position_rows), field("slidingWindow", &T::sliding_window),
                     field("latentAttention", &T::latent_attention), field("experts", &T::experts),
                     field("quantisation", &T::quantisation))
      .checked_by(kValidated);
}

}  // namespace windlass::planner

namespace windlass {

template void write_fields(planner::Json&, const planner::ModelShape&);
template Result<planner::ModelShape> read_json(const nlohmann::json&, const std::string&);

}  // namespace windlass
