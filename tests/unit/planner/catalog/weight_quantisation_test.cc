// Tests quantization_config in the format of each method, the resulting bytes, and every error by its field.
#include "planner/catalog/weight_quantisation.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planner/catalog/model_shape.h"
#include "tests/says.h"
#include "tests/unit/planner/catalog/configs.h"

namespace windlass::planner {
namespace {

using ::testing::HasSubstr;

Result<WeightQuantisation> read(const std::string& config) {
  return weight_quantisation_from_json(nlohmann::json::parse(config), "quantization_config");
}

// Given the fields of each method; expects bits, groups, scales and the type of the matrix products.
TEST(WeightQuantisation, ReadsEveryMethod) {
  const std::pair<const char*, WeightQuantisation> known[] = {
      {R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 64], "modules_to_not_convert": ["lm_head"]})",
       {"fp8", 8, 128, 64, 32, DType::kFloat8}},
      {R"({"quant_method": "fp8", "activation_scheme": "static"})", {"fp8", 8, 0, 0, 32, DType::kFloat8}},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": false})", {"gptq", 4, 1, 128, 20, {}}},
      {R"({"quant_method": "gptq", "bits": 8, "group_size": -1})", {"gptq", 8, 1, 0, 24, {}}},
      {R"({"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["gate"]})",
       {"awq", 4, 1, 128, 20, {}}},
      {R"({"quant_method": "awq", "w_bit": 4, "q_group_size": 64})", {"awq", 4, 1, 64, 20, {}}},
      {R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "llm_int8_skip_modules": null})",
       {"bitsandbytes", 4, 1, 64, 32, {}}},
      {R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_use_double_quant": true})",
       {"bitsandbytes", 4, 1, 64, 8.125, {}}},
      {R"({"quant_method": "bitsandbytes", "load_in_8bit": true, "load_in_4bit": false})",
       {"bitsandbytes", 8, 1, 0, 32, DType::kInt8}},
      {R"({"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"],
           "input_activations": {"num_bits": 8, "type": "float"}, "weights": {"num_bits": 8, "type": "float",
           "strategy": "channel", "group_size": null}}}})",
       {"compressed-tensors", 8, 1, 0, 16, DType::kFloat8}},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"],
           "input_activations": {"num_bits": 8, "type": "int"}, "weights": {"num_bits": 8, "type": "int",
           "strategy": "tensor"}}}})",
       {"compressed-tensors", 8, 0, 0, 16, DType::kInt8}},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": null,
           "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": false}}}})",
       {"compressed-tensors", 4, 1, 128, 20, {}}},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"],
           "input_activations": {"num_bits": 8}, "weights": {"num_bits": 8, "type": "float", "strategy": "block",
           "block_structure": [128, 128]}}}})",
       {"compressed-tensors", 8, 128, 128, 16, DType::kFloat8}},
      {R"({"quant_method": "gguf", "bits": 5, "embedding_bits": 8.5})", {"gguf", 5, 1, 32, 0, {}, 8.5}},
      {R"({"quant_method": "gguf", "bits": 4.5, "embedding_bits": 16})", {"gguf", 4, 1, 32, 16, {}, 16}},
  };
  for (const auto& [config, expected] : known) {
    const auto found = read(config);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(*found, expected) << config;
  }
}

// Given a matrix of 3 x 10; expects weights and scales counted, with partly filled groups as whole ones.
TEST(WeightQuantisation, CountsScales) {
  WeightQuantisation q{"gptq", 4, 1, 4, 20, {}};
  EXPECT_DOUBLE_EQ(quantised_bytes(q, 3, 10), (30 * 4 + 3 * 3 * 20) / 8.0);
  q.group_columns = 0;
  EXPECT_DOUBLE_EQ(quantised_bytes(q, 3, 10), (30 * 4 + 3 * 20) / 8.0);
  q.group_rows = 0;
  EXPECT_DOUBLE_EQ(quantised_bytes(q, 3, 10), (30 * 4 + 20) / 8.0);
  q.group_rows = 2;
  q.group_columns = 5;
  EXPECT_DOUBLE_EQ(quantised_bytes(q, 3, 10), (30 * 4 + 4 * 20) / 8.0);
}

// Given llama2-7b in GPTQ's 4 bits with groups of 128; expects the sum by hand: half a byte per weight of the blocks and 20
// bits per group; embedding, output and norms unchanged. Products and cache keep the model's type.
TEST(WeightQuantisation, ShrinksOnlyTheBlocks) {
  ModelShape shape = model_shape_by_name("llama2-7b").value();
  const std::int64_t blocks = 6738415616 - 2 * 32000 * 4096 - 65 * 4096;
  shape.quantisation = read(R"({"quant_method": "gptq", "bits": 4, "group_size": 128})").value();
  EXPECT_DOUBLE_EQ(weight_bytes(shape), static_cast<double>(blocks) / 2 + static_cast<double>(blocks) / 128 * 2.5 +
                                            2.0 * (2 * 32000 * 4096 + 65 * 4096));
  EXPECT_EQ(parameter_count(shape), 6738415616);
  EXPECT_EQ(compute_dtype(shape), DType::kFloat16);
  EXPECT_DOUBLE_EQ(kv_bytes_per_token(shape), 524288);
}

// Given SmolLM2-135M as in its GGUF file, with 5 bits per number in the blocks and 8.5 in the embedding, which is also the
// output matrix; expects the sum by hand, with norms in 32 bits, and the embedding's bits read for a token.
TEST(WeightQuantisation, CountsAnEmbeddingOfItsOwnBits) {
  ModelShape shape = testing::parse(R"({"model_type": "llama", "num_hidden_layers": 30, "hidden_size": 576,
      "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152,
      "max_position_embeddings": 8192, "tie_word_embeddings": true, "torch_dtype": "float32",
      "quantization_config": {"quant_method": "gguf", "bits": 5, "embedding_bits": 8.5}})");
  const double blocks = 30.0 * (576 * (576 + 192 + 192 + 576) + 3 * 576 * 1536), embedding = 49152.0 * 576;
  EXPECT_DOUBLE_EQ(weight_bytes(shape), blocks * 5 / 8 + embedding * 8.5 / 8 + 61 * 576 * 4);
  EXPECT_DOUBLE_EQ(matmul_weight_bytes_read(shape, 1), blocks * 5 / 8 + embedding * 8.5 / 8);
  EXPECT_EQ(compute_dtype(shape), DType::kFloat32);
}

// Given a quantization_config in a config.json; expects it in the shape. Given an error in it; expects the full path.
TEST(WeightQuantisation, IsReadFromConfigJson) {
  const auto with = [](const std::string& quantised) {
    return testing::replaced(testing::kLlama, "\"rope_theta\": 500000.0", "\"quantization_config\": " + quantised);
  };
  EXPECT_EQ(testing::parse(with(R"({"quant_method": "fp8"})")).quantisation->weight_bits, 8);
  EXPECT_EQ(testing::parse(with("null")).quantisation, std::nullopt);
  EXPECT_EQ(model_shape_from_config_json(with(R"({"quant_method": "aqlm"})")).error().message,
            "config.json: quantization_config.quant_method: must be \"fp8\", \"gptq\", \"awq\", \"bitsandbytes\", "
            "\"compressed-tensors\" or \"gguf\" (got \"aqlm\")");
  EXPECT_THAT(model_shape_from_config_json(with("3")).error().message,
              HasSubstr("quantization_config: must be an object (got 3)"));
}

// Given one error each; expects the field, what was found and what is allowed.
TEST(WeightQuantisation, NamesEveryMistake) {
  const std::string compressed = R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"],
    "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}}})";
  ASSERT_TRUE(read(compressed).ok());
  const std::pair<std::string, std::string> mistakes[] = {
      {R"({"bits": 4})", "quant_method: missing"},
      {R"({"quant_method": "gptq", "bits": 5, "group_size": 128})", "bits: must be 2, 3, 4 or 8*(got 5)"},
      {R"({"quant_method": "gptq", "bits": 4})", "group_size: missing"},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 0})", "group_size: must be -1 or at least 1*(got 0)"},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": true})", "lm_head: must be false*(got true)"},
      {R"({"quant_method": "awq", "bits": 8, "group_size": 128})", "bits: must be 4*(got 8)"},
      {R"({"quant_method": "fp8", "weight_block_size": [128]})",
       "weight_block_size: must be a list of two integers from 1*(got [128])"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 0]})",
       "weight_block_size: must be a list of two integers from 1*(got [128,0])"},
      {R"({"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.down_proj"]})",
       "modules_to_not_convert[1]: must name an lm_head*(got \"model.layers.0.mlp.down_proj\")"},
      {R"({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp.gate_proj"]})", "modules_to_not_convert[0]"},
      {R"({"quant_method": "gguf", "bits": 0.5, "embedding_bits": 8.5})", "bits: must be from 1 to 32*(got 0.5)"},
      {R"({"quant_method": "gguf", "bits": 5})", "embedding_bits: missing"},
      {R"({"quant_method": "bitsandbytes"})", "load_in_4bit: must be true, or load_in_8bit*(got false)"},
      {R"({"quant_method": "bitsandbytes", "load_in_8bit": true, "load_in_4bit": true})",
       "load_in_4bit: must be false where load_in_8bit is true*(got true)"},
      {testing::replaced(compressed, "\"num_bits\": 8", "\"num_bits\": 2"),
       "quantization_config.config_groups.group_0.weights.num_bits: must be 4 or 8*(got 2)"},
      {testing::replaced(compressed, "channel", "token"), "weights.strategy: must be \"tensor\", \"channel\"*(got \"token\")"},
      {testing::replaced(compressed, "\"int\"", "\"complex\""), "weights.type: must be \"float\" or \"int\"*(got \"complex\")"},
      {testing::replaced(compressed, "[\"Linear\"]", "[\"Embedding\"]"), "targets: must be [\"Linear\"]*(got [\"Embedding\"])"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {}})",
       "config_groups: must be an object with one group*(got {})"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"a": 7}})", "config_groups.a: must be an object*(got 7)"},
  };
  for (const auto& [config, message] : mistakes) {
    const auto result = read(config);
    ASSERT_FALSE(result.ok()) << config;
    EXPECT_THAT(result.error().message, HasSubstr("quantization_config."));
    EXPECT_THAT(result.error().message, Says(message));
  }
}

}  // namespace
}  // namespace windlass::planner
