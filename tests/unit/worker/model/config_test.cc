// config.json: what is accepted, and that every mistake is named with the rule and the value.
#include "worker/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/worker/model_files.h"
#include "worker/backend/cuda/memory_need.h"
#include "worker/model/tensor_slice.h"

namespace windlass::worker {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json good() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 64},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"intermediate_size", 128},
          {"vocab_size", 300},
          {"max_position_embeddings", 256},
          {"rms_norm_eps", 1e-5},
          {"hidden_act", "silu"},
          {"eos_token_id", {298, 299}}};
}

std::string error_of(const json& config) {
  const auto parsed = parse_model_config(config.dump(), "m/config.json");
  EXPECT_FALSE(parsed.ok());
  return parsed.ok() ? "" : parsed.error().message;
}

// Given a complete config; expects every field, and Hugging Face's defaults for absent ones.
TEST(Config, ReadsFieldsAndDefaults) {
  const auto config = parse_model_config(good().dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->kv_size(), 32);
  EXPECT_EQ(config->rope_theta, 10000);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(298, 299));
}

// Given no num_key_value_heads; expects as many as query heads. A given head_dim need not divide hidden_size.
TEST(Config, KvHeadsAndHeadDimAreOptional) {
  json root = good();
  root.erase("num_key_value_heads");
  root["head_dim"] = 24;
  const auto config = parse_model_config(root.dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->kv_heads, 4);
  EXPECT_EQ(config->q_size(), 96);
}

// Given each required field missing in turn; expects an error with the file, the field and the rule.
TEST(Config, NamesEachMissingField) {
  for (const char* field : {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
                            "max_position_embeddings", "rms_norm_eps"}) {
    json root = good();
    root.erase(field);
    const std::string message = error_of(root);
    EXPECT_THAT(message, HasSubstr("m/config.json"));
    EXPECT_THAT(message, HasSubstr("'" + std::string(field) + "': must be "));
  }
}

// Given several bad values; expects one message with all of them.
TEST(Config, NamesAllBadFieldsTogether) {
  json root = good();
  root["hidden_size"] = -3;
  root["num_hidden_layers"] = "two";
  root["rms_norm_eps"] = 0;
  root["hidden_act"] = "gelu";
  root["mlp_bias"] = true;
  root["architectures"] = {"GPT2LMHeadModel"};
  const std::string message = error_of(root);
  for (const char* part : {"'hidden_size': must be a whole number from 1", "(got \"two\")", "'rms_norm_eps': must be a number",
                           "'hidden_act': must be \"silu\" (got \"gelu\")", "'mlp_bias': must be false (got true)",
                           "must be [\"LlamaForCausalLM\"], [\"MistralForCausalLM\"], "
                           "[\"Qwen2ForCausalLM\"], [\"Qwen3ForCausalLM\"], [\"MixtralForCausalLM\"], "
                           "[\"Qwen3MoeForCausalLM\"], [\"OPTForCausalLM\"]"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

// Given sizes that do not match each other; expects an error with the field and the rule.
TEST(Config, ChecksRelationsBetweenFields) {
  json root = good();
  root["num_key_value_heads"] = 3;
  EXPECT_THAT(error_of(root), HasSubstr("'num_key_value_heads': must divide num_attention_heads, which is 4 (got 3)"));
  root = good();
  root["num_attention_heads"] = 5;
  EXPECT_THAT(error_of(root),
              HasSubstr("'num_attention_heads': must divide hidden_size, which is 64, if head_dim is not given (got 5)"));
  root = good();
  root["head_dim"] = 15;
  EXPECT_THAT(error_of(root), HasSubstr("'head_dim': must be even (got 15)"));
  root = good();
  root["eos_token_id"] = 300;
  EXPECT_THAT(error_of(root), HasSubstr("'eos_token_id': must be below vocab_size, which is 300 (got 300)"));
}

json of_type(const char* type, const char* class_name) {
  json root = good();
  root["model_type"] = type;
  root["architectures"] = {class_name};
  return root;
}

ModelConfig read(const json& root) {
  const auto config = parse_model_config(root.dump(), "config.json");
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : ModelConfig{};
}

// Given each architecture, by `architectures` or model_type; expects transformers' biases, norms and head size.
TEST(Config, KnowsWhatEachArchitectureHas) {
  json llama = good();
  EXPECT_FALSE(read(llama).qkv_bias);
  llama["attention_bias"] = true;
  EXPECT_TRUE(read(llama).qkv_bias);
  EXPECT_TRUE(read(llama).attention_out_bias);

  json qwen2 = of_type("qwen2", "Qwen2ForCausalLM");
  EXPECT_TRUE(read(qwen2).qkv_bias);
  EXPECT_FALSE(read(qwen2).attention_out_bias);
  EXPECT_FALSE(read(qwen2).qk_norm);
  qwen2.erase("architectures");
  EXPECT_EQ(read(qwen2).architecture, Architecture::kQwen2);

  json qwen3 = of_type("qwen3", "Qwen3ForCausalLM");
  EXPECT_TRUE(read(qwen3).qk_norm);
  EXPECT_FALSE(read(qwen3).qkv_bias);
  EXPECT_EQ(read(qwen3).head_dim, 128) << "not hidden_size / heads";
  qwen3["model_type"] = "qwen2";
  EXPECT_THAT(error_of(qwen3), HasSubstr("'model_type': must be \"qwen3\" (got \"qwen2\")"));
}

json good_opt() {
  return {{"architectures", {"OPTForCausalLM"}},
          {"model_type", "opt"},
          {"hidden_size", 64},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"ffn_dim", 256},
          {"vocab_size", 300},
          {"max_position_embeddings", 128},
          {"do_layer_norm_before", true},
          {"_remove_final_layer_norm", false},
          {"activation_function", "relu"},
          {"word_embed_proj_dim", 64},
          {"eos_token_id", 2}};
}

// Given OPT's config with its own field names; expects its layers' features, and a tied head unless it says otherwise.
TEST(Config, ReadsOpt) {
  json root = good_opt();
  const ModelConfig config = read(root);
  EXPECT_EQ(config.architecture, Architecture::kOpt);
  EXPECT_EQ(config.intermediate_size, 256);
  EXPECT_EQ(config.mlp_in_size(256), 256);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.norm, Norm::kLayer);
  EXPECT_EQ(config.positions, Positions::kLearned);
  EXPECT_EQ(config.activation, Activation::kRelu);
  EXPECT_TRUE(config.qkv_bias && config.attention_out_bias && config.mlp_bias && config.tie_word_embeddings);
  EXPECT_FALSE(config.qk_norm);
  root["tie_word_embeddings"] = false;
  EXPECT_FALSE(read(root).tie_word_embeddings);
  for (const char* field : {"word_embed_proj_dim", "do_layer_norm_before", "activation_function", "architectures"}) {
    root = good_opt();
    root.erase(field);
    EXPECT_EQ(read(root).norm, Norm::kLayer) << field;
  }
}

// Given OPT-350M's own fields; expects norms after each part, and a separate embedding width if it differs.
TEST(Config, ReadsOpt350m) {
  json root = good_opt();
  EXPECT_FALSE(read(root).norm_after);
  EXPECT_EQ(read(root).embedding_size, 0);
  EXPECT_EQ(read(root).embedding_width(), 64);
  root["word_embed_proj_dim"] = 32;
  root["do_layer_norm_before"] = false;
  const ModelConfig config = read(root);
  EXPECT_TRUE(config.norm_after);
  EXPECT_EQ(config.embedding_size, 32);
  EXPECT_EQ(config.embedding_width(), 32);
  EXPECT_TRUE(check_tensor_parallel(config, 1).ok());
  EXPECT_THAT(check_tensor_parallel(config, 2).error().message,
              HasSubstr("--tensor-parallel: must be 1 for this model (got 2): config.json's word_embed_proj_dim (32)"));
  EXPECT_TRUE(cuda::check_cuda_model(config).ok());
}

// Given an unsupported OPT variant, or a missing field; expects each field to be named.
TEST(Config, NamesUnsupportedOptFields) {
  json root = good_opt();
  root["word_embed_proj_dim"] = 0;
  root["do_layer_norm_before"] = "no";
  root["activation_function"] = "gelu";
  root["enable_bias"] = false;
  root["layer_norm_elementwise_affine"] = false;
  root["_remove_final_layer_norm"] = true;
  root.erase("ffn_dim");
  const std::string message = error_of(root);
  for (const char* part :
       {"'word_embed_proj_dim': must be a whole number from 1 to 1048576 (got 0)",
        "'do_layer_norm_before': must be true or false (got \"no\")", "'activation_function': must be \"relu\" (got \"gelu\")",
        "'enable_bias': must be true (got false)", "'layer_norm_elementwise_affine': must be true (got false)",
        "'_remove_final_layer_norm': must be false (got true)", "'ffn_dim': must be a whole number from 1"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
  root = good_opt();
  root["num_attention_heads"] = 5;
  EXPECT_THAT(error_of(root), ::testing::EndsWith("'num_attention_heads': must divide hidden_size, which is 64 (got 5)"));
}

// Given Mixtral's config; expects experts of the MLP's width in each layer, with weights that sum to 1, and Mistral's windows.
TEST(Config, ReadsMixtral) {
  json root = of_type("mixtral", "MixtralForCausalLM");
  root["num_local_experts"] = 8;
  root["num_experts_per_tok"] = 2;
  root["sliding_window"] = 50;
  const ModelConfig config = read(root);
  EXPECT_EQ(config.experts, 8);
  EXPECT_EQ(config.experts_per_token, 2);
  EXPECT_EQ(config.expert_intermediate_size, 128);
  EXPECT_TRUE(config.normalise_expert_weights);
  EXPECT_TRUE(config.has_experts(0) && config.has_experts(1));
  EXPECT_FALSE(config.has_mlp());
  EXPECT_EQ(config.window_of(1), 50);
  EXPECT_EQ(config.rope_theta, 1e6) << "transformers' default";
  EXPECT_FALSE(config.qkv_bias || config.qk_norm);
  root["num_experts_per_tok"] = 9;
  EXPECT_THAT(error_of(root), HasSubstr("'num_experts_per_tok': must be at most num_local_experts, which is 8 (got 9)"));
  root.erase("num_experts_per_tok");
  root.erase("num_local_experts");
  EXPECT_THAT(error_of(root), HasSubstr("'num_local_experts': must be a whole number from 1"));
  EXPECT_THAT(error_of(root), HasSubstr("'num_experts_per_tok': must be a whole number from 1"));
}

// Given Qwen3-MoE's config, with the old or new name for the number of experts; expects the same layers with experts as in
// transformers: every decoder_sparse_step-th, except mlp_only_layers.
TEST(Config, ReadsQwen3Moe) {
  json root = of_type("qwen3_moe", "Qwen3MoeForCausalLM");
  root.update({{"num_hidden_layers", 6}, {"num_experts", 8}, {"num_experts_per_tok", 3}, {"moe_intermediate_size", 24}});
  ModelConfig config = read(root);
  EXPECT_EQ(config.experts, 8);
  EXPECT_EQ(config.expert_intermediate_size, 24);
  EXPECT_EQ(config.intermediate_size, 128);
  EXPECT_EQ(config.head_dim, 16) << "of the hidden size, unlike Qwen3";
  EXPECT_TRUE(config.qk_norm);
  EXPECT_FALSE(config.normalise_expert_weights || config.has_mlp());
  root["norm_topk_prob"] = true;
  root["decoder_sparse_step"] = 2;
  root["mlp_only_layers"] = {3};
  root["num_local_experts"] = 4;
  root.erase("num_experts");
  config = read(root);
  EXPECT_TRUE(config.normalise_expert_weights && config.has_mlp());
  EXPECT_EQ(config.experts, 4);
  for (const std::int64_t layer : {0, 1, 2, 3, 4, 5}) {
    EXPECT_EQ(config.has_experts(layer), layer == 1 || layer == 5) << layer;
  }
  root["mlp_only_layers"] = {6};
  root["decoder_sparse_step"] = 0;
  root["norm_topk_prob"] = "yes";
  root.erase("moe_intermediate_size");
  const std::string message = error_of(root);
  for (const char* part : {"'mlp_only_layers': must be a list of layers from 0 to 5 (got [6])",
                           "'decoder_sparse_step': must be a whole number from 1 to 16384 (got 0)",
                           "'norm_topk_prob': must be true or false (got \"yes\")", "'moe_intermediate_size': must be "}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
  root = of_type("qwen3_moe", "Qwen3MoeForCausalLM");
  root.update({{"num_experts", 8}, {"num_experts_per_tok", 3}, {"moe_intermediate_size", 24}, {"sliding_window", 50}});
  EXPECT_EQ(read(root).window_of(0), 0) << "not asked for";
  root["use_sliding_window"] = true;
  EXPECT_EQ(read(root).window_of(0), 50);
  EXPECT_EQ(read(root).window_of(1), 50);
}

// Given each notation for windows; expects each layer's own window.
TEST(Config, ReadsSlidingWindows) {
  json mistral = of_type("mistral", "MistralForCausalLM");
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(read(mistral).window_of(0), 0);
  mistral["sliding_window"] = 100;
  EXPECT_EQ(read(mistral).window_of(0), 100);
  EXPECT_EQ(read(mistral).window_of(1), 100);

  json qwen = of_type("qwen2", "Qwen2ForCausalLM");
  qwen["sliding_window"] = 100;
  qwen["max_window_layers"] = 1;
  EXPECT_EQ(read(qwen).window_of(1), 0) << "not asked for";
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(read(qwen).window_of(0), 0);
  EXPECT_EQ(read(qwen).window_of(1), 100);
  qwen["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(read(qwen).window_of(0), 100);
  EXPECT_EQ(read(qwen).window_of(1), 0);
  qwen["layer_types"] = {"sliding_attention"};
  EXPECT_THAT(error_of(qwen), HasSubstr("'layer_types': must be a list of 2 times"));
  qwen.erase("layer_types");
  qwen.erase("max_window_layers");
  EXPECT_THAT(error_of(qwen), HasSubstr("'max_window_layers': must be a whole number from 0"));
}

// Given Llama 3's frequency scaling in both of transformers' notations; expects it, and an error for an unknown kind.
TEST(Config, ReadsRopeScaling) {
  const json llama3 = {
      {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  json root = good();
  root["rope_scaling"] = llama3;
  root["rope_scaling"]["rope_type"] = "llama3";
  root["rope_theta"] = 500000.0;
  auto config = parse_model_config(root.dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(config->rope_scaling.factor, 8);
  EXPECT_EQ(config->rope_theta, 500000);

  root = good();
  root["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 20000.0}};
  config = parse_model_config(root.dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->rope_theta, 20000);

  root["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 4}};
  EXPECT_THAT(error_of(root), HasSubstr("'rope_parameters.rope_type': must be "));
}

// Given text that is not a JSON object, or no folder; expects an error with the file.
TEST(Config, RefusesInvalidConfigs) {
  EXPECT_THAT(parse_model_config("{", "a/config.json").error().message, HasSubstr("a/config.json: not JSON"));
  EXPECT_THAT(parse_model_config("[1]", "a/config.json").error().message, HasSubstr("must be a JSON object"));
  const auto absent = load_model_config("/nowhere/at/all");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("/nowhere/at/all: no such model; it must be a GGUF file, or a folder"));
}

// Given a generation_config.json; expects its end-of-sequence ids to win and its sampling defaults to apply, and values out of
// bounds to be named.
TEST(Config, ReadsGenerationConfig) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder.path() / "config.json", good().dump());
  testing::write_bytes(folder.path() / "generation_config.json",
                       R"({"eos_token_id": 5, "temperature": 0.6, "top_k": 20, "do_sample": true})");
  const auto config = load_model_config(folder.path());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_THAT(config->eos_token_ids, ElementsAre(5));
  EXPECT_EQ(config->sampling.temperature, 0.6);
  EXPECT_EQ(config->sampling.top_k, 20);
  EXPECT_EQ(config->sampling.top_p, std::nullopt);
  const auto wrong = parse_generation_config(R"({"temperature": 3, "top_k": 0.5})", "g.json");
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message,
              HasSubstr("g.json: field 'temperature': must be a number from 0 to 2 (got 3); field 'top_k'"));
}

}  // namespace
}  // namespace windlass::worker
