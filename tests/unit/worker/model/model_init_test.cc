// Generated models: the same bytes for a seed on every platform, loadable, and with printable output.
#include "worker/model/model_init.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/model_files.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/engine/sampler.h"
#include "worker/model/config.h"
#include "worker/model/tokenizer.h"
#include "worker/model/vocabulary_init.h"
#include "worker/model/weights.h"

namespace windlass::worker {
namespace {

using ::testing::HasSubstr;

// Given a fixed shape and seed; expects the hashes below, so that a change of any byte on any platform is noticed.
TEST(ModelInit, BytesAreFixedForASeed) {
  const testing::TemporaryFolder folder;
  ASSERT_TRUE(init_model(testing::tiny_shape(), folder.path()).ok());
  EXPECT_EQ(testing::hash_of(testing::read_bytes(folder.path() / "model.safetensors")), 3794398809038572070ULL);
  EXPECT_EQ(testing::hash_of(testing::read_bytes(folder.path() / "tokenizer.json")), 2409648554278217255ULL);
  EXPECT_EQ(testing::hash_of(testing::read_bytes(folder.path() / "config.json")), 16989601305348763730ULL);
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.insert(entry.path().filename().string());
  EXPECT_THAT(names, ::testing::ElementsAre("config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                                            "tokenizer_config.json"));
}

// Given each architecture; expects the model to be loaded as that architecture, with every tensor it needs.
TEST(ModelInit, EveryArchitectureCanBeLoaded) {
  for (const auto architecture : testing::kEveryArchitecture) {
    SCOPED_TRACE(to_string(architecture));
    const testing::TemporaryFolder folder;
    ASSERT_TRUE(init_model(testing::tiny_shape(architecture), folder.path()).ok());
    const auto config = load_model_config(folder.path());
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->architecture, architecture);
    const auto store = TensorStore::open(folder.path());
    ASSERT_TRUE(store.ok()) << store.error().message;
    const auto weights = load_weights(*config, *store);
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    const bool opt = architecture == Architecture::kOpt;
    EXPECT_EQ(weights->layers[0].qkv_bias.empty(), architecture != Architecture::kQwen2 && !opt);
    EXPECT_EQ(weights->layers[0].mlp.in_bias.empty(), !opt);
    EXPECT_EQ(weights->final_norm.bias.empty(), !opt);
    EXPECT_EQ(weights->positions.size(), opt ? (160U + 2U) * 32U : 0U);
    EXPECT_EQ(weights->layers[0].q_norm.empty(),
              architecture != Architecture::kQwen3 && architecture != Architecture::kQwen3Moe);
    EXPECT_EQ(weights->layers[0].experts.size(), has_experts(architecture) ? 4U : 0U);
    EXPECT_EQ(weights->layers[0].mlp.in.empty(), has_experts(architecture));
    EXPECT_EQ(config->window_of(0), architecture == Architecture::kMistral ? 4096 : 0);
  }
}

// Given another seed; expects other weights.
TEST(ModelInit, SeedChangesWeights) {
  const testing::TemporaryFolder a;
  const testing::TemporaryFolder b;
  ModelShape shape = testing::tiny_shape();
  ASSERT_TRUE(init_model(shape, a.path()).ok());
  shape.seed = 8;
  ASSERT_TRUE(init_model(shape, b.path()).ok());
  EXPECT_NE(testing::read_bytes(a.path() / "model.safetensors"), testing::read_bytes(b.path() / "model.safetensors"));
}

// Given vocabularies from none to thousands of merges; expects distinct tokens, and merges of two earlier tokens.
TEST(ModelInit, VocabularyIsSound) {
  for (const std::int64_t merges : {0, 1, 250, 3000}) {
    const InitVocabulary vocabulary = make_vocabulary(merges, 1);
    ASSERT_EQ(vocabulary.tokens.size(), 256U + static_cast<std::size_t>(merges));
    EXPECT_EQ(std::set<std::string>(vocabulary.tokens.begin(), vocabulary.tokens.end()).size(), vocabulary.tokens.size());
    for (std::size_t i = 0; i < vocabulary.merges.size(); ++i) {
      const auto [x, y] = vocabulary.merges[i];
      ASSERT_LT(static_cast<std::size_t>(std::max(x, y)), 256 + i);
      EXPECT_EQ(vocabulary.tokens[256 + i],
                vocabulary.tokens[static_cast<std::size_t>(x)] + vocabulary.tokens[static_cast<std::size_t>(y)]);
    }
  }
}

// Given a generated model; expects its tokenizer to merge common words and to put the begin token first, and every merge to be
// reachable.
TEST(ModelInit, TokenizerKnowsItsWords) {
  ModelShape shape;
  auto tokenizer = Tokenizer::parse(make_tokenizer_json(shape), "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->size(), shape.vocab);
  EXPECT_EQ(tokenizer->encode(" the", SpecialText::kParse).size(), 1U);
  ASSERT_EQ(tokenizer->prefix().size(), 1U);
  EXPECT_EQ(tokenizer->prefix()[0], *tokenizer->added_token("<|begin_of_text|>"));
}

class ModelInitOf : public ::testing::TestWithParam<Architecture> {};
INSTANTIATE_TEST_SUITE_P(Architectures, ModelInitOf, ::testing::ValuesIn(testing::kEveryArchitecture),
                         [](const auto& made) { return std::string(to_string(made.param)); });

// Given a generated model and temperature 1; expects hundreds of sampled tokens to be printable ASCII and never a control
// token.
TEST_P(ModelInitOf, SpeaksPrintableText) {
  const testing::TemporaryFolder folder;
  ASSERT_TRUE(init_model(testing::tiny_shape(GetParam()), folder.path()).ok());
  const auto config = load_model_config(folder.path());
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto store = TensorStore::open(folder.path());
  ASSERT_TRUE(store.ok());
  auto weights = load_weights(*config, *store);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  const auto tokenizer = Tokenizer::load(folder.path());
  ASSERT_TRUE(tokenizer.ok());
  CpuBackendOptions options;
  options.kv_blocks = blocks_for(config->max_context_tokens);
  options.max_context_tokens = config->max_context_tokens;
  auto backend = make_cpu_backend(*config, std::move(weights).value(), options);
  ASSERT_TRUE(backend.ok());
  std::vector<std::int32_t> blocks;
  for (std::int32_t i = 0; i < options.kv_blocks; ++i) blocks.push_back(i);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Sampler sampler({.seed = seed});
    std::vector<std::int32_t> tokens = tokenizer->prefix();
    while (static_cast<std::int64_t>(tokens.size()) < config->max_context_tokens) {
      const SequenceChunk chunk{std::span(tokens).last(1), static_cast<std::int64_t>(tokens.size()) - 1, blocks, true};
      const auto logits = (*backend)->forward(std::span(&chunk, 1));
      ASSERT_TRUE(logits.ok());
      const auto token = sampler.sample(*logits);
      ASSERT_TRUE(token.ok());
      const std::string_view bytes = tokenizer->token_bytes(token->id);
      ASSERT_FALSE(bytes.empty());
      for (const char c : bytes) ASSERT_TRUE(c >= ' ' && c <= '~') << "token " << token->id;
      tokens.push_back(token->id);
    }
  }
}

// Given shapes out of range; expects an error with each flag, the rule and the value, and no file.
TEST(ModelInit, RefusesBadShapes) {
  const auto error_of = [](const ModelShape& shape) {
    const auto checked = check_model_shape(shape);
    return checked.ok() ? "" : checked.error().message;
  };
  ModelShape shape;
  shape.layers = 0;
  shape.vocab = 100;
  EXPECT_THAT(error_of(shape), HasSubstr("layers: must be 1 to 1024 (got 0); vocab: must be 262 to"));
  shape = ModelShape{};
  shape.hidden = 100;
  EXPECT_THAT(error_of(shape), HasSubstr("hidden: must be a multiple of 2 * heads, which is 16 (got 100)"));
  shape = ModelShape{};
  shape.kv_heads = 3;
  EXPECT_THAT(error_of(shape), HasSubstr("kv-heads: must divide heads, which is 8 (got 3)"));
  const testing::TemporaryFolder folder;
  EXPECT_FALSE(init_model(shape, folder.path() / "new").ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "new"));
}

}  // namespace
}  // namespace windlass::worker
