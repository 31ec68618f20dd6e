// Tests a config.json of every architecture against the parameter count of the published checkpoint (Hugging Face's safetensors
// index, or num_parameters() of the loaded model), and every error by its field.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/catalog/model_shape.h"
#include "tests/says.h"
#include "tests/unit/planner/catalog/configs.h"

namespace windlass::planner {
namespace {

using ::testing::HasSubstr;
using testing::kDeepSeekV2Lite;
using testing::kGemma2;
using testing::kLlama;
using testing::kMistral01;
using testing::kQwen3Moe;
using testing::parse;
using testing::replaced;

// Given published config.json files of all architectures; expects the exact parameter counts of their checkpoints.
TEST(ModelConfig, CountsTheParametersOfEveryArchitecture) {
  struct Known {
    const char* name;
    std::string config;
    std::int64_t parameters;
  };
  const Known known[] = {
      {"Llama-3-8B", kLlama, 8030261248},
      {"Llama-3.2-1B, tied", R"({"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "head_dim": 64,
        "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 131072, "tie_word_embeddings": true})",
       1235814400},
      {"Mistral-7B-v0.1", kMistral01, 7241732096},
      {"Mistral-7B-v0.3", replaced(kMistral01, "32000", "32768"), 7248023552},
      {"Qwen2.5-0.5B, tied, with biases", R"({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
        "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "vocab_size": 151936,
        "max_position_embeddings": 32768, "tie_word_embeddings": true})",
       494032768},
      {"Qwen3-0.6B, tied, heads wider than the model", R"({"model_type": "qwen3", "hidden_size": 1024, "head_dim": 128,
        "intermediate_size": 3072, "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
        "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": true})",
       596049920},
      {"Qwen3-30B-A3B", kQwen3Moe, 30532122624},
      {"Qwen3-235B-A22B", R"({"model_type": "qwen3_moe", "hidden_size": 4096, "head_dim": 128, "intermediate_size": 12288,
        "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8, "num_attention_heads": 64,
        "num_hidden_layers": 94, "num_key_value_heads": 4, "vocab_size": 151936, "max_position_embeddings": 40960})",
       235093634560},
      {"Gemma-2-9B", kGemma2, 9241705984},
      {"Gemma-2-2B", R"({"model_type": "gemma2", "head_dim": 256, "hidden_size": 2304, "intermediate_size": 9216,
        "max_position_embeddings": 8192, "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4,
        "vocab_size": 256000})",
       2614341888},
      {"Gemma-2-27B", R"({"model_type": "gemma2", "head_dim": 128, "hidden_size": 4608, "intermediate_size": 36864,
        "max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 46, "num_key_value_heads": 16,
        "vocab_size": 256000})",
       27227128320},
      {"Phi-3-mini-4k", R"({"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "vocab_size": 32064, "max_position_embeddings": 4096,
        "sliding_window": 2047})",
       3821079552},
      {"Phi-4", R"({"model_type": "phi3", "hidden_size": 5120, "intermediate_size": 17920, "num_attention_heads": 40,
        "num_hidden_layers": 40, "num_key_value_heads": 10, "vocab_size": 100352, "max_position_embeddings": 16384,
        "sliding_window": null})",
       14659507200},
      {"OPT-125M", R"({"model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_attention_heads": 12,
        "num_hidden_layers": 12, "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 768,
        "do_layer_norm_before": true})",
       125239296},
      {"OPT-350M, norms behind, narrow embedding", R"({"model_type": "opt", "hidden_size": 1024, "ffn_dim": 4096,
        "num_attention_heads": 16, "num_hidden_layers": 24, "vocab_size": 50272, "max_position_embeddings": 2048,
        "word_embed_proj_dim": 512, "do_layer_norm_before": false})",
       331196416},
      {"OPT-6.7B", R"({"model_type": "opt", "hidden_size": 4096, "ffn_dim": 16384, "num_attention_heads": 32,
        "num_hidden_layers": 32, "vocab_size": 50272, "max_position_embeddings": 2048})",
       6658473984},
      {"BLOOM-560M", R"({"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16,
        "vocab_size": 250880})",
       559214592},
      {"BLOOM-7B1", R"({"model_type": "bloom", "hidden_size": 4096, "n_layer": 30, "n_head": 32, "vocab_size": 250880})",
       7069016064},
      {"GPT-NeoX-20B", R"({"model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576, "vocab_size": 50432,
        "num_attention_heads": 64, "num_hidden_layers": 44, "max_position_embeddings": 2048})",
       20554567680},
      {"Pythia-6.9B", R"({"model_type": "gpt_neox", "hidden_size": 4096, "intermediate_size": 16384, "vocab_size": 50432,
        "num_attention_heads": 32, "num_hidden_layers": 32, "max_position_embeddings": 2048})",
       6857302016},
      {"Falcon-7B, multi-query", R"({"model_type": "falcon", "alibi": false, "bias": false, "hidden_size": 4544,
        "multi_query": true, "new_decoder_architecture": false, "num_attention_heads": 71, "num_hidden_layers": 32,
        "parallel_attn": true, "vocab_size": 65024})",
       6921720704},
      {"DeepSeek-V2-Lite", kDeepSeekV2Lite, 15706484224},
      {"DeepSeek-V2", R"({"model_type": "deepseek_v2", "first_k_dense_replace": 1, "hidden_size": 5120,
        "intermediate_size": 12288, "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 1536,
        "moe_layer_freq": 1, "n_routed_experts": 160, "n_shared_experts": 2, "num_attention_heads": 128,
        "num_experts_per_tok": 6, "num_hidden_layers": 60, "num_key_value_heads": 128, "q_lora_rank": 1536,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400})",
       235741434880},
  };
  for (const Known& each : known) EXPECT_EQ(parameter_count(parse(each.config)), each.parameters) << each.name;
}

// Given config.json of Falcon-40B and Falcon-RW-1B, whose exact counts are unknown here; expects the sizes in their names and
// the structure that distinguishes them.
TEST(ModelConfig, ReadsTheOtherFalcons) {
  const ModelShape large = parse(R"({"model_type": "falcon", "bias": false, "hidden_size": 8192, "multi_query": true,
    "new_decoder_architecture": true, "num_attention_heads": 128, "num_hidden_layers": 60, "num_kv_heads": 8,
    "parallel_attn": true, "vocab_size": 65024})");
  EXPECT_EQ(large.kv_heads, 8);
  EXPECT_EQ(large.norms_per_layer, 2);
  EXPECT_TRUE(large.parallel_attention);
  EXPECT_NEAR(static_cast<double>(parameter_count(large)), 41e9, 0.03 * 41e9);
  const ModelShape small = parse(R"({"model_type": "falcon", "alibi": true, "bias": true, "hidden_size": 2048,
    "multi_query": false, "new_decoder_architecture": false, "num_attention_heads": 32, "num_hidden_layers": 24,
    "parallel_attn": false, "vocab_size": 50304})");
  EXPECT_EQ(small.kv_heads, 32);
  EXPECT_FALSE(small.parallel_attention);
  EXPECT_TRUE(small.qkv_bias && small.attention_output_bias && small.mlp_bias);
  EXPECT_NEAR(static_cast<double>(parameter_count(small)), 1.3e9, 0.03 * 1.3e9);
}

// Given files without optional fields; expects the architecture's defaults.
TEST(ModelConfig, KnowsTheDefaults) {
  const ModelShape old = parse(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100, "max_position_embeddings": 256, "head_dim": null})");
  EXPECT_EQ(old.kv_heads, 4);
  EXPECT_EQ(old.head_dim, 16);
  EXPECT_EQ(old.dtype, DType::kFloat32);
  EXPECT_FALSE(old.tied_embeddings);
  EXPECT_TRUE(parse(kGemma2).tied_embeddings);
  EXPECT_FALSE(parse(replaced(kGemma2, "\"head_dim\"", "\"tie_word_embeddings\": false, \"head_dim\"")).tied_embeddings);
  EXPECT_EQ(
      parse(R"({"model_type": "bloom", "hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100})").max_context_tokens,
      2048);
  EXPECT_EQ(parse(replaced(kLlama, "\"torch_dtype\"", "\"dtype\"")).dtype, DType::kBFloat16);
}

// Given a Llama config with biases; expects them counted: Q, K, V, output, and the three of the MLP.
TEST(ModelConfig, CountsBiases) {
  const std::int64_t plain = parameter_count(parse(kLlama));
  EXPECT_EQ(parameter_count(parse(replaced(kLlama, "\"rope_theta\"", "\"attention_bias\": true, \"rope_theta\""))) - plain,
            32 * (4096 + 2 * 1024 + 4096));
  EXPECT_EQ(parameter_count(parse(replaced(kLlama, "\"rope_theta\"", "\"mlp_bias\": true, \"rope_theta\""))) - plain,
            32 * (2 * 14336 + 4096));
}

// Given each architecture's fields for sliding windows; expects the number of layers with a window, and its tokens.
TEST(ModelConfig, ReadsSlidingWindows) {
  EXPECT_EQ(parse(kMistral01).sliding_window, (SlidingWindow{4096, 32}));
  EXPECT_EQ(parse(replaced(kMistral01, "\"sliding_window\": 4096,", "")).sliding_window, (SlidingWindow{4096, 32}));
  EXPECT_EQ(parse(replaced(kMistral01, "4096,\n  \"max", "null,\n  \"max")).sliding_window, std::nullopt);
  EXPECT_EQ(parse(kGemma2).sliding_window, (SlidingWindow{4096, 21}));
  const std::string odd = replaced(kGemma2, "\"num_hidden_layers\": 42", "\"num_hidden_layers\": 3");
  EXPECT_EQ(parse(odd).sliding_window, (SlidingWindow{4096, 2}));
  const std::string listed =
      replaced(odd, "\"head_dim\"", R"("layer_types": ["full_attention", "sliding_attention", "full_attention"], "head_dim")");
  EXPECT_EQ(parse(listed).sliding_window, (SlidingWindow{4096, 1}));
  const std::string qwen = R"({"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_hidden_layers": 10, "vocab_size": 100, "max_position_embeddings": 256, "sliding_window": 64,
    "use_sliding_window": true, "max_window_layers": 7})";
  EXPECT_EQ(parse(qwen).sliding_window, (SlidingWindow{64, 3}));
  EXPECT_EQ(parse(replaced(qwen, "true", "false")).sliding_window, std::nullopt);
}

// Given Qwen3-MoE and DeepSeek configs in which only some layers have experts; expects how many.
TEST(ModelConfig, CountsLayersWithExperts) {
  EXPECT_EQ(parse(kQwen3Moe).experts->layers, 48);
  const std::string every_second = replaced(kQwen3Moe, "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 2");
  EXPECT_EQ(parse(every_second).experts->layers, 24);  // layers 1, 3, ...
  EXPECT_EQ(parse(replaced(every_second, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [0, 1, 3]")).experts->layers, 22);
  const ModelShape lite = parse(kDeepSeekV2Lite);
  EXPECT_EQ(*lite.experts, (MixtureOfExperts{64, 6, 1408, 2 * 1408, 26, false}));
  EXPECT_EQ(*lite.latent_attention, (LatentAttention{512, 0, 128, 64, 128}));
  const std::string second = replaced(kDeepSeekV2Lite, "\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2");
  EXPECT_EQ(parse(second).experts->layers, 13);  // layers 2, 4, ... 26
}

// Given a config.json with one error each; expects the field, what was found and what is allowed.
TEST(ModelConfig, NamesEveryMistake) {
  const std::pair<std::string, std::string> mistakes[] = {
      {"{", "config.json: not valid JSON"},
      {"[]", "config.json: the document: must be an object*(got [])"},
      {replaced(kLlama, "\"llama\"", "\"mamba\""),
       "model_type: must be \"llama\", \"mistral\", \"mixtral\", \"qwen2\", \"qwen3\", \"qwen3_moe\", \"gemma2\", \"phi3\", "
       "\"opt\", \"bloom\", \"gpt_neox\", \"falcon\", \"deepseek_v2\" or \"deepseek_v3\"*(got \"mamba\")"},
      {replaced(kLlama, "\"hidden_size\": 4096,", ""), "hidden_size: missing"},
      {replaced(kLlama, "\"hidden_size\": 4096", "\"hidden_size\": 0"), "hidden_size: must be an integer from 1*(got 0)"},
      {replaced(kLlama, "\"hidden_size\": 4096", "\"hidden_size\": 4097"),
       "hidden_size: must be a multiple of num_attention_heads (32)*(got 4097)"},
      {replaced(kLlama, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 5"),
       "num_key_value_heads: must divide num_attention_heads, 32*(got 5)"},
      {replaced(kLlama, "\"num_hidden_layers\": 32", "\"num_hidden_layers\": -1"),
       "num_hidden_layers: must be an integer from 1*(got -1)"},
      {replaced(kLlama, "\"num_hidden_layers\": 32", "\"num_hidden_layers\": 20000"),
       "num_hidden_layers: must be from 1 to 10000*(got 20000)"},
      {replaced(kLlama, "\"vocab_size\": 128256", "\"vocab_size\": \"many\""), "vocab_size: must be an integer*(got \"many\")"},
      {replaced(kLlama, "\"bfloat16\"", "\"float64\""), "torch_dtype: must be \"float32\"*(got \"float64\")"},
      {replaced(kLlama, "false", "1"), "tie_word_embeddings: must be true or false*(got 1)"},
      {replaced(kLlama, "\"rope_theta\": 500000.0", "\"quantization_config\": {\"bits\": 4}"),
       "quantization_config.quant_method: missing"},
      {replaced(kGemma2, "\"head_dim\"", "\"layer_types\": [\"full_attention\"], \"head_dim\""),
       "layer_types: must be a list of num_hidden_layers (42) entries*(got 1)"},
      {replaced(kGemma2, "\"head_dim\"", "\"layer_types\": [\"chunked\"], \"head_dim\""),
       "layer_types[0]: must be \"full_attention\" or \"sliding_attention\"*(got \"chunked\")"},
      {replaced(kQwen3Moe, "\"num_experts\": 128", "\"num_experts\": 4"), "num_experts_per_tok: must be from 1 to 4*(got 8)"},
      {replaced(kQwen3Moe, "\"num_experts\": 128", "\"num_experts\": 100000"),
       "width of all experts of a layer: must be from 1 to 10000000*(got 76800000)"},
      {replaced(kQwen3Moe, "\"moe_intermediate_size\": 768,", ""), "moe_intermediate_size: missing"},
      {replaced(kDeepSeekV2Lite, "\"kv_lora_rank\": 512,", ""), "kv_lora_rank: missing"},
      {replaced(kDeepSeekV2Lite, "\"attention_bias\": false", "\"attention_bias\": true"),
       "attention_bias: must be false*(got true)"},
      {R"({"model_type": "bloom", "n_layer": 2, "n_head": 4, "vocab_size": 100})", "hidden_size: missing"},
      {R"({"model_type": "opt", "hidden_size": 4096})", "num_hidden_layers: missing"},
  };
  for (const auto& [text, message] : mistakes) {
    const auto result = model_shape_from_config_json(text);
    ASSERT_FALSE(result.ok()) << message;
    EXPECT_THAT(result.error().message, Says(message));
    EXPECT_THAT(result.error().message, HasSubstr("config.json"));
  }
}

}  // namespace
}  // namespace windlass::planner
