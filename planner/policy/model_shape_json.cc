// The fields of a ModelShape. What departs from the Llama family is written only where it does, so that a snapshot stays short
// and one of an earlier version still reads.
#include <optional>
#include <type_traits>

#include "planner/policy/json_fields.h"

namespace windlass::planner {
namespace {

using nlohmann::json;

// The fields of which most models have the default, with the names that they have in a snapshot. Writing and reading both go by
// this list.
template <class Shape, class Each>
void for_each_rare_field(Shape& shape, Each each) {
  each("gatedMlp", shape.gated_mlp);
  each("attentionOutputBias", shape.attention_output_bias);
  each("mlpBias", shape.mlp_bias);
  each("normBias", shape.norm_bias);
  each("qkNorm", shape.qk_norm);
  each("normsPerLayer", shape.norms_per_layer);
  each("outerNorms", shape.outer_norms);
  each("parallelAttention", shape.parallel_attention);
  each("embeddingDim", shape.embedding_dim);
  each("positionRows", shape.position_rows);
}

Json fields_of(const SlidingWindow& window) { return Json{{"tokens", window.tokens}, {"layers", window.layers}}; }

Json fields_of(const LatentAttention& latent) {
  return Json{{"kvRank", latent.kv_rank},
              {"queryRank", latent.query_rank},
              {"nopeHeadDim", latent.nope_head_dim},
              {"ropeHeadDim", latent.rope_head_dim},
              {"valueHeadDim", latent.value_head_dim}};
}

Json fields_of(const MixtureOfExperts& moe) {
  return Json{{"experts", moe.experts},
              {"expertsPerToken", moe.experts_per_token},
              {"intermediate", moe.intermediate},
              {"sharedIntermediate", moe.shared_intermediate},
              {"layers", moe.layers},
              {"selectionBias", moe.selection_bias}};
}

Json fields_of(const WeightQuantisation& quantisation) {
  Json object{{"method", quantisation.method},
              {"weightBits", quantisation.weight_bits},
              {"groupRows", quantisation.group_rows},
              {"groupColumns", quantisation.group_columns},
              {"scaleBits", quantisation.scale_bits}};
  if (quantisation.compute) object["compute"] = to_string(*quantisation.compute);
  if (quantisation.embedding_bits > 0) object["embeddingBits"] = quantisation.embedding_bits;
  return object;
}

SlidingWindow read_window(JsonReader& reader) { return {reader.int32("tokens"), reader.int32("layers")}; }

LatentAttention read_latent(JsonReader& reader) {
  return {reader.int32("kvRank"), reader.int32("queryRank"), reader.int32("nopeHeadDim"), reader.int32("ropeHeadDim"),
          reader.int32("valueHeadDim")};
}

MixtureOfExperts read_experts(JsonReader& reader) {
  return {reader.int32("experts"),      reader.int32("expertsPerToken"),
          reader.int32("intermediate"), reader.int32("sharedIntermediate"),
          reader.int32("layers"),       reader.boolean("selectionBias")};
}

WeightQuantisation read_quantisation(JsonReader& reader) {
  WeightQuantisation quantisation{reader.string("method"),      reader.int32("weightBits"), reader.int32("groupRows"),
                                  reader.int32("groupColumns"), reader.number("scaleBits"), std::nullopt};
  if (reader.find("compute") != nullptr) quantisation.compute = read_dtype(reader, "compute", reader.string("compute"));
  if (reader.find("embeddingBits") != nullptr) quantisation.embedding_bits = reader.number("embeddingBits");
  return quantisation;
}

template <class Part, class Read>
std::optional<Part> optional_part(JsonReader& parent, const char* key, Read read) {
  const json* value = parent.find(key);
  if (value == nullptr) return std::nullopt;
  JsonReader reader(*value, parent.path_of(key));
  Part part = read(reader);
  parent.take(reader.finish());
  return part;
}

}  // namespace

DType read_dtype(JsonReader& reader, const char* key, const std::string& text) {
  const Result<DType> dtype = dtype_from_string(text);
  if (dtype.ok()) return *dtype;
  reader.fail(key, text, "float32, float16, bfloat16, float8 or int8");
  return DType::kFloat32;
}

Json fields_of(const ModelShape& shape) {
  Json object{{"architecture", shape.architecture},
              {"layers", shape.layers},
              {"hidden", shape.hidden},
              {"heads", shape.heads},
              {"kvHeads", shape.kv_heads},
              {"headDim", shape.head_dim},
              {"intermediate", shape.intermediate},
              {"vocab", shape.vocab},
              {"maxContextTokens", shape.max_context_tokens},
              {"tiedEmbeddings", shape.tied_embeddings},
              {"qkvBias", shape.qkv_bias},
              {"dtype", to_string(shape.dtype)}};
  Json usual;
  const ModelShape defaults;
  for_each_rare_field(defaults, [&](const char* key, const auto& value) { usual[key] = value; });
  for_each_rare_field(shape, [&](const char* key, const auto& value) {
    if (usual[key] != value) object[key] = value;
  });
  if (shape.sliding_window) object["slidingWindow"] = fields_of(*shape.sliding_window);
  if (shape.latent_attention) object["latentAttention"] = fields_of(*shape.latent_attention);
  if (shape.experts) object["experts"] = fields_of(*shape.experts);
  if (shape.quantisation) object["quantisation"] = fields_of(*shape.quantisation);
  return object;
}

Result<ModelShape> read_model_shape(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  ModelShape shape;
  shape.architecture = reader.string("architecture");
  shape.layers = reader.int32("layers");
  shape.hidden = reader.int32("hidden");
  shape.heads = reader.int32("heads");
  shape.kv_heads = reader.int32("kvHeads");
  shape.head_dim = reader.int32("headDim");
  shape.intermediate = reader.int32("intermediate");
  shape.vocab = reader.int32("vocab");
  shape.max_context_tokens = reader.int32("maxContextTokens");
  shape.tied_embeddings = reader.boolean("tiedEmbeddings");
  shape.qkv_bias = reader.boolean("qkvBias");
  shape.dtype = read_dtype(reader, "dtype", reader.string("dtype"));
  for_each_rare_field(shape, [&](const char* key, auto& field) {
    if (reader.find(key) == nullptr) return;
    if constexpr (std::is_same_v<decltype(field), bool&>) {
      field = reader.boolean(key);
    } else {
      field = reader.int32(key);
    }
  });
  shape.sliding_window = optional_part<SlidingWindow>(reader, "slidingWindow", read_window);
  shape.latent_attention = optional_part<LatentAttention>(reader, "latentAttention", read_latent);
  shape.experts = optional_part<MixtureOfExperts>(reader, "experts", read_experts);
  shape.quantisation = optional_part<WeightQuantisation>(reader, "quantisation", read_quantisation);
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  if (Result<void> valid = validate(shape); !valid.ok()) return valid.error().within(path);
  return shape;
}

}  // namespace windlass::planner
