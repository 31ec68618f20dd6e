// Model shapes: the parameter counts that the models' publishers state, and every mistake in a config.json by its field.
#include "planner/catalog/model_shape.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/catalog/accelerator.h"
#include "tests/unit/planner/fixtures.h"

namespace windlass::planner {
namespace {

using ::testing::HasSubstr;

// Given the named architectures, expect the number of parameters that their checkpoints have.
TEST(ModelShape, CountsTheParametersOfKnownModels) {
  const std::pair<const char*, std::int64_t> known[] = {
      {"llama2-7b", 6738415616},   {"llama2-13b", 13015864320}, {"llama2-70b", 68976648192}, {"llama3-8b", 8030261248},
      {"llama3-70b", 70553706496}, {"mistral-7b", 7241732096},  {"qwen2.5-7b", 7615616512}};
  for (const auto& [name, parameters] : known)
    EXPECT_EQ(parameter_count(model_shape_by_name(name).value()), parameters) << name;
}

// Given a shape small enough for paper (2 layers, width 4, 2 heads of 2, 1 KV head, MLP 8, vocabulary 10), expect the sums done
// by hand.
TEST(ModelShape, FollowsFromItsSizes) {
  ModelShape shape;
  shape.layers = 2;
  shape.hidden = 4;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 2;
  shape.intermediate = 8;
  shape.vocab = 10;
  shape.dtype = DType::kFloat16;
  // a layer: Q and O 4x4 each, K and V 4x2 each, three MLP matrices 4x8: 16 + 16 + 8 + 8 + 96 = 144; two layers and 40 of the
  // output.
  EXPECT_EQ(matmul_parameter_count(shape), 2 * 144 + 40);
  // and the input embedding's 40, five norms of 4
  EXPECT_EQ(parameter_count(shape), 328 + 40 + 20);
  EXPECT_DOUBLE_EQ(weight_bytes(shape), 388 * 2);
  EXPECT_DOUBLE_EQ(kv_bytes_per_token(shape), 2 * 2 * 2 * 2);  // K and V, layers, width, bytes
  EXPECT_DOUBLE_EQ(flops_per_token(shape), 656);
  EXPECT_DOUBLE_EQ(attention_flops_per_token(shape, 10),
                   2 * 2 * 4 * 10 * 2);  // scores and values, 2 FLOP each, width 4, 2 layers
  shape.tied_embeddings = true;
  EXPECT_EQ(parameter_count(shape), 328 + 20);
  shape.qkv_bias = true;
  EXPECT_EQ(parameter_count(shape), 328 + 20 + 2 * (4 + 2 + 2));
}

// Given an unknown name, expect an error that lists the names there are.
TEST(ModelShape, ListsTheNamesThereAre) {
  const auto result = model_shape_by_name("gpt-5");
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("found 'gpt-5', allowed are llama2-7b, llama2-13b"));
}

constexpr const char* kLlama = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
  "max_position_embeddings": 8192, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "rope_theta": 500000.0
})";

// Given llama3-8b's own config.json with fields that are not ours, expect the catalog's shape.
TEST(ModelConfig, ReadsLlama) {
  EXPECT_EQ(model_shape_from_config_json(kLlama).value(), model_shape_by_name("llama3-8b").value());
}

// Given a Qwen2 config, expect biases on Q, K and V and the new spelling of the data type; given what may be left out, the
// defaults.
TEST(ModelConfig, ReadsQwenAndDefaults) {
  const auto qwen = model_shape_from_config_json(R"({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
    "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "max_position_embeddings": 32768, "dtype": "bfloat16"})");
  EXPECT_EQ(qwen.value(), model_shape_by_name("qwen2.5-7b").value());
  const auto old = model_shape_from_config_json(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100, "max_position_embeddings": 256, "head_dim": null})");
  EXPECT_EQ(old->kv_heads, 4);
  EXPECT_EQ(old->head_dim, 16);
  EXPECT_EQ(old->dtype, DType::kFloat32);
  EXPECT_FALSE(old->tied_embeddings);
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = kLlama;
  text.replace(text.find(from), from.size(), to);
  return text;
}

// Given a config.json with one mistake each, expect the field, what was found and what is allowed.
TEST(ModelConfig, NamesEveryMistake) {
  const std::pair<std::string, std::string> mistakes[] = {
      {"{", "config.json: not valid JSON"},
      {"[]", "config.json: the document: found [], must be an object"},
      {replaced("\"llama\"", "\"mixtral\""), "model_type: found \"mixtral\", must be \"llama\", \"mistral\" or \"qwen2\""},
      {replaced("\"hidden_size\": 4096,", ""), "hidden_size: missing"},
      {replaced("\"hidden_size\": 4096", "\"hidden_size\": 0"), "hidden_size: found 0, must be an integer from 1"},
      {replaced("\"hidden_size\": 4096", "\"hidden_size\": 4097"),
       "hidden_size: found 4097, must be a multiple of num_attention_heads (32)"},
      {replaced("\"num_key_value_heads\": 8", "\"num_key_value_heads\": 5"),
       "num_key_value_heads: found 5, must divide num_attention_heads (32)"},
      {replaced("\"num_hidden_layers\": 32", "\"num_hidden_layers\": -1"),
       "num_hidden_layers: found -1, must be an integer from 1"},
      {replaced("\"num_hidden_layers\": 32", "\"num_hidden_layers\": 20000"),
       "num_hidden_layers: found 20000, must be from 1 to 10000"},
      {replaced("\"vocab_size\": 128256", "\"vocab_size\": \"many\""), "vocab_size: found \"many\", must be an integer"},
      {replaced("\"bfloat16\"", "\"float64\""), "torch_dtype: found \"float64\", must be \"float32\""},
      {replaced("false", "1"), "tie_word_embeddings: found 1, must be true or false"},
      {replaced("\"rope_theta\": 500000.0", "\"quantization_config\": {\"bits\": 4}"),
       "quantization_config: found {\"bits\":4}"}};
  for (const auto& [text, message] : mistakes) {
    const auto result = model_shape_from_config_json(text);
    ASSERT_FALSE(result.ok()) << message;
    EXPECT_THAT(result.error().message, HasSubstr(message));
    EXPECT_THAT(result.error().message, HasSubstr("config.json"));
  }
}

// Given figures that cannot be, expect an error that names the class, the field, what was found and what is allowed.
TEST(Accelerator, RefusesImpossibleFigures) {
  EXPECT_TRUE(validate(testing::h100()).ok());
  AcceleratorSpec spec = testing::h100();
  spec.memory_bytes = 0;
  EXPECT_EQ(validate(spec).error().message, "accelerator h100: memory: found 0, must be greater than 0");
  spec = testing::h100();
  spec.peak_flops[DType::kFloat8] = -1;
  EXPECT_EQ(validate(spec).error().message, "accelerator h100: peak FLOP/s of float8: found -1, must be greater than 0");
  spec = testing::h100();
  spec.gpus_per_node = 0;
  EXPECT_EQ(validate(spec).error().message, "accelerator h100: GPUs per node: found 0, must be at least 1");
  spec = testing::h100();
  spec.price_per_hour = -0.5;
  EXPECT_EQ(validate(spec).error().message, "accelerator h100: price per hour: found -0.5, must be at least 0");
}

// Given a chip without 8-bit arithmetic, expect float8 at the speed of bfloat16; given one without any 16-bit type, float32's.
TEST(Accelerator, FallsBackToTheNextLargerType) {
  EXPECT_DOUBLE_EQ(peak_flops_for(testing::a100(), DType::kFloat8), 312e12);
  EXPECT_DOUBLE_EQ(peak_flops_for(testing::h100(), DType::kInt8), 1979e12);
  AcceleratorSpec cpu;
  cpu.peak_flops = {{DType::kFloat32, 1e11}};
  EXPECT_DOUBLE_EQ(peak_flops_for(cpu, DType::kFloat16), 1e11);
  cpu.peak_flops = {{DType::kFloat16, 1e11}};
  EXPECT_DOUBLE_EQ(peak_flops_for(cpu, DType::kFloat32), 0);
}

}  // namespace
}  // namespace windlass::planner
