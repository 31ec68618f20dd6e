// A model on several ranks compared with the same model on one: logits within 1e-4 and the same greedy tokens whatever the
// schedule, and transfers between workers of different degrees.
#include "worker/parallel/tensor_parallel.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/effort.h"
#include "tests/unit/worker/fake_backend.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/random_model.h"
#include "tests/unit/worker/tensor_parallel_cases.h"
#include "worker/engine/engine.h"

namespace windlass::worker {
namespace {

using testing::Both;
using testing::Compared;
using ::testing::EndsWith;
using testing::expect_same_rows;
using ::testing::HasSubstr;
using testing::kMaxDifference;
using testing::random_tokens;
using testing::random_weights;
using testing::run_schedule;
using testing::slice_of_rank;

// Numbers in a layer's split matrices.
std::int64_t cut_numbers(const LayerWeights& layer) {
  std::int64_t count =
      layer.qkv.elements() + layer.attention_out.elements() + layer.mlp.in.elements() + layer.mlp.out.elements();
  for (const MlpWeights& expert : layer.experts) count += expert.in.elements() + expert.out.elements();
  return count;
}
ModelConfig config_for(Rng& rng, int ranks) {
  ModelConfig config = testing::random_config(rng);
  config.kv_heads = ranks * rng.integer(1, 2);
  config.heads = config.kv_heads * rng.integer(1, 3);
  config.intermediate_size = ranks * rng.integer(3, 15);
  if (config.experts > 0) config.expert_intermediate_size = ranks * rng.integer(2, 10);
  config.embedding_size = 0;  // required by check_tensor_parallel()
  return config;
}

CpuBackendOptions options_for(const ModelConfig& config, std::int64_t kv_blocks) {
  CpuBackendOptions options;
  options.kv_blocks = kv_blocks;
  options.max_batch_tokens = 64;
  options.max_logit_rows = 4;
  options.max_context_tokens = config.max_context_tokens;
  return options;
}

// Several ranks with some blocks of a model: rank 0's backend, the others on threads of their own.
class Ranks {
 public:
  Ranks(const ModelConfig& config, const ModelWeights& weights, CpuBackendOptions options, int ranks) {
    const BlockRange blocks = options.blocks.value_or(config.all_blocks());
    const RankGroupSizes sizes = tensor_parallel_sizes(config, options, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      auto group = rank == 0 ? RankGroup::create(sizes) : RankGroup::join(groups_[0]->descriptor(), rank, sizes);
      EXPECT_TRUE(group.ok());
      groups_.push_back(std::move(group).value());
      options.group = groups_.back().get();
      auto made = make_cpu_backend(config, slice_of_rank(config, weights, blocks, {rank, ranks}), options);
      EXPECT_TRUE(made.ok());
      parts_.push_back(std::move(made).value());
    }
    options.group = groups_[0].get();
    backend = make_tensor_parallel_backend(config, options, std::move(parts_[0]), nullptr);
    for (std::size_t rank = 1; rank < parts_.size(); ++rank) {
      threads_.emplace_back(
          [this, rank] { EXPECT_TRUE(serve_tensor_rank(*groups_[rank], *parts_[rank]).ok()) << "rank " << rank; });
    }
  }
  ~Ranks() {
    backend.reset();
    for (std::thread& each : threads_) each.join();
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  std::unique_ptr<Backend> backend;

 private:
  std::vector<std::shared_ptr<RankGroup>> groups_;
  std::vector<std::unique_ptr<Backend>> parts_;  // without rank 0's
  std::vector<std::thread> threads_;
};

std::unique_ptr<Backend> alone(const ModelConfig& config, const ModelWeights& weights, const CpuBackendOptions& options) {
  auto made = make_cpu_backend(config, weights, options);
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

// Given a cache of seven blocks and four requests that share all but one of theirs, so that the batch names far more blocks
// than exist; expects the ranks to receive all of them.
TEST(TensorParallel, ABatchMayNameABlockManyTimes) {
  Rng rng(1, "shared");
  const ModelConfig config = config_for(rng, 2);
  const ModelWeights weights = random_weights(config, 1);
  const CpuBackendOptions options = options_for(config, 10);
  const Ranks ranks(config, weights, options, 2);
  EngineOptions of_engine;
  of_engine.max_running = 4;
  of_engine.max_waiting = 10;
  of_engine.max_context_tokens = 100;
  of_engine.max_batch_tokens = options.max_batch_tokens;
  const testing::ManualClock clock;
  Engine engine(of_engine, *ranks.backend, testing::letter, clock);
  const auto prompt = random_tokens(rng, config, 81);
  RequestId next = 0;
  ASSERT_TRUE(engine.submit(++next, testing::greedy(prompt, 1), 0).ok());
  while (!engine.idle()) (void)engine.step();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine.submit(++next, testing::greedy(prompt, 5), 0).ok());
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) ASSERT_NE(event.finish, FinishReason::kError) << event.error;
  }
  EXPECT_EQ(engine.prefix_counts().found, 4 * 80);
}

class TensorParallelSchedules : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TensorParallelSchedules, ::testing::Values(2, 4));

// Given random models (with and without biases, norms of heads, windows and tied embeddings; vocabularies that do not divide
// evenly) and schedules of batches, chunks and preemptions; expects several ranks to give the logits of one within 1e-4, and
// its greedy tokens except where the top two are closer than that.
TEST_P(TensorParallelSchedules, GivesWhatOneRankGives) {
  std::int64_t preemptions = 0, found = 0;
  Compared counts;
  for (std::uint64_t seed = 0; seed < effort(4U, 12U); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Rng rng(seed, "tensor parallel");
    const ModelConfig config = config_for(rng, GetParam());
    const ModelWeights weights = random_weights(config, seed, static_cast<WeightFormat>(seed % 4));
    const CpuBackendOptions options = options_for(config, 7);
    const auto reference = alone(config, weights, options);
    const Ranks ranks(config, weights, options, GetParam());
    Both both(config, *reference, *ranks.backend, nullptr);
    preemptions += run_schedule(rng, config, both, &found);
    counts.rows += both.counts.rows;
    counts.close += both.counts.close;
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(preemptions, effort(1, 10));
  EXPECT_GT(found, effort(30, 200));
  EXPECT_GT(counts.rows, effort(150, 800));
  EXPECT_LE(counts.close, counts.rows / 100);
}

// Given a chain of two workers, each split into ranks; expects the same.
TEST(TensorParallel, WorkersOfAChainMayBeCut) {
  Compared counts;
  for (std::uint64_t seed = 0; seed < effort(3U, 6U); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Rng rng(seed, "cut chain");
    ModelConfig config = config_for(rng, 4);
    config.layers = 3;
    config.windows.resize(3, 0);
    const ModelWeights weights = random_weights(config, seed);
    CpuBackendOptions options = options_for(config, 10);
    const auto reference = alone(config, weights, options);
    const std::int64_t cut = rng.integer(1, 2);
    options.blocks = BlockRange{0, cut};
    const Ranks first(config, weights, options, 2);
    options.blocks = BlockRange{cut, 3};
    const Ranks second(config, weights, options, 4);
    Both both(config, *reference, *first.backend, second.backend.get());
    run_schedule(rng, config, both);
    counts.rows += both.counts.rows;
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(counts.rows, effort(80, 300));
}

// Given a prompt's keys and values, read layer by layer while workers of one, two and four ranks compute it, and written to a
// worker of another degree; expects them to equal those of one rank, exactly as read, and that worker to continue as one rank
// would.
TEST(TensorParallel, KeysAndValuesFitEveryDegree) {
  for (std::uint64_t seed = 0; seed < effort(3U, 6U); ++seed) {
    Rng rng(seed, "degrees");
    const ModelConfig config = config_for(rng, 4);
    const ModelWeights weights = random_weights(config, seed);
    const CpuBackendOptions options = options_for(config, 6);
    const auto tokens = random_tokens(rng, config, 41);
    const std::vector<std::int32_t> here{5, 0, 3}, there{1, 2, 4};
    const SequenceChunk prompt{std::span(tokens).first(40), 0, here, false, {}, {}};
    const SequenceChunk next{std::span(tokens).last(1), 40, there, true, {}, {}};
    const auto reference = alone(config, weights, options);
    const Ranks two(config, weights, options, 2), four(config, weights, options, 4);
    Backend* const backends[] = {reference.get(), two.backend.get(), four.backend.get()};
    const KvShape shape = reference->kv_shape();
    const auto floats = static_cast<std::size_t>(40 * shape.values);
    std::vector<std::vector<float>> expected;  // by layer
    for (Backend* from : backends) {
      EXPECT_EQ(from->kv_shape().layers, shape.layers);
      EXPECT_EQ(from->kv_shape().values, shape.values);
      std::vector<std::vector<float>> read;
      ASSERT_TRUE(from->forward(std::span(&prompt, 1),
                                [&](std::int64_t layer) {
                                  read.emplace_back(floats);
                                  from->read_kv({layer, 0, 40}, here, read.back().data());
                                })
                      .ok());
      ASSERT_EQ(static_cast<std::int64_t>(read.size()), config.layers);
      if (expected.empty()) expected = read;
      for (std::size_t layer = 0; layer < read.size(); ++layer) {
        for (std::size_t i = 0; i < floats; ++i) ASSERT_NEAR(read[layer][i], expected[layer][i], kMaxDifference);
      }
      for (Backend* to : backends) {
        for (std::int64_t layer = 0; layer < config.layers; ++layer) {
          const float* values = read[static_cast<std::size_t>(layer)].data();
          to->write_kv({layer, 17, 23}, there, values + 17 * shape.values);
          to->write_kv({layer, 0, 17}, there, values);
          std::vector<float> again(floats);
          to->read_kv({layer, 0, 40}, there, again.data());
          ASSERT_EQ(again, read[static_cast<std::size_t>(layer)]);
        }
      }
      Compared counts;
      const auto wanted = reference->forward(std::span(&next, 1));
      ASSERT_TRUE(wanted.ok());
      for (Backend* to : {two.backend.get(), four.backend.get()}) {
        const auto found = to->forward(std::span(&next, 1));
        ASSERT_TRUE(found.ok());
        expect_same_rows(*found, *wanted, config.vocab_size, counts);
      }
    }
  }
}

// Given a batch that is too large; expects all ranks to refuse it alike and to compute the next one.
TEST(TensorParallel, RefusedBatchesDoNoHarm) {
  Rng rng(3, "refused");
  const ModelConfig config = config_for(rng, 2);
  const ModelWeights weights = random_weights(config, 3);
  const CpuBackendOptions options = options_for(config, 8);
  const Ranks ranks(config, weights, options, 2);
  const auto tokens = random_tokens(rng, config, 300);
  std::vector<std::int32_t> blocks(8);
  std::iota(blocks.begin(), blocks.end(), 0);
  for (const std::size_t count : {std::size_t{65}, std::size_t{300}}) {
    const SequenceChunk chunk{std::span(tokens).first(count), 0, blocks, true, {}, {}};
    const auto refused = ranks.backend->forward(std::span(&chunk, 1));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInternal);
  }
  const SequenceChunk chunk{std::span(tokens).first(64), 0, blocks, true, {}, {}};
  const auto found = ranks.backend->forward(std::span(&chunk, 1));
  ASSERT_TRUE(found.ok());
  const auto reference = alone(config, weights, options);
  const auto expected = reference->forward(std::span(&chunk, 1));
  Compared counts;
  expect_same_rows(*found, *expected, config.vocab_size, counts);
}

class TensorParallelFiles : public ::testing::TestWithParam<std::tuple<Architecture, WeightFormat>> {};
INSTANTIATE_TEST_SUITE_P(Architectures, TensorParallelFiles,
                         ::testing::Combine(::testing::Values(Architecture::kQwen2, Architecture::kOpt, Architecture::kMixtral,
                                                              Architecture::kQwen3Moe),
                                            ::testing::Values(WeightFormat::kFp32, WeightFormat::kBf16, WeightFormat::kInt8,
                                                              WeightFormat::kFp8)),
                         [](const auto& made) {
                           return fmt::format("{}_{}", to_string(std::get<0>(made.param)), to_string(std::get<1>(made.param)));
                         });
// Given a folder of weights, loaded in each format; expects each rank to load exactly its slice of every matrix, and all ranks
// together to have each number once, except norms.
TEST_P(TensorParallelFiles, RanksLoadTheirSlices) {
  const testing::TemporaryFolder folder;
  ModelShape shape = testing::tiny_shape(std::get<0>(GetParam()));
  shape.vocab = 301;  // odd, so that the shares differ by one
  ASSERT_TRUE(init_model(shape, folder.path()).ok());
  const auto config = load_model_config(folder.path());
  const auto store = TensorStore::open(folder.path());
  ASSERT_TRUE(config.ok() && store.ok());
  const auto [architecture, format] = GetParam();
  const auto whole = load_weights(*config, *store, config->all_blocks(), {}, format);
  ASSERT_TRUE(whole.ok());
  std::int64_t numbers = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const auto found = load_weights(*config, *store, config->all_blocks(), {rank, 2}, format);
    ASSERT_TRUE(found.ok()) << found.error().message;
    const ModelWeights expected = slice_of_rank(*config, *whole, config->all_blocks(), {rank, 2});
    EXPECT_EQ(found->embedding, expected.embedding);
    EXPECT_EQ(found->positions, whole->positions);
    EXPECT_EQ(found->final_norm, whole->final_norm);
    EXPECT_EQ(found->lm_head, expected.lm_head);
    numbers += found->embedding.elements() + found->lm_head.elements();
    for (std::size_t i = 0; i < found->layers.size(); ++i) {
      const LayerWeights& layer = found->layers[i];
      EXPECT_EQ(layer.attention_norm, whole->layers[i].attention_norm);
      EXPECT_EQ(layer.qkv, expected.layers[i].qkv);
      EXPECT_EQ(layer.qkv_bias.empty(), !config->qkv_bias);
      EXPECT_EQ(layer.qkv_bias, expected.layers[i].qkv_bias);
      EXPECT_EQ(layer.attention_out, expected.layers[i].attention_out);
      EXPECT_EQ(layer.mlp_norm, whole->layers[i].mlp_norm);
      EXPECT_EQ(layer.mlp, expected.layers[i].mlp);
      EXPECT_EQ(layer.router, whole->layers[i].router);
      EXPECT_EQ(layer.experts, expected.layers[i].experts);
      numbers += cut_numbers(layer);
    }
  }
  auto all = whole->embedding.elements() + whole->lm_head.elements();
  for (const LayerWeights& layer : whole->layers) all += cut_numbers(layer);
  EXPECT_EQ(numbers, all);
}

// Given degrees that do not divide a model's heads or width; expects an error with the rule, the value and the field.
TEST(TensorParallel, WrongDegreesAreNamed) {
  ModelConfig config;
  config.heads = 24;
  config.kv_heads = 8;
  config.intermediate_size = 100;
  config.layers = 2;
  for (const int good : {1, 2, 4}) EXPECT_TRUE(check_tensor_parallel(config, good).ok());
  const auto message = [&](int ranks) { return check_tensor_parallel(config, ranks).error().message; };
  EXPECT_EQ(message(8),
            "--tensor-parallel: must be one of 1, 2, 4 for this model (got 8): config.json's intermediate_size (100) must be "
            "divisible by it");
  EXPECT_THAT(message(3), HasSubstr("config.json's num_key_value_heads (8) and intermediate_size (100) must be divisible"));
  EXPECT_THAT(message(5), HasSubstr("config.json's num_key_value_heads (8) and num_attention_heads (24) must"));
  EXPECT_THAT(message(0), HasSubstr("must be one of 1, 2, 4 for this model (got 0)"));
  config.experts = 4;
  config.expert_intermediate_size = 6;
  EXPECT_THAT(message(4), EndsWith("config.json's moe_intermediate_size (6) must be divisible by it")) << "no layer has an MLP";
  config.dense_mlp = {false, true};
  EXPECT_THAT(message(8), HasSubstr("intermediate_size (100) and moe_intermediate_size (6) must"));
  config.experts = 0;
  config.architecture = Architecture::kOpt;
  config.kv_heads = 24;
  EXPECT_THAT(message(3), EndsWith("config.json's ffn_dim (100) must be divisible by it"));
  EXPECT_THAT(message(5), HasSubstr("config.json's num_attention_heads (24) must"));
}

// Given ranks that loaded other weights than rank 0; expects none of them to serve.
TEST(TensorParallel, OtherWeightsAreNoticed) {
  RankGroupSizes sizes;
  sizes.ranks = 2;
  const auto first = RankGroup::create(sizes);
  ASSERT_TRUE(first.ok());
  std::thread second([&] {
    const auto group = RankGroup::join((*first)->descriptor(), 1, sizes);
    ASSERT_TRUE(group.ok());
    EXPECT_FALSE(meet_loaded(**group, 7).ok());
  });
  const auto met = meet_loaded(**first, 8);
  second.join();
  ASSERT_FALSE(met.ok());
  EXPECT_THAT(met.error().message, HasSubstr("fingerprint 0000000000000007 at rank 1"));
}

// Given rank 0's bytes and a number from each rank; expects every rank to get the same bytes and the smallest number,
// repeatedly.
TEST(TensorParallel, RanksAgreeBeforeTheyServe) {
  RankGroupSizes sizes;
  sizes.ranks = 3;
  sizes.message_bytes = static_cast<std::int64_t>(kMaxTold);
  std::vector<std::shared_ptr<RankGroup>> groups;
  for (int rank = 0; rank < 3; ++rank) {
    groups.push_back((rank == 0 ? RankGroup::create(sizes) : RankGroup::join(groups[0]->descriptor(), rank, sizes)).value());
  }
  const auto agree = [](RankGroup& group) {
    for (int round = 0; round < 20; ++round) {
      const std::vector<std::byte> own(128, static_cast<std::byte>(round + group.rank()));
      const auto told = told_by_rank_0(group, own);
      ASSERT_TRUE(told.ok()) << told.error().message;
      EXPECT_EQ(*told, std::vector<std::byte>(128, static_cast<std::byte>(round)));
      const auto least = least_of_ranks(group, 100 * round + (group.rank() + round) % 3);
      ASSERT_TRUE(least.ok()) << least.error().message;
      EXPECT_EQ(*least, 100 * round);
    }
  };
  std::vector<std::thread> others;
  for (const int rank : {1, 2}) others.emplace_back([&, rank] { agree(*groups[static_cast<std::size_t>(rank)]); });
  agree(*groups[0]);
  for (std::thread& each : others) each.join();
}

}  // namespace
}  // namespace windlass::worker
