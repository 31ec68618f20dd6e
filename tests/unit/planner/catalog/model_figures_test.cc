// Tests the figures derived from a shape against sums by hand and simple loops.
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/catalog/model_shape.h"
#include "planner/catalog/weight_matrices.h"
#include "tests/effort.h"
#include "tests/unit/planner/catalog/configs.h"

namespace windlass::planner {
namespace {

// Given a shape small enough for paper; expects the sums computed by hand.
TEST(ModelFigures, FollowFromTheSizes) {
  ModelShape shape = testing::paper_shape();
  // Per layer: Q and O 4x4 each, K and V 4x2 each, three MLP matrices 4x8: 16 + 16 + 8 + 8 + 96 = 144. Two layers, plus 40 for
  // the output.
  EXPECT_EQ(matmul_parameter_count(shape), 2 * 144 + 40);
  // plus the input embedding (40) and five norms of 4
  EXPECT_EQ(parameter_count(shape), 328 + 40 + 20);
  EXPECT_DOUBLE_EQ(weight_bytes(shape), 388 * 2);
  EXPECT_DOUBLE_EQ(matmul_weight_bytes(shape), 328 * 2);
  EXPECT_DOUBLE_EQ(matmul_weight_bytes_read(shape, 5), 328 * 2);
  EXPECT_DOUBLE_EQ(kv_bytes_per_token(shape), 2 * 2 * 2 * 2);  // K and V, layers, width, bytes
  EXPECT_DOUBLE_EQ(kv_bytes(shape, 10), 10 * 16);
  EXPECT_EQ(kv_shards(shape), 1);
  EXPECT_DOUBLE_EQ(flops_per_token(shape), 656);
  EXPECT_DOUBLE_EQ(attention_flops_per_token(shape, 10),
                   2 * 2 * 4 * 10 * 2);  // scores and values, 2 FLOP each, width 4, 2 layers
  EXPECT_DOUBLE_EQ(decode_attention_flops_per_token(shape, 10), attention_flops_per_token(shape, 10));
  shape.tied_embeddings = true;
  EXPECT_EQ(parameter_count(shape), 328 + 20);
  shape.qkv_bias = true;
  EXPECT_EQ(parameter_count(shape), 328 + 20 + 2 * (4 + 2 + 2));
}

// Given the same shape in GPT's style; expects two MLP matrices, a bias for every matrix of the blocks and every norm, and a
// position table.
TEST(ModelFigures, FollowFromTheSizesInGptStyle) {
  ModelShape shape = testing::paper_shape();
  shape.gated_mlp = false;
  shape.qkv_bias = shape.attention_output_bias = shape.mlp_bias = shape.norm_bias = true;
  shape.position_rows = 7;
  // per layer: attention 48, MLP 2 x 32; biases: QKV 8, output 4, MLP 8 + 4; two norms of 4 + 4
  EXPECT_EQ(matmul_parameter_count(shape), 2 * (48 + 64) + 40);
  EXPECT_EQ(parameter_count(shape), 264 + 40 + 7 * 4 + 2 * (24 + 16) + 8);
}

// Given the same shape with 4 experts of width 3 in one layer, 2 per token, and a shared expert of width 5; expects what is
// stored, what a token uses and what a batch reads.
TEST(ModelFigures, FollowFromTheSizesWithExperts) {
  ModelShape shape = testing::paper_shape();
  shape.experts = MixtureOfExperts{4, 2, 3, 5, 1, true};
  // attention 2 x 48, the dense layer 96, router 4 x 4, experts 4 x 3 x 12, shared 3 x 20, output 40
  EXPECT_EQ(matmul_parameter_count(shape), 96 + 96 + 16 + 144 + 60 + 40);
  EXPECT_EQ(active_matmul_parameter_count(shape), 452 - 72);
  EXPECT_EQ(parameter_count(shape), 452 + 40 + 20 + 4);
  EXPECT_EQ(active_parameter_count(shape), 516 - 72);
  EXPECT_DOUBLE_EQ(flops_per_token(shape), 2 * 380);
  EXPECT_DOUBLE_EQ(matmul_weight_bytes_read(shape, 1), 2 * 380);
  EXPECT_DOUBLE_EQ(matmul_weight_bytes_read(shape, 2), 2 * (452 - 36));  // 3 of 4 experts are expected
  EXPECT_NEAR(matmul_weight_bytes_read(shape, 1000), matmul_weight_bytes(shape), 1e-9);
}

// Given the same shape with latent attention; expects its five matrices, two more norms, and a cache of one vector and one
// rotary key.
TEST(ModelFigures, FollowFromTheSizesWithLatentAttention) {
  ModelShape shape = testing::paper_shape();
  shape.kv_heads = 2;
  shape.head_dim = 5;
  shape.latent_attention = LatentAttention{6, 7, 3, 2, 4};
  EXPECT_TRUE(validate(shape).ok());
  // query down 7x4 and up 10x7, KV down 8x4 and up 14x6, output 4x8; MLP 96
  const int attention = 28 + 70 + 32 + 84 + 32;
  EXPECT_EQ(matmul_parameter_count(shape), 2 * (attention + 96) + 40);
  EXPECT_EQ(parameter_count(shape), 2 * (attention + 96) + 40 + 40 + 20 + 2 * (6 + 7));
  EXPECT_DOUBLE_EQ(kv_bytes_per_token(shape), 2 * (6 + 2) * 2);
  EXPECT_EQ(kv_shards(shape), 1);
  EXPECT_DOUBLE_EQ(attention_flops_per_token(shape, 10), 2 * 2 * 2 * (5 + 4) * 10);         // layers, FLOP, heads
  EXPECT_DOUBLE_EQ(decode_attention_flops_per_token(shape, 10), 2 * 2 * 2 * (8 + 6) * 10);  // against the compressed cache
  shape.latent_attention->query_rank = 0;
  EXPECT_EQ(matmul_parameter_count(shape), 2 * (10 * 4 + 32 + 84 + 32 + 96) + 40);
}

// Given few experts and tokens; expects the mean over every possible choice of each token.
TEST(ModelFigures, DistinctExpertsAreTheMeanOverAllChoices) {
  for (int experts = 1; experts <= 5; ++experts) {
    for (int chosen = 1; chosen <= experts; ++chosen) {
      std::vector<unsigned> choices;
      for (unsigned set = 0; set < (1U << experts); ++set) {
        if (std::popcount(set) == chosen) choices.push_back(set);
      }
      ModelShape shape = testing::paper_shape();
      shape.experts = MixtureOfExperts{experts, chosen, 3, 0, 2, false};
      std::vector<unsigned> unions = {0};
      for (int tokens = 0; tokens <= 3; ++tokens) {
        double sum = 0;
        for (unsigned set : unions) sum += std::popcount(set);
        EXPECT_NEAR(expected_distinct_experts(shape, tokens), sum / static_cast<double>(unions.size()), 1e-9)
            << experts << " " << chosen << " " << tokens;
        std::vector<unsigned> next;
        for (unsigned set : unions) {
          for (unsigned choice : choices) next.push_back(set | choice);
        }
        unions = std::move(next);
      }
    }
  }
  EXPECT_EQ(expected_distinct_experts(testing::paper_shape(), 10), 0);
}

ModelShape random_shape(Rng& rng) {
  const auto between = [&](int low, int high) { return static_cast<int>(rng.integer(low, high)); };
  const auto coin = [&] { return rng.integer(0, 1) == 1; };
  ModelShape shape;
  shape.layers = between(1, 6);
  shape.hidden = between(1, 40);
  shape.kv_heads = between(1, 4);
  shape.heads = shape.kv_heads * between(1, 4);
  shape.head_dim = between(1, 16);
  shape.intermediate = between(1, 60);
  shape.vocab = between(1, 100);
  shape.max_context_tokens = 100;
  shape.tied_embeddings = coin();
  shape.gated_mlp = coin();
  if (coin()) shape.embedding_dim = between(1, 40);
  if (coin()) shape.position_rows = between(1, 50);
  if (coin()) shape.sliding_window = SlidingWindow{between(1, 30), between(1, shape.layers)};
  if (coin()) {
    const int experts = between(1, 6);
    shape.experts =
        MixtureOfExperts{experts, between(1, experts), between(1, 20), between(0, 20), between(1, shape.layers), coin()};
  }
  shape.dtype = coin() ? DType::kFloat16 : DType::kFloat32;
  return shape;
}

// Given random shapes; expects cache and attention to be the sum over all layers and tokens, one by one.
TEST(ModelFigures, WindowsAreSumsOverLayersAndTokens) {
  Rng rng(7, "shapes");
  for (int i = 0; i < effort(300, 3000); ++i) {
    const ModelShape shape = random_shape(rng);
    const int context = static_cast<int>(rng.integer(0, 60));
    double bytes = 0;
    double flops = 0;
    for (int layer = 0; layer < shape.layers; ++layer) {
      for (int back = 0; back < context; ++back) {
        if (shape.sliding_window && layer < shape.sliding_window->layers && back >= shape.sliding_window->tokens) continue;
        bytes += 2.0 * shape.kv_heads * shape.head_dim * bytes_of(shape.dtype);
        flops += 2 * 2.0 * shape.heads * shape.head_dim;
      }
    }
    ASSERT_NEAR(kv_bytes(shape, context), bytes, 1e-6) << i;
    ASSERT_NEAR(attention_flops_per_token(shape, context), flops, 1e-6) << i;
  }
}

// Given random shapes; expects the counts of a walk through the model, layer by layer and expert by expert.
TEST(ModelFigures, CountsAgreeWithAWalkThroughTheModel) {
  Rng rng(8, "shapes");
  for (int i = 0; i < effort(300, 3000); ++i) {
    const ModelShape shape = random_shape(rng);
    ASSERT_TRUE(validate(shape).ok()) << validate(shape).error().message;
    const std::int64_t hidden = shape.hidden;
    const std::int64_t width = shape.embedding_dim == 0 ? hidden : shape.embedding_dim;
    std::int64_t multiplied = shape.vocab * width + (width == hidden ? 0 : 2 * width * hidden);
    std::int64_t idle = 0;
    std::int64_t others = (shape.tied_embeddings ? 0 : shape.vocab * width) + shape.position_rows * hidden + hidden;
    for (int layer = 0; layer < shape.layers; ++layer) {
      multiplied += 2 * hidden * shape.heads * shape.head_dim + 2 * hidden * shape.kv_heads * shape.head_dim;
      others += 2 * hidden;
      if (!shape.experts || layer >= shape.experts->layers) {
        multiplied += (shape.gated_mlp ? 3 : 2) * hidden * shape.intermediate;
        continue;
      }
      multiplied += hidden * shape.experts->experts + 3 * hidden * shape.experts->shared_intermediate;
      if (shape.experts->selection_bias) others += shape.experts->experts;
      for (int expert = 0; expert < shape.experts->experts; ++expert) {
        multiplied += 3 * hidden * shape.experts->intermediate;
        if (expert >= shape.experts->experts_per_token) idle += 3 * hidden * shape.experts->intermediate;
      }
    }
    ASSERT_EQ(matmul_parameter_count(shape), multiplied) << i;
    ASSERT_EQ(active_matmul_parameter_count(shape), multiplied - idle) << i;
    ASSERT_EQ(parameter_count(shape), multiplied + others) << i;
    ASSERT_EQ(active_parameter_count(shape), multiplied + others - idle) << i;
    ASSERT_DOUBLE_EQ(weight_bytes(shape), static_cast<double>(multiplied + others) * bytes_of(shape.dtype)) << i;
  }
}

// Given Mistral's window of 4096 tokens and Gemma 2's in every other layer; expects caches that stop growing fully, or by half.
TEST(ModelFigures, CachesStopAtTheWindow) {
  const ModelShape mistral = testing::parse(testing::kMistral01);
  EXPECT_DOUBLE_EQ(kv_bytes(mistral, 4096), 4096 * kv_bytes_per_token(mistral));
  EXPECT_DOUBLE_EQ(kv_bytes(mistral, 32768), kv_bytes(mistral, 4096));
  const ModelShape gemma = testing::parse(testing::kGemma2);
  EXPECT_DOUBLE_EQ(kv_bytes(gemma, 8192), 1.5 * kv_bytes(gemma, 4096));
}

// Given sizes at their limits; expects counts without overflow. Beyond the limits; expects an error.
TEST(ModelFigures, LimitsKeepCountsInRange) {
  ModelShape shape = testing::paper_shape();
  shape.layers = 10'000;
  shape.hidden = 10'000'000;
  shape.heads = shape.kv_heads = 10'000'000;
  shape.head_dim = 1;
  shape.intermediate = 10'000'000;
  shape.vocab = 10'000'000;
  ASSERT_TRUE(validate(shape).ok());
  // per layer: 4 x 1e14 for attention, 3 x 1e14 for the MLP; embedding and output 1e14 each
  EXPECT_EQ(matmul_parameter_count(shape), 7'000'100'000'000'000'000);
  shape.heads = 10'000'001;
  shape.kv_heads = 1;
  EXPECT_FALSE(validate(shape).ok());
}

// Given parts that do not fit the whole; expects the field, what was found and what is allowed.
TEST(ModelFigures, ValidateNamesTheField) {
  const auto message = [](const auto& change) {
    ModelShape shape = testing::paper_shape();
    change(shape);
    const Result<void> result = validate(shape);
    return result.ok() ? std::string() : result.error().message;
  };
  EXPECT_EQ(message([](ModelShape&) {}), "");
  EXPECT_EQ(message([](ModelShape& s) {
              s.sliding_window = SlidingWindow{0, 1};
            }),
            "sliding_window: must be from 1 to 10000000 (got 0)");
  EXPECT_EQ(message([](ModelShape& s) {
              s.sliding_window = SlidingWindow{8, 3};
            }),
            "layers with a sliding window: must be from 1 to 2 (got 3)");
  EXPECT_EQ(message([](ModelShape& s) { s.experts = MixtureOfExperts{4, 2, 3, 0, 3, false}; }),
            "layers with experts: must be from 1 to 2 (got 3)");
  EXPECT_EQ(message([](ModelShape& s) {
              s.latent_attention = LatentAttention{4, 0, 2, 2, 2};
            }),
            "head_dim: must be qk_nope_head_dim + qk_rope_head_dim, 2 + 2 (got 2)");
  EXPECT_EQ(message([](ModelShape& s) { s.quantisation = WeightQuantisation{"fp8", 0, 1, 0, 32, std::nullopt}; }),
            "weight bits: must be from 1 to 32 (got 0)");
}

}  // namespace
}  // namespace windlass::planner
