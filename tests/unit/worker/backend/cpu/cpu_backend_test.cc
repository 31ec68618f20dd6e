// The CPU backend against an independent reference, however the work is cut into chunks, batches and blocks.
#include "worker/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>
#include <malloc.h>

#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/unit/worker/cut_sequences.h"
#include "tests/unit/worker/random_model.h"
#include "tests/unit/worker/reference_model.h"
#include "tests/unit/worker/shared_blocks.h"
#include "worker/backend/cpu/experts.h"
#include "worker/backend/cpu/ops.h"
#include "worker/backend/cpu/quantised.h"

namespace windlass::worker {
namespace {

using testing::random_config;
using testing::random_tokens;
using testing::random_weights;

// FP32 against double precision, through two to three layers of width 32 to 64: some 1e-5 for logits near 1.
constexpr double kTolerance = 2e-4;

// Given random shapes; expects the backend's heap use to be its cache plus cpu_step_bytes(), almost exactly.
TEST(CpuBackend, UsesTheMemoryPredicted) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have a heap of their own";
#endif
  const auto taken = [] {
    const struct mallinfo2 heap = ::mallinfo2();
    return static_cast<double>(heap.uordblks) + static_cast<double>(heap.hblkhd);
  };
  Rng rng(6, "step bytes");
  for (int round = 0; round < 20; ++round) {
    const ModelConfig config = random_config(rng);
    const auto weights = std::make_shared<const ModelWeights>(random_weights(config, static_cast<std::uint64_t>(round)));
    CpuBackendOptions options;
    options.kv_blocks = 40;
    options.max_batch_tokens = rng.integer(2000, 8000);
    options.max_logit_rows = rng.integer(1, 2000);
    options.max_context_tokens = config.max_context_tokens;
    const double before = taken();
    const auto backend = make_cpu_backend(config, weights, options).value();
    const std::int64_t cache = options.kv_blocks * kKvBlockTokens * kv_bytes_per_token(config, config.layers);
    const auto said = static_cast<double>(cpu_step_bytes(config, options, {}) + cache);
    EXPECT_GE(taken() - before, 0.99 * said) << "round " << round;
    EXPECT_LE(taken() - before, 1.05 * said + 200'000) << "round " << round;
  }
}

// Given random shapes (with and without biases, norms of heads, windows, experts, learned positions), weights in every format,
// and sequences cut into random chunks, batched together and placed in shuffled blocks; expects the logits of every chunk's
// last token to be the reference's for the whole sequence.
TEST(CpuBackend, MatchesReferenceHoweverWorkIsCut) {
  Rng rng(5, "forward");
  for (int round = 0; round < effort(12, 40); ++round) {
    const ModelConfig config = random_config(rng);
    const ModelWeights weights =
        random_weights(config, static_cast<std::uint64_t>(round), static_cast<WeightFormat>(round % 4));
    CpuBackendOptions options;
    options.kv_blocks = 40;
    options.max_batch_tokens = testing::CutSequences::kMaxTokens;
    options.max_logit_rows = testing::CutSequences::kMaxRows;
    options.threads = 1 + round % 3;
    options.max_context_tokens = config.max_context_tokens;
    auto backend = make_cpu_backend(config, weights, options);
    ASSERT_TRUE(backend.ok()) << backend.error().message;

    testing::CutSequences sequences(rng, config, weights, options.kv_blocks, 70);
    for (testing::CutSequences::Batch batch; sequences.next(batch);) {
      const auto& expected = batch.expected;
      const auto logits = (*backend)->forward(batch.chunks);
      ASSERT_TRUE(logits.ok()) << logits.error().message;
      ASSERT_EQ(logits->size(), expected.size() * static_cast<std::size_t>(config.vocab_size));
      for (std::size_t row = 0; row < expected.size(); ++row) {
        for (std::size_t i = 0; i < expected[row]->size(); ++i) {
          ASSERT_NEAR((*logits)[row * expected[row]->size() + i], (*expected[row])[i], kTolerance)
              << "round " << round << ", logit " << i;
        }
      }
    }
  }
}

// Given random models and sequences that continue after blocks which another one fills in the same batch; expects the
// reference's logits.
TEST(CpuBackend, ChunksReadWhatTheirBatchWrites) {
  for (std::uint64_t seed = 0; seed < effort(6U, 20U); ++seed) {
    Rng rng(seed, "shared blocks");
    const ModelConfig config = random_config(rng);
    const ModelWeights weights = random_weights(config, seed);
    const testing::SharedBlocks shared(rng, config);
    CpuBackendOptions options;
    options.kv_blocks = testing::SharedBlocks::kBlocks;
    options.max_batch_tokens = testing::SharedBlocks::kTokens;
    options.max_logit_rows = testing::SharedBlocks::kRows;
    options.threads = 1 + static_cast<int>(seed % 2);
    options.max_context_tokens = config.max_context_tokens;
    auto backend = make_cpu_backend(config, weights, options);
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    const auto logits = (*backend)->forward(shared.batch());
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    auto found = logits->begin();
    for (const testing::Row& row : shared.expected(config, weights)) {
      for (const double each : row) ASSERT_NEAR(*found++, each, kTolerance) << "seed " << seed;
    }
  }
}

// Given a long prompt, also with a window that begins inside a tile; expects prefill attention's tiles not to change the
// reference's last logits.
class LongPrefill : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Windows, LongPrefill, ::testing::Values(0, 1, 333));
TEST_P(LongPrefill, MatchesReference) {
  Rng rng(6, "long");
  const ModelConfig config = testing::one_layer(GetParam());
  const ModelWeights weights = random_weights(config, 9);
  const auto tokens = random_tokens(rng, config, 900);
  CpuBackendOptions options;
  options.kv_blocks = blocks_for(900);
  options.max_batch_tokens = 900;
  options.max_logit_rows = 1;
  options.max_context_tokens = 900;
  auto backend = make_cpu_backend(config, weights, options);
  ASSERT_TRUE(backend.ok());
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(options.kv_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  const SequenceChunk chunk{tokens, 0, blocks, true};
  const auto logits = (*backend)->forward(std::span(&chunk, 1));
  ASSERT_TRUE(logits.ok());
  const testing::Row expected = testing::reference_logits(config, weights, tokens).back();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR((*logits)[i], expected[i], kTolerance);
}

// Given a prompt's keys and values, read from one backend's cache layer by layer and written to other blocks of another's;
// expects the second to continue with exactly the first one's logits, although it never saw the prompt.
TEST(CpuBackend, KeysAndValuesMoveBetweenBackends) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Rng rng(seed, "move");
    const ModelConfig config = random_config(rng);
    const ModelWeights weights = random_weights(config, seed);
    CpuBackendOptions options;
    options.kv_blocks = testing::MovedPrompt::kBlocks;
    options.max_batch_tokens = 64;
    options.max_context_tokens = 64;
    auto from = make_cpu_backend(config, weights, options);
    auto to = make_cpu_backend(config, weights, options);
    ASSERT_TRUE(from.ok() && to.ok());
    const testing::MovedPrompt prompt(rng, config);
    const std::int64_t layers = prompt.compute(**from, [&](std::int64_t layer, std::vector<float>& values) {
      prompt.read(**from, layer, values);
      prompt.write(**to, layer, values);
    });
    EXPECT_EQ(layers, config.layers);
    EXPECT_EQ(prompt.last(**to, false), prompt.last(**from, true)) << "seed " << seed;
  }
}

// Given more tokens than the backend was made for; expects an error and no computation.
TEST(CpuBackend, RefusesTooLargeBatches) {
  Rng rng(1, "large");
  ModelConfig config = random_config(rng);
  CpuBackendOptions options;
  options.kv_blocks = 4;
  options.max_batch_tokens = 8;
  options.max_context_tokens = 64;
  auto backend = make_cpu_backend(config, random_weights(config, 1), options);
  ASSERT_TRUE(backend.ok());
  const auto tokens = random_tokens(rng, config, 9);
  const std::vector<std::int32_t> blocks{0};
  const SequenceChunk chunk{tokens, 0, blocks, true};
  const auto logits = (*backend)->forward(std::span(&chunk, 1));
  ASSERT_FALSE(logits.ok());
  EXPECT_NE(logits.error().message.find("(got 9 and"), std::string::npos);
}

// Given all codes of both formats in rows of many lengths; expects their values, times the row's scale.
TEST(Quantised, CodesBecomeWhatTheyStandFor) {
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kFp8}) {
    for (const std::int64_t columns : {1, 7, 16, 33, 256}) {
      WeightMatrix matrix{format};
      for (int code = 0; code < 256; ++code)
        matrix.codes.push_back(format == WeightFormat::kFp8 && (code & 0x7F) == 0x7F ? 0 : static_cast<std::uint8_t>(code));
      matrix.codes.resize(static_cast<std::size_t>(256 / columns * columns));
      for (std::int64_t row = 0; row < 256 / columns; ++row)
        matrix.scales.push_back(std::ldexp(1.0F, static_cast<int>(row % 9)));
      std::vector<float> found(matrix.codes.size());
      for (std::int64_t row = 0; row < 256 / columns; ++row) {
        const std::int64_t cut = columns / 2;  // in two pieces
        cpu::dequantise(matrix, columns, row, 0, cut, found.data() + row * columns);
        cpu::dequantise(matrix, columns, row, cut, columns - cut, found.data() + row * columns + cut);
      }
      for (std::size_t i = 0; i < found.size(); ++i) {
        const auto scale = static_cast<double>(matrix.scales[i / static_cast<std::size_t>(columns)]);
        ASSERT_EQ(found[i], testing::meaning(matrix.codes[i], format) * scale) << to_string(format) << " " << i;
      }
    }
  }
}

// Given every finite BF16 number, in pieces; expects the same number in FP32.
TEST(Quantised, HalvesBecomeWhatTheyAre) {
  WeightMatrix matrix{WeightFormat::kBf16};
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    if ((half & 0x7F80U) != 0x7F80U) matrix.halves.push_back(static_cast<std::uint16_t>(half));
  }
  const auto count = static_cast<std::int64_t>(matrix.halves.size());
  std::vector<float> found(matrix.halves.size());
  cpu::dequantise(matrix, count, 0, 0, 37, found.data());
  cpu::dequantise(matrix, count, 0, 37, count - 37, found.data() + 37);
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], testing::meaning(matrix.halves[i])) << i;
}

// Given sequences that decode at contexts of up to 600 and one with a prompt, with and without a window; expects the same bits
// from attention on three threads as on one, and for a sequence alone as among others.
TEST(Attention, DoesNotDependOnThreadsNorOthers) {
  Rng rng(6, "attention");
  ModelConfig config;
  config.heads = 8;
  config.kv_heads = 2;
  config.head_dim = 32;
  constexpr std::int64_t kSequences = 9, kBlocks = 40;
  const std::int64_t block_floats = config.kv_size() * kKvBlockTokens;
  std::vector<float> keys(static_cast<std::size_t>(kSequences * kBlocks * block_floats));
  for (float& number : keys) number = static_cast<float>(rng.uniform(-1, 1));
  std::vector<float> values = keys;
  std::reverse(values.begin(), values.end());
  std::vector<std::int32_t> blocks(kSequences * kBlocks);
  std::iota(blocks.rbegin(), blocks.rend(), 0);
  std::vector<std::int64_t> starts, tokens, rows;
  std::int64_t all = 0;
  for (std::int64_t s = 0; s < kSequences; ++s) {
    tokens.push_back(s == 4 ? 30 : rng.integer(1, 3));
    starts.push_back(rng.integer(0, 600));
    rows.push_back(all);
    all += tokens.back();
  }
  std::vector<float> queries(static_cast<std::size_t>(all * config.q_size()));
  for (float& number : queries) number = static_cast<float>(rng.uniform(-1, 1));
  const auto run = [&](int threads, std::int64_t window, std::int64_t first, std::int64_t count) {
    std::vector<float> out(queries.size());
    std::vector<cpu::AttentionRows> sequences;
    for (std::int64_t s = first; s < first + count; ++s) {
      const auto at = static_cast<std::size_t>(s);
      sequences.push_back({queries.data() + rows[at] * config.q_size(),
                           tokens[at],
                           starts[at],
                           {keys.data(), values.data(), std::span(blocks).subspan(at * kBlocks, kBlocks)},
                           out.data() + rows[at] * config.q_size()});
    }
    cpu::ThreadTeam team(threads);
    cpu::AttentionScratch scratch;
    cpu::attention(config, window, sequences, config.q_size(), team, scratch);
    return out;
  };
  for (const std::int64_t window : {0, 100}) {
    const std::vector<float> one = run(1, window, 0, kSequences);
    EXPECT_EQ(run(3, window, 0, kSequences), one);
    for (std::int64_t s = 0; s < kSequences; ++s) {
      const std::vector<float> alone = run(2, window, s, 1);
      const auto first = rows[static_cast<std::size_t>(s)] * config.q_size();
      const auto count = tokens[static_cast<std::size_t>(s)] * config.q_size();
      EXPECT_TRUE(std::equal(alone.begin() + first, alone.begin() + first + count, one.begin() + first)) << s;
    }
  }
}

// Given gates from far below to far above zero, in rows of every width; expects silu(gate) * up within a relative error of a
// millionth.
TEST(Ops, SwiGlu) {
  Rng rng(4, "swiglu");
  for (std::int64_t width = 1; width <= 40; ++width) {
    const std::int64_t rows = 3;
    std::vector<float> gate_up(static_cast<std::size_t>(rows * 2 * width)), out(static_cast<std::size_t>(rows * width));
    for (float& number : gate_up) number = static_cast<float>(rng.uniform(-1, 1) * std::pow(10.0, rng.uniform(-3, 3)));
    cpu::swiglu(gate_up.data(), out.data(), rows, width);
    for (std::int64_t i = 0; i < rows * width; ++i) {
      const auto gate = static_cast<double>(gate_up[static_cast<std::size_t>(i / width * 2 * width + i % width)]);
      const auto up = static_cast<double>(gate_up[static_cast<std::size_t>(i / width * 2 * width + width + i % width)]);
      const double expected = gate / (1 + std::exp(-gate)) * up;
      ASSERT_NEAR(out[static_cast<std::size_t>(i)], expected, 1e-6 * std::abs(expected) + 1e-30) << gate << " " << up;
    }
  }
}

// Given logits that tie, are all equal or are NaN; expects each token to go to the right number of experts, lower ids first,
// and each expert to have its tokens in order, with shares from a softmax over the chosen or over all.
TEST(ExpertRouting, ChoosesTheFirstOfEquals) {
  ModelConfig config;
  config.hidden_size = 1;
  config.experts = 4;
  config.experts_per_token = 2;
  cpu::ExpertRouting routing;
  const std::vector<float> router{1, 3, 3, 2};
  const std::vector<float> x{1, -1, 0};
  routing.route(config, x.data(), router.data(), 3);
  const auto tokens_of = [&](std::int64_t expert) {
    std::vector<std::int64_t> tokens;
    for (const auto& routed : routing.of(expert)) tokens.push_back(routed.token);
    return tokens;
  };
  EXPECT_EQ(tokens_of(0), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(tokens_of(1), (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(tokens_of(2), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(tokens_of(3), (std::vector<std::int64_t>{1}));
  const double all = 2 * std::exp(3) + std::exp(2) + std::exp(1);
  EXPECT_NEAR(routing.of(2)[0].weight, std::exp(3) / all, 1e-6);
  EXPECT_NEAR(routing.of(1)[1].weight, 0.25, 1e-6);
  config.normalise_expert_weights = true;
  routing.route(config, x.data(), router.data(), 3);
  EXPECT_NEAR(routing.of(2)[0].weight, 0.5, 1e-6);
  EXPECT_NEAR(routing.of(3)[0].weight, std::exp(-2) / (std::exp(-1) + std::exp(-2)), 1e-6);
  const std::vector<float> odd{std::nanf(""), std::nanf(""), 1};
  routing.route(config, odd.data(), router.data(), 3);
  EXPECT_EQ(tokens_of(0), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(tokens_of(1), (std::vector<std::int64_t>{0, 1, 2}));
}

// Given a model with experts; expects the same logits, except for rounding, for a sequence alone and next to another in the
// batch: one token's choice does not affect another.
TEST(CpuBackend, OtherTokensChooseForThemselves) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Rng rng(seed, "others");
    ModelConfig config = random_config(rng);
    config.experts = 5;
    config.experts_per_token = 2;
    config.expert_intermediate_size = 24;
    config.dense_mlp.clear();
    config.norm_after = false;  // no model with experts has it
    const ModelWeights weights = random_weights(config, seed);
    CpuBackendOptions options;
    options.kv_blocks = 8;
    options.max_batch_tokens = 64;
    options.max_context_tokens = 64;
    auto backend = make_cpu_backend(config, weights, options);
    ASSERT_TRUE(backend.ok());
    const auto tokens = random_tokens(rng, config, 30);
    const auto others = random_tokens(rng, config, 30);
    const std::vector<std::int32_t> here{0, 1}, there{2, 3};
    const SequenceChunk chunks[] = {{tokens, 0, here, true}, {others, 0, there, true}};
    const auto rows = (*backend)->forward(std::span(chunks, 1));
    ASSERT_TRUE(rows.ok());
    const std::vector<float> alone(rows->begin(), rows->end());
    const auto both = (*backend)->forward(chunks);
    ASSERT_TRUE(both.ok());
    for (std::size_t i = 0; i < alone.size(); ++i) ASSERT_NEAR((*both)[i], alone[i], 1e-5) << "seed " << seed;
  }
}

// Given Llama 3.1's scaling (8, 1, 4, 8192; theta 500000; head_dim 128); expects high frequencies unchanged, low ones divided
// by 8, and a monotonic factor between them.
TEST(Rope, Llama3ScalingBendsOnlyLowFrequencies) {
  ModelConfig config;
  config.head_dim = 128;
  config.rope_theta = 500000;
  const auto plain = cpu::rope_frequencies(config);
  config.rope_scaling = {RopeScaling::Kind::kLlama3, 8, 1, 4, 8192};
  const auto scaled = cpu::rope_frequencies(config);
  double last_ratio = 1;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double turns = 8192 * plain[i] / (2 * 3.14159265358979323846);
    const double ratio = scaled[i] / plain[i];
    if (turns > 4) {
      EXPECT_DOUBLE_EQ(ratio, 1);
    } else if (turns < 1) {
      EXPECT_DOUBLE_EQ(ratio, 1.0 / 8);
    }
    EXPECT_LE(ratio, last_ratio);
    last_ratio = ratio;
  }
  EXPECT_DOUBLE_EQ(last_ratio, 1.0 / 8);
}

}  // namespace
}  // namespace windlass::worker
