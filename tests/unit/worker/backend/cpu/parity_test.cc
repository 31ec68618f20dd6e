// The CPU backend against Hugging Face transformers: logits after a prompt and after each of 64 tokens, for every architecture.
#include <algorithm>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/golden_parity.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/model/block_weights.h"

namespace windlass::worker {
namespace {

using testing::kGoldenSteps;

// Limits for logits from -3.5 to 3.5.
struct Nearness {
  WeightFormat format;
  double max_difference;
  double with_experts;
  std::size_t same_of;  // at most one greedy token in this many may differ
};
constexpr Nearness kNear[] = {
    {WeightFormat::kBf16, 0.02, 0.1, 32}, {WeightFormat::kInt8, 0.1, 0.1, 12}, {WeightFormat::kFp8, 0.5, 0.5, 8}};

Result<std::unique_ptr<Backend>> cpu_backend(const ModelConfig& config, const ModelWeights& weights) {
  CpuBackendOptions options;
  options.kv_blocks = testing::kGoldenKvBlocks;
  options.max_context_tokens = testing::kGoldenContext;
  return make_cpu_backend(config, weights, options);
}

class Parity : public ::testing::TestWithParam<const char*> {
 protected:
  const testing::GoldenModel model_{GetParam()};
};

// Given transformers' config, tokens and logits of a random model; expects the backend's logits within 1e-4 of them, with the
// prompt in one piece or in chunks of seven and then one token at a time, and the same greedy token at every step.
TEST_P(Parity, LogitsAreThoseOfTransformers) { EXPECT_NO_FATAL_FAILURE(testing::expect_golden_logits(model_, cpu_backend)); }

// Given the same models with 16-bit or 8-bit weights; expects logits within kNear's limits of transformers' (so that greedy
// tokens can differ only where the top two are closer than twice that), and nearly all greedy tokens to be the same. With
// experts, one row in ten may exceed the limit, because a token close to two experts may switch.
TEST_P(Parity, QuantisedWeightsStayNear) {
  const std::size_t vocab = model_.vocab();
  for (const auto& [format, max_difference, with_experts, same_of] : kNear) {
    SCOPED_TRACE(to_string(format));
    auto backend = cpu_backend(model_.config, model_.weights(format));
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    const std::vector<float> found = model_.logits(**backend, model_.prompt.size());
    ASSERT_EQ(found.size(), model_.expected.size());
    std::vector<double> differences;  // one per row
    std::size_t others = 0;
    for (std::size_t step = 0; step <= kGoldenSteps; ++step) {
      differences.push_back(testing::max_difference(std::span(found).subspan(step * vocab, vocab),
                                                    std::span(model_.expected).subspan(step * vocab, vocab)));
      if (model_.greedy(found, step) != model_.greedy(model_.expected, step)) ++others;
    }
    std::sort(differences.begin(), differences.end());
    const std::size_t rerouted = model_.config.experts > 0 ? differences.size() / 10 : 0;
    const double most = differences[differences.size() - 1 - rerouted];
    EXPECT_LE(most, model_.config.experts > 0 ? with_experts : max_difference);
    // OPT-350M's likeliest tokens are close together.
    const bool exact = format == WeightFormat::kBf16 && model_.config.experts == 0 && !model_.config.norm_after;
    EXPECT_LE(others, exact ? 0 : kGoldenSteps / same_of);
    RecordProperty(fmt::format("max_difference_{}", to_string(format)), std::to_string(most));
    RecordProperty(fmt::format("other_tokens_{}", to_string(format)), std::to_string(others));
  }
}

// Given a model arranged like OPT-350M in two parts; expects each to have the matrix between embedding and layers at its own
// end, also if a worker changed from the other part, and both together to give transformers' logits.
TEST(ParityOfParts, ProjectionsStandAtTheEnds) {
  const testing::GoldenModel model("opt_350m");
  const TensorStore store = model.store();
  const BlockRange ranges[] = {{0, 1}, {1, 3}};
  ModelWeights weights[2];
  std::unique_ptr<Backend> backends[2];
  for (int part = 0; part < 2; ++part) {
    auto read = load_weights(model.config, store, ranges[part], {}, WeightFormat::kFp32);
    ASSERT_TRUE(read.ok()) << read.error().message;
    weights[part] = std::move(read).value();
    EXPECT_EQ(weights[part].project_in.size(), part == 0 ? 48U * 32 : 0U);
    EXPECT_EQ(weights[part].project_out.size(), part == 1 ? 48U * 32 : 0U);
    EXPECT_TRUE(weights[part].final_norm.weight.empty());
    CpuBackendOptions options;
    options.kv_blocks = testing::kGoldenKvBlocks;
    options.max_context_tokens = testing::kGoldenContext;
    options.blocks = ranges[part];
    auto made = make_cpu_backend(model.config, weights[part], options);
    ASSERT_TRUE(made.ok()) << made.error().message;
    backends[part] = std::move(made).value();
  }
  BlockWeights changing(model.config, {}, WeightFormat::kFp32);
  for (const int part : {0, 1, 0}) {
    changing.keep(ranges[part]);
    auto missing = changing.read(store, ranges[part]);
    ASSERT_TRUE(missing.ok()) << missing.error().message;
    changing.add(std::move(missing).value(), ranges[part]);
    EXPECT_EQ(*changing.weights(), weights[part]);
  }

  const std::vector<std::int32_t> blocks = {3, 1, 2};
  const SequenceChunk prompt{model.prompt, 0, blocks, true};
  const auto hidden = backends[0]->forward(std::span(&prompt, 1));
  ASSERT_TRUE(hidden.ok()) << hidden.error().message;
  ASSERT_EQ(hidden->size(), model.prompt.size() * 48);
  SequenceChunk passed{{}, 0, blocks, true};
  passed.hidden = *hidden;
  const auto logits = backends[1]->forward(std::span(&passed, 1));
  ASSERT_TRUE(logits.ok()) << logits.error().message;
  EXPECT_LE(testing::max_difference(*logits, std::span(model.expected).first(model.vocab())), testing::kMaxGoldenDifference);
}

std::string golden_name(const ::testing::TestParamInfo<const char*>& made) { return made.param; }

INSTANTIATE_TEST_SUITE_P(Architectures, Parity, ::testing::ValuesIn(testing::kGoldenModels), golden_name);

}  // namespace
}  // namespace windlass::worker
