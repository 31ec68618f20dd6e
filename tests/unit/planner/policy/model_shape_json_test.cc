// Tests that a model's shape survives JSON completely; otherwise a replay of a snapshot would decide for another model.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planner/base/rng.h"
#include "planner/catalog/model_shape.h"
#include "planner/policy/json_fields.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

using ::testing::HasSubstr;

// A valid shape with random optional parts.
ModelShape random_shape(Rng& rng) {
  const auto between = [&](int low, int high) { return static_cast<int>(rng.integer(low, high)); };
  const auto coin = [&] { return rng.integer(0, 1) == 1; };
  ModelShape shape;
  shape.architecture = coin() ? "llama" : "gemma2";
  shape.layers = between(1, 100);
  shape.hidden = between(1, 9999);
  shape.kv_heads = between(1, 16);
  shape.heads = shape.kv_heads * between(1, 16);
  shape.head_dim = between(2, 256);
  shape.intermediate = between(1, 9999);
  shape.vocab = between(1, 9999);
  shape.max_context_tokens = between(1, 9999);
  for (bool* flag : {&shape.tied_embeddings, &shape.qkv_bias, &shape.gated_mlp, &shape.attention_output_bias, &shape.mlp_bias,
                     &shape.norm_bias, &shape.qk_norm, &shape.parallel_attention}) {
    *flag = coin();
  }
  shape.dtype = static_cast<DType>(between(0, 4));
  shape.norms_per_layer = between(0, 4);
  shape.outer_norms = between(0, 2);
  shape.embedding_dim = coin() ? 0 : between(1, 999);
  shape.position_rows = coin() ? 0 : between(1, 999);
  if (coin()) shape.sliding_window = SlidingWindow{between(1, 9999), between(1, shape.layers)};
  if (coin()) {
    const int rope = between(1, shape.head_dim - 1);
    shape.latent_attention = LatentAttention{between(1, 999), between(0, 999), shape.head_dim - rope, rope, between(1, 256)};
  }
  if (coin()) {
    const int experts = between(1, 99);
    shape.experts =
        MixtureOfExperts{experts, between(1, experts), between(1, 999), between(0, 999), between(1, shape.layers), coin()};
  }
  if (coin()) {
    shape.quantisation = WeightQuantisation{"gptq", between(1, 16), between(0, 128), between(0, 128), rng.uniform(0, 64), {}};
    if (coin()) shape.quantisation->compute = static_cast<DType>(between(0, 4));
    if (coin()) shape.quantisation->embedding_bits = rng.uniform(0.5, 32);
  }
  return shape;
}

nlohmann::json through_text(const Json& value) { return nlohmann::json::parse(value.dump()); }

// Given random shapes; expects each to be read back unchanged.
TEST(ModelShapeJson, KeepsEverything) {
  Rng rng(3, "shapes");
  for (int i = 0; i < effort(300, 3000); ++i) {
    const ModelShape shape = random_shape(rng);
    const auto back = read_json<ModelShape>(through_text(fields_of(shape)), "shape");
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_EQ(*back, shape) << fields_of(shape).dump();
  }
}

// Given a model of the Llama family; expects only the fields that snapshots have always had.
TEST(ModelShapeJson, IsShortForPlainModels) {
  const Json fields = fields_of(model_shape_by_name("llama3-8b").value());
  EXPECT_EQ(fields.size(), 12U);
  EXPECT_EQ(fields.at("kvHeads"), 8);
}

// Given an error in a part; expects the error to name its path.
TEST(ModelShapeJson, NamesTheMistake) {
  nlohmann::json fields = through_text(fields_of(model_shape_by_name("mixtral-8x7b").value()));
  const auto message = [](const nlohmann::json& value) { return read_json<ModelShape>(value, "shape").error().message; };
  nlohmann::json wrong = fields;
  wrong["experts"].erase("layers");
  EXPECT_EQ(message(wrong), "shape.experts.layers: missing");
  wrong = fields;
  wrong["experts"]["layers"] = 33;
  EXPECT_EQ(message(wrong), "shape: layers with experts: must be from 1 to 32 (got 33)");
  wrong = fields;
  wrong["experts"]["colour"] = 1;
  EXPECT_THAT(message(wrong), HasSubstr("shape.experts.colour: unknown field"));
  wrong = fields;
  wrong["gatedMlp"] = 1;
  EXPECT_EQ(message(wrong), "shape.gatedMlp: must be true or false (got 1)");
}

}  // namespace
}  // namespace windlass::planner
