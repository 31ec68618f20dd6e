// Fuzz tests of config.json, which comes from outside: any content gives a valid shape or an error that names the file, never a
// crash or an overflow (sanitizers check).
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planner/base/rng.h"
#include "planner/catalog/model_shape.h"
#include "tests/effort.h"
#include "tests/unit/planner/catalog/configs.h"

namespace windlass::planner {
namespace {

using nlohmann::json;

template <class T>
const T& any_of(Rng& rng, const std::vector<T>& values) {
  return values[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(values.size()) - 1))];
}

// One object per architecture, with all of its fields.
std::vector<json> seeds() {
  std::vector<json> configs;
  for (const char* text :
       {testing::kLlama, testing::kMistral01, testing::kGemma2, testing::kQwen3Moe, testing::kDeepSeekV2Lite}) {
    configs.push_back(json::parse(text));
  }
  json all = json::parse(testing::kDeepSeekV2Lite);
  all.update(json::parse(testing::kQwen3Moe));
  all.update(json::parse(R"({"ffn_dim": 4096, "word_embed_proj_dim": 512, "n_layer": 2, "n_head": 16, "n_embed": 64,
    "seq_length": 2048, "new_decoder_architecture": true, "num_kv_heads": 8, "bias": true, "num_local_experts": 8,
    "layer_types": ["sliding_attention", "full_attention"], "mlp_only_layers": [1], "num_hidden_layers": 2,
    "use_sliding_window": true, "max_window_layers": 1, "head_dim": 128, "q_lora_rank": 64,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "bits": 4, "group_size": 128,
      "load_in_4bit": true, "modules_to_not_convert": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"],
      "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}}}})"));
  for (const char* type : {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "phi3", "opt", "bloom",
                           "gpt_neox", "falcon", "deepseek_v2", "deepseek_v3"}) {
    all["model_type"] = type;
    for (const char* method : {"fp8", "gptq", "awq", "bitsandbytes", "compressed-tensors", "gguf"}) {
      all["quantization_config"]["quant_method"] = method;
      configs.push_back(all);
    }
  }
  return configs;
}

void mutate(Rng& rng, json& config) {
  static const std::vector<json> kValues = {nullptr,
                                            0,
                                            1,
                                            -1,
                                            3,
                                            7,
                                            4096,
                                            10'000'000,
                                            10000001,
                                            1e18,
                                            0.5,
                                            true,
                                            false,
                                            "bfloat16",
                                            json::array(),
                                            json::object(),
                                            json::array({0, 1, "full_attention"}),
                                            INT64_MIN,
                                            UINT64_MAX};
  std::vector<std::string> keys;
  for (const auto& item : config.items()) keys.push_back(item.key());
  if (keys.empty()) return;
  json& value = config[any_of(rng, keys)];
  if (value.is_object() && rng.integer(0, 3) > 0) {
    mutate(rng, value);
  } else if (rng.integer(0, 9) == 0) {
    config.erase(any_of(rng, keys));
  } else {
    value = any_of(rng, kValues);
  }
}

// Given configs with one to four fields replaced or removed; expects a valid shape with finite, positive figures, or an error
// that begins with the file's name.
TEST(ModelConfigFuzz, AnyFieldsAreReadOrRefused) {
  const std::vector<json> configs = seeds();
  Rng rng(11, "configs");
  int read = 0;
  int refused = 0;
  for (int i = 0; i < effort(2000, 20'000); ++i) {
    json config = any_of(rng, configs);
    const auto mutations = rng.integer(0, 4);
    for (std::int64_t j = 0; j < mutations; ++j) mutate(rng, config);
    const auto shape = model_shape_from_config_json(config.dump());
    if (!shape.ok()) {
      ++refused;
      ASSERT_TRUE(shape.error().message.starts_with("config.json: ")) << shape.error().message;
      continue;
    }
    ++read;
    ASSERT_TRUE(validate(*shape).ok()) << config.dump();
    ASSERT_GT(parameter_count(*shape), 0) << config.dump();
    ASSERT_LE(active_parameter_count(*shape), parameter_count(*shape)) << config.dump();
    ASSERT_GT(active_matmul_parameter_count(*shape), 0) << config.dump();
    ASSERT_TRUE(std::isfinite(weight_bytes(*shape)) && weight_bytes(*shape) > 0) << config.dump();
    ASSERT_LE(matmul_weight_bytes_read(*shape, 7), matmul_weight_bytes(*shape) * (1 + 1e-12)) << config.dump();
    ASSERT_LE(kv_bytes(*shape, 1000), 1000 * kv_bytes_per_token(*shape)) << config.dump();
  }
  EXPECT_GT(read, effort(200, 3000));
  EXPECT_GT(refused, effort(200, 3000));
}

// Given a config with some bytes changed or cut off; expects the same.
TEST(ModelConfigFuzz, AnyBytesAreReadOrRefused) {
  Rng rng(12, "bytes");
  const std::vector<json> configs = seeds();
  for (int i = 0; i < effort(500, 5000); ++i) {
    std::string text = any_of(rng, configs).dump();
    const auto changes = rng.integer(1, 5);
    for (std::int64_t j = 0; j < changes; ++j) {
      text[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(text.size()) - 1))] =
          static_cast<char>(rng.integer(0, 255));
    }
    if (rng.integer(0, 3) == 0) text.resize(static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(text.size()))));
    const auto shape = model_shape_from_config_json(text);
    if (shape.ok()) {
      ASSERT_GT(parameter_count(*shape), 0);
    } else {
      ASSERT_TRUE(shape.error().message.starts_with("config.json: ")) << shape.error().message;
    }
  }
}

}  // namespace
}  // namespace windlass::planner
