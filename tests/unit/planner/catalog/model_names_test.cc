// Tests the models known by name against the parameter counts of their published checkpoints and against their papers.
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/catalog/model_shape.h"
#include "tests/says.h"
#include "tests/unit/planner/catalog/configs.h"
#include "tests/unit/planner/catalog/docs_table.h"

namespace windlass::planner {
namespace {

using ::testing::HasSubstr;

ModelShape shape_named(const std::string& name) { return model_shape_by_name(name).value(); }

// Given every name; expects the number of parameters of its checkpoint. The counts are Hugging Face's (safetensors index, or
// num_parameters() of the loaded model); BLOOM's is from its model card. For opt-66b and opt-175b no exact count is published;
// the list has the architecture's count, which must be within 3 % of the name.
TEST(ModelNames, CountTheParametersOfTheCheckpoints) {
  const std::map<std::string, std::int64_t> published = {
      {"llama2-7b", 6738415616},      {"llama2-13b", 13015864320},     {"llama2-70b", 68976648192},
      {"llama3-8b", 8030261248},      {"llama3-70b", 70553706496},     {"llama3.1-8b", 8030261248},
      {"llama3.1-70b", 70553706496},  {"llama3.1-405b", 405853388800}, {"mistral-7b", 7241732096},
      {"mixtral-8x7b", 46702792704},  {"qwen2.5-7b", 7615616512},      {"qwen2.5-32b", 32763876352},
      {"qwen2.5-72b", 72706203648},   {"qwen3-8b", 8190735360},        {"qwen3-32b", 32762123264},
      {"codellama-34b", 33743970304}, {"opt-13b", 12853473280},        {"opt-30b", 29974540288},
      {"bloom-176b", 176247271424},   {"deepseek-v3", 671026419200},   {"windlass-tiny", 3164416}};
  const std::map<std::string, std::pair<std::int64_t, double>> computed = {{"opt-66b", {65719701504, 66e9}},
                                                                           {"opt-175b", {174604468224, 175e9}}};
  for (const std::string& name : model_shape_names()) {
    const std::int64_t found = parameter_count(shape_named(name));
    if (const auto exact = published.find(name); exact != published.end()) {
      EXPECT_EQ(found, exact->second) << name;
      continue;
    }
    ASSERT_TRUE(computed.contains(name)) << name;
    const auto& [count, size] = computed.at(name);
    EXPECT_EQ(found, count) << name;
    EXPECT_NEAR(static_cast<double>(found), size, 0.03 * size) << name;
  }
  EXPECT_EQ(model_shape_names().size(), published.size() + computed.size());
}

// Given the two mixture-of-experts models; expects the active parameters stated in their papers: 13B of Mixtral's 47B ("Mixtral
// of Experts", 2024), 37B of DeepSeek-V3's 671B (its technical report, 2024). Given a dense model; expects all parameters.
TEST(ModelNames, KnowActiveParameters) {
  EXPECT_EQ(active_parameter_count(shape_named("mixtral-8x7b")), 12879925248);
  EXPECT_NEAR(static_cast<double>(active_parameter_count(shape_named("deepseek-v3"))), 37e9, 0.03 * 37e9);
  EXPECT_EQ(active_parameter_count(shape_named("llama3-8b")), parameter_count(shape_named("llama3-8b")));
}

// Given models whose KV cache is published; expects its bytes per token: Llama-2-70B 320 KiB (8 of 64 heads), OPT-13B 800 KB
// ("Efficient Memory Management for LLM Serving with PagedAttention", Section 3), DeepSeek-V3 70 KB (its "Insights" paper,
// Table 1: 70.272 KB; also LLaMA-3.1 405B 516.096 KB and Qwen-2.5 72B 327.680 KB).
TEST(ModelNames, KnowTheirCaches) {
  EXPECT_DOUBLE_EQ(kv_bytes_per_token(shape_named("llama2-70b")), 320 * 1024);
  EXPECT_DOUBLE_EQ(kv_bytes_per_token(shape_named("opt-13b")), 800 * 1024);
  EXPECT_DOUBLE_EQ(kv_bytes_per_token(shape_named("deepseek-v3")), 70272);
  EXPECT_DOUBLE_EQ(kv_bytes_per_token(shape_named("llama3.1-405b")), 516096);
  EXPECT_DOUBLE_EQ(kv_bytes_per_token(shape_named("qwen2.5-72b")), 327680);
}

// Given DeepSeek-V3's float8 checkpoint in blocks of 128 x 128; expects the published weights without the prediction module:
// one byte per weight in the blocks, two for embedding, output and router.
TEST(ModelNames, DeepSeekIsFloat8) {
  const ModelShape shape = shape_named("deepseek-v3");
  EXPECT_EQ(shape.dtype, DType::kBFloat16);
  EXPECT_EQ(compute_dtype(shape), DType::kFloat8);
  const double wide = 2.0 * 129280 * 7168 + 58.0 * 256 * 7168;  // embedding and output, routers
  EXPECT_NEAR(weight_bytes(shape), static_cast<double>(parameter_count(shape)) + wide, 0.001 * weight_bytes(shape));
}

// Given every name; expects a valid shape. Given an unknown one; expects an error that lists the known names.
TEST(ModelNames, UnknownNamesListTheKnownOnes) {
  for (const std::string& name : model_shape_names()) EXPECT_TRUE(validate(shape_named(name)).ok()) << name;
  const auto result = model_shape_by_name("gpt-5");
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, Says("must be one of llama2-7b, llama2-13b*(got 'gpt-5')"));
}

// Given a published config.json; expects the same shape as by name.
TEST(ModelNames, EqualTheConfigFile) {
  EXPECT_EQ(testing::parse(testing::kLlama), shape_named("llama3-8b"));
  const auto qwen = R"({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
    "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768,
    "dtype": "bfloat16", "use_sliding_window": false, "sliding_window": 131072, "max_window_layers": 28})";
  EXPECT_EQ(testing::parse(qwen), shape_named("qwen2.5-7b"));
}

// Given docs/catalog.md; expects its table of models to agree with the catalog.
TEST(ModelNames, DocsAgree) {
  const std::string page = testing::catalog_page();
  for (const std::string& name : model_shape_names()) EXPECT_THAT(page, HasSubstr(testing::model_row(name, shape_named(name))));
}

}  // namespace
}  // namespace windlass::planner
