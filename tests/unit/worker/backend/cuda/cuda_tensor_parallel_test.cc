// A model on several ranks with one device each compared with the same model on one device: always in the emulation, and on two
// GPUs if there are two. Ranks are threads here; tests/process/worker/parallel runs them as processes.
#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/effort.h"
#include "tests/unit/worker/cuda_devices.h"
#include "tests/unit/worker/cuda_models.h"
#include "tests/unit/worker/cuda_summaries.h"
#include "tests/unit/worker/tensor_parallel_cases.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/engine/self_measurement.h"
#include "worker/parallel/tensor_parallel.h"

namespace windlass::worker {
namespace {

using cuda::CudaBackendOptions;
using testing::Both;
using testing::Compared;
using testing::CudaCase;
using testing::expect_same_rows;
using ::testing::HasSubstr;
using testing::random_config;
using testing::random_tokens;
using testing::random_weights;
using testing::source_of;

ModelConfig cut_config(Rng& rng, int ranks, cuda::Precision precision) {
  ModelConfig config = random_config(rng, precision);
  config.kv_heads = ranks;
  config.heads = ranks * rng.integer(1, 2);
  config.head_dim = 2 * rng.integer(1, 5);
  config.intermediate_size = ranks * rng.integer(3, 9);
  config.expert_intermediate_size = ranks * rng.integer(2, 6);
  config.embedding_size = 0;  // required by check_tensor_parallel()
  return config;
}

CudaBackendOptions cut_options(const ModelConfig& config, std::int64_t kv_blocks) {
  CudaBackendOptions options;
  options.kv_blocks = kv_blocks;
  options.max_batch_tokens = 64;
  options.max_logit_rows = 4;
  options.max_context_tokens = config.max_context_tokens;
  return options;
}

Result<std::unique_ptr<cuda::Device>> open(const CudaCase& on, const cuda::DeviceRank& rank, RankGroup* network,
                                           const std::atomic<bool>* broken) {
  if (on.gpu) return cuda::open_device(on.precision, rank);
  cuda::emulation::DeviceOptions options;
  options.precision = on.precision;
  options.schedule = {on.order, 7};
  options.network = network;
  options.broken = broken;
  return cuda::emulation::make_emulated_device(options);
}

// Several ranks with some blocks of a model, each with a device: rank 0's backend, the others on threads of their own.
class DeviceRanks {
 public:
  // `broken`: for rank 1's device. `lost`: for rank 0's backend.
  DeviceRanks(const CudaCase& on, const ModelConfig& config, const ModelWeights& weights, const CudaBackendOptions& options,
              int ranks, const std::atomic<bool>* broken = nullptr, std::function<void(const Error&)> lost = nullptr)
      : config_(config), made_(static_cast<std::size_t>(ranks)) {
    RankGroupSizes network;
    network.ranks = ranks;
    network.sum_floats = cuda::working_sizes(config, options, {}, 1).residual;
    for (int rank = 0; rank < ranks; ++rank) {
      groups_.push_back(join(tensor_parallel_sizes(config, options, ranks), groups_, rank));
      networks_.push_back(join(network, networks_, rank));
      parts_.push_back(testing::slice_of_rank(config, weights, config.all_blocks(), {rank, ranks}));
    }
    if (on.gpu) network_id_ = cuda::new_network_id().value();
    for (int rank = 1; rank < ranks; ++rank) {
      threads_.emplace_back([this, on, options, rank, broken] {
        const auto at = static_cast<std::size_t>(rank);
        auto own = make(on, options, rank, rank == 1 ? broken : nullptr, nullptr);
        made_[at].set_value();
        const auto served = serve_device_rank(*groups_[at], *own);
        if (served.ok()) return;
        ++errors_;
        networks_[at]->fail(served.error().message);
      });
    }
    auto own = make(on, options, 0, nullptr, lost);
    for (std::size_t rank = 1; rank < made_.size(); ++rank) made_[rank].get_future().wait();
    backend = make_tensor_parallel_backend(config_, *groups_[0], std::move(own), std::move(lost));
  }
  ~DeviceRanks() {
    backend.reset();
    for (std::thread& each : threads_) each.join();
    EXPECT_EQ(errors_, errors_expected);
  }
  DeviceRanks(const DeviceRanks&) = delete;
  DeviceRanks& operator=(const DeviceRanks&) = delete;

  std::unique_ptr<Backend> backend;
  int errors_expected = 0;  // number of other ranks that should fail

 private:
  using Groups = std::vector<std::shared_ptr<RankGroup>>;
  static std::shared_ptr<RankGroup> join(const RankGroupSizes& sizes, const Groups& before, int rank) {
    auto group = rank == 0 ? RankGroup::create(sizes) : RankGroup::join(before[0]->descriptor(), rank, sizes);
    EXPECT_TRUE(group.ok());
    return std::move(group).value();
  }
  std::unique_ptr<Backend> make(const CudaCase& on, CudaBackendOptions options, int rank, const std::atomic<bool>* broken,
                                std::function<void(const Error&)> lost) {
    const auto at = static_cast<std::size_t>(rank);
    auto device = open(on, {rank, static_cast<int>(groups_.size()), network_id_}, networks_[at].get(), broken);
    EXPECT_TRUE(device.ok()) << device.error().message;
    options.group = groups_[at].get();
    auto own =
        cuda::make_cuda_backend(config_, source_of(config_, parts_[at]), std::move(device).value(), options, std::move(lost));
    EXPECT_TRUE(own.ok()) << own.error().message;
    return std::move(own).value();
  }

  const ModelConfig config_;
  Groups groups_, networks_;
  cuda::DeviceRank::NetworkId network_id_ = {};
  std::vector<ModelWeights> parts_;
  std::vector<std::promise<void>> made_;  // by rank, without rank 0
  std::atomic<int> errors_ = 0;
  std::vector<std::thread> threads_;
};

class CudaTensorParallel : public ::testing::TestWithParam<CudaCase> {
 protected:
  void SetUp() override {
    if (!GetParam().gpu) return;
    const auto devices = cuda::usable_devices();
    if (!devices.ok()) GTEST_SKIP() << "no GPU: " << devices.error().message;
    if (*devices < 2) GTEST_SKIP() << "found " << *devices << " GPU, two are needed";
  }
  [[nodiscard]] static bool bf16() { return GetParam().precision == cuda::Precision::kBf16; }
  [[nodiscard]] static std::vector<int> degrees() { return GetParam().gpu ? std::vector<int>{2} : std::vector<int>{2, 4}; }
  [[nodiscard]] static ModelWeights weights_of(const ModelConfig& config, std::uint64_t seed,
                                               WeightFormat format = WeightFormat::kFp32) {
    ModelWeights weights = random_weights(config, seed, format);
    return bf16() ? testing::rounded(std::move(weights)) : weights;
  }
  [[nodiscard]] static std::unique_ptr<Backend> alone(const ModelConfig& config, const ModelWeights& weights,
                                                      const CudaBackendOptions& options) {
    auto made =
        cuda::make_cuda_backend(config, source_of(config, weights), open(GetParam(), {}, nullptr, nullptr).value(), options);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return std::move(made).value();
  }
};

std::vector<CudaCase> rank_cases() {
  using Order = cuda::emulation::Schedule::Order;
  return {{"EmulatedFp32", false, cuda::Precision::kFp32, Order::kForward},
          {"EmulatedBf16", false, cuda::Precision::kBf16, Order::kForward},
          {"Gpu2Fp32", true, cuda::Precision::kFp32},
          {"Gpu2Bf16", true, cuda::Precision::kBf16}};
}
INSTANTIATE_TEST_SUITE_P(Devices, CudaTensorParallel, ::testing::ValuesIn(rank_cases()), testing::case_name);

// Given random models (vocabularies that do not divide evenly, tied embeddings, windows, biases and norms of heads, plain and
// 8-bit weights) and schedules of batches, chunks, preemptions and decode steps that become graphs; expects the logits of one
// rank, in FP32 within 1e-4, and its greedy tokens except where the top two are closer than that.
TEST_P(CudaTensorParallel, GivesWhatOneRankGives) {
  for (const int ranks : degrees()) {
    std::int64_t preemptions = 0;
    Compared counts{bf16()};
    for (const std::uint64_t seed :
         effort_share(std::vector<std::uint64_t>{0, 1}, (ranks == 2 ? 0U : 1U) + (bf16() ? 1U : 0U), 2)) {
      SCOPED_TRACE(fmt::format("{} ranks, seed {}", ranks, seed));
      Rng rng(seed, "cuda ranks");
      const ModelConfig config = cut_config(rng, ranks, GetParam().precision);
      CudaBackendOptions options = cut_options(config, 7);
      options.weights = seed == 0 ? WeightFormat::kFp32 : WeightFormat::kFp8;
      const ModelWeights weights = weights_of(config, seed, options.weights);
      const auto reference = alone(config, weights, options);
      const DeviceRanks cut(GetParam(), config, weights, options, ranks);
      Both both(config, *reference, *cut.backend, nullptr);
      both.counts.bf16 = bf16();
      preemptions += testing::run_schedule(rng, config, both, nullptr, 7);
      counts.rows += both.counts.rows;
      counts.close += both.counts.close;
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(preemptions, 0);
    EXPECT_GT(counts.rows, effort(40, 100));
    EXPECT_LE(counts.close, counts.rows / (bf16() ? 10 : 100));
  }
}

// Given a batch of single tokens four times (launched, captured, then replayed), with prompts and batches with a layer callback
// in between; expects all ranks to compute each in the same way, with the same logits each time.
TEST_P(CudaTensorParallel, GraphsComputeWhatKernelsDo) {
  Rng rng(8, "cuda rank graphs");
  const ModelConfig config = cut_config(rng, 2, GetParam().precision);
  const ModelWeights weights = weights_of(config, 3);
  const DeviceRanks cut(GetParam(), config, weights, cut_options(config, 8), 2);
  const auto tokens = random_tokens(rng, config, 8);
  std::vector<std::int32_t> blocks(8);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<SequenceChunk> chunks;
  for (std::size_t i = 0; i < 4; ++i)  // as many as a graph's rows, so that all products have one shape
    chunks.push_back({std::span(tokens).subspan(i, 1), 0, std::span(blocks).subspan(i, 1), true, {}, {}});
  std::vector<float> first;
  const auto expect_first = [&](std::span<const float> found) {
    ASSERT_EQ(found.size(), 4 * static_cast<std::size_t>(config.vocab_size));
    if (first.empty()) first.assign(found.begin(), found.end());
    Compared counts{bf16()};
    expect_same_rows(found, first, config.vocab_size, counts);
    if (GetParam().gpu) return;  // if a network switch computes sums, bits may differ between them
    EXPECT_TRUE(std::equal(found.begin(), found.end(), first.begin(), first.end()));
  };
  for (int time = 0; time < 4; ++time) {
    SCOPED_TRACE(fmt::format("time {}", time));
    const auto logits = cut.backend->forward(chunks);
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    expect_first(*logits);
    std::int64_t layers = 0;
    const auto watched = cut.backend->forward(chunks, [&](std::int64_t) { ++layers; });
    ASSERT_TRUE(watched.ok());
    EXPECT_EQ(layers, config.layers);
    expect_first(*watched);
    const SequenceChunk prompt{tokens, 0, std::span(blocks).last(1), false, {}, {}};
    ASSERT_TRUE(cut.backend->forward(std::span(&prompt, 1)).ok());
  }
}

// Given ranks with parts of the vocabulary; expects the parts' summaries to be merged to the row's, and a row requested
// afterwards to come from all ranks.
TEST_P(CudaTensorParallel, SummarisesRowsWhereThatSuffices) {
  for (const int ranks : degrees()) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    Rng rng(13, "cuda rank needs");
    ModelConfig config = cut_config(rng, ranks, GetParam().precision);
    config.vocab_size = 2 * cuda::kSummarySegment + 101;
    const ModelWeights weights = weights_of(config, 13);
    CudaBackendOptions options = cut_options(config, 8);
    options.max_logit_rows = 6;
    const DeviceRanks cut(GetParam(), config, weights, options, ranks);
    testing::expect_rows_by_need(rng, config, *cut.backend, GetParam().gpu ? 0.05F : 0);
  }
}

// Given a chain of two workers, each split into ranks with one device each; expects the logits of one device.
TEST_P(CudaTensorParallel, WorkersOfAChainMayBeCut) {
  const int second_ranks = degrees().back();
  Rng rng(4, "cuda cut chain");
  ModelConfig config = cut_config(rng, 4, GetParam().precision);
  config.layers = 3;
  config.windows.resize(3, 0);
  const ModelWeights weights = weights_of(config, 4);
  CudaBackendOptions options = cut_options(config, 10);
  const auto reference = alone(config, weights, options);
  options.blocks = BlockRange{0, 2};
  const DeviceRanks first(GetParam(), config, weights, options, 2);
  options.blocks = BlockRange{2, 3};
  const DeviceRanks second(GetParam(), config, weights, options, second_ranks);
  Both both(config, *reference, *first.backend, second.backend.get());
  both.counts.bf16 = bf16();
  testing::run_schedule(rng, config, both, nullptr, 4);
  EXPECT_GT(both.counts.rows, 30);
}

// Given a prompt's keys and values, read layer by layer while one, two and four ranks with devices, and two on the CPU, compute
// it, and written to each other's caches; expects those of one device, exactly as read, and all to continue as one device
// would.
TEST_P(CudaTensorParallel, KeysAndValuesFitEveryDegree) {
  constexpr std::int64_t kTokens = 300;  // more than one errand's piece
  Rng rng(11, "cuda degrees");
  ModelConfig config = cut_config(rng, 4, GetParam().precision);
  config.layers = 2;
  config.max_context_tokens = 400;
  const ModelWeights weights = weights_of(config, 11);
  CudaBackendOptions options = cut_options(config, 48);
  options.max_batch_tokens = kTokens;
  const auto reference = alone(config, weights, options);
  std::vector<std::unique_ptr<DeviceRanks>> cut;
  for (const int ranks : degrees()) cut.push_back(std::make_unique<DeviceRanks>(GetParam(), config, weights, options, ranks));
  std::vector<Backend*> backends{reference.get()};
  for (const auto& each : cut) backends.push_back(each->backend.get());
  CpuBackendOptions on_cpu;
  on_cpu.kv_blocks = options.kv_blocks;
  on_cpu.max_batch_tokens = kTokens;
  on_cpu.max_context_tokens = options.max_context_tokens;
  const auto cpu = make_cpu_backend(config, weights, on_cpu).value();
  const auto tokens = random_tokens(rng, config, kTokens + 1);
  std::vector<std::int32_t> here(24), there(24);
  std::iota(here.rbegin(), here.rend(), 0);
  std::iota(there.begin(), there.end(), 24);
  std::swap(there[3], there[17]);
  const SequenceChunk prompt{std::span(tokens).first(kTokens), 0, here, false, {}, {}};
  const SequenceChunk next{std::span(tokens).last(1), kTokens, there, true, {}, {}};
  const SequenceChunk next_here{std::span(tokens).last(1), kTokens, here, true, {}, {}};
  const KvShape shape = reference->kv_shape();
  const auto floats = static_cast<std::size_t>(kTokens * shape.values);
  std::vector<float> wanted;
  for (Backend* from : backends) {
    EXPECT_EQ(from->kv_shape().layers, shape.layers);
    EXPECT_EQ(from->kv_shape().values, shape.values);
    std::vector<std::vector<float>> read;
    const auto take = [&](std::int64_t layer) {
      read.emplace_back(floats);
      std::thread transfer([&] { from->read_kv({layer, 0, kTokens}, here, read.back().data()); });
      transfer.join();
    };
    ASSERT_TRUE(from->forward(std::span(&prompt, 1), take).ok());
    ASSERT_EQ(static_cast<std::int64_t>(read.size()), config.layers);
    if (wanted.empty()) {
      const auto rows = from->forward(std::span(&next_here, 1));
      ASSERT_TRUE(rows.ok());
      wanted.assign(rows->begin(), rows->end());
    }
    std::vector<Backend*> to_all = backends;
    to_all.push_back(cpu.get());
    for (Backend* to : to_all) {
      for (std::int64_t layer = 0; layer < config.layers; ++layer) {
        const float* values = read[static_cast<std::size_t>(layer)].data();
        to->write_kv({layer, 17, kTokens - 17}, there, values + 17 * shape.values);
        to->write_kv({layer, 0, 17}, there, values);
        std::vector<float> again(floats);
        to->read_kv({layer, 0, kTokens}, there, again.data());
        ASSERT_EQ(again, read[static_cast<std::size_t>(layer)]);
      }
      const auto found = to->forward(std::span(&next, 1));
      ASSERT_TRUE(found.ok());
      Compared counts{bf16()};
      expect_same_rows(*found, wanted, config.vocab_size, counts);
    }
  }
}

// Given a batch that is too large, and an empty one; expects all ranks to treat it alike and to compute the next one.
TEST_P(CudaTensorParallel, RefusedBatchesDoNoHarm) {
  Rng rng(3, "cuda refused");
  const ModelConfig config = cut_config(rng, 2, GetParam().precision);
  const ModelWeights weights = weights_of(config, 3);
  const CudaBackendOptions options = cut_options(config, 8);
  const DeviceRanks cut(GetParam(), config, weights, options, 2);
  const auto tokens = random_tokens(rng, config, 65);
  std::vector<std::int32_t> blocks(8);
  std::iota(blocks.begin(), blocks.end(), 0);
  const SequenceChunk large{tokens, 0, blocks, true, {}, {}};
  const auto refused = cut.backend->forward(std::span(&large, 1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInternal);
  EXPECT_THAT(refused.error().message, HasSubstr("(got 65 and"));
  const SequenceChunk empty{{}, 0, blocks, false, {}, {}};
  const auto none = cut.backend->forward(std::span(&empty, 1));
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
  const SequenceChunk chunk{std::span(tokens).first(64), 0, blocks, true, {}, {}};
  const auto found = cut.backend->forward(std::span(&chunk, 1));
  ASSERT_TRUE(found.ok());
  const auto reference = alone(config, weights, options);
  const auto expected = reference->forward(std::span(&chunk, 1));
  ASSERT_TRUE(expected.ok());
  Compared counts{bf16()};
  expect_same_rows(*found, *expected, config.vocab_size, counts);
}

// Given one rank and two that measure themselves; expects a figure for each kind of iteration, and later results equal to those
// of a backend that did not measure.
TEST_P(CudaTensorParallel, MeasureThemselves) {
  Rng rng(5, "cuda measured");
  const ModelConfig config = cut_config(rng, 2, GetParam().precision);
  const ModelWeights weights = weights_of(config, 5);
  const CudaBackendOptions options = cut_options(config, blocks_for(config.max_context_tokens));
  const auto one = alone(config, weights, options), reference = alone(config, weights, options);
  const DeviceRanks cut(GetParam(), config, weights, options, 2);
  const EngineOptions engine{options.max_logit_rows, 1, options.max_context_tokens, options.max_batch_tokens};
  const auto tokens = random_tokens(rng, config, 40);
  std::vector<std::int32_t> blocks(3);
  std::iota(blocks.begin(), blocks.end(), 0);
  const SequenceChunk chunk{tokens, 0, blocks, true, {}, {}};
  const auto expected = reference->forward(std::span(&chunk, 1));
  ASSERT_TRUE(expected.ok());
  for (Backend* backend : {one.get(), cut.backend.get()}) {
    const auto measured = measure_iterations(engine, *backend, SteadyClock(), {1e-3, true});
    ASSERT_TRUE(measured.ok()) << measured.error().message;
    std::vector<std::pair<int, int>> kinds;
    for (const metrics::MeasuredIteration& each : *measured) {
      kinds.emplace_back(each.prompt_tokens, each.batch);
      EXPECT_GT(each.seconds, 0);
    }
    EXPECT_EQ(kinds, (std::vector<std::pair<int, int>>{{32, 0}, {0, 1}, {0, 4}, {64, 0}}));
    const auto found = backend->forward(std::span(&chunk, 1));
    ASSERT_TRUE(found.ok());
    Compared counts{bf16()};
    expect_same_rows(*found, *expected, config.vocab_size, counts);
  }
}

// Given a device of rank 1 that breaks; expects rank 0's forward() to fail with its reason and to call `lost`, and no more
// copies of keys and values, so that nobody waits for ever.
TEST(CudaRankLost, IsToldOf) {
  Rng rng(1, "cuda rank lost");
  const ModelConfig config = cut_config(rng, 4, cuda::Precision::kFp32);
  const ModelWeights weights = random_weights(config, 1);
  std::atomic<bool> broken = false;
  std::mutex mutex;  // the watch may report, too
  std::vector<std::string> told;
  const auto told_so_far = [&] {
    const std::scoped_lock lock(mutex);
    return std::exchange(told, {});
  };
  DeviceRanks cut({"Emulated", false, cuda::Precision::kFp32}, config, weights, cut_options(config, 8), 4, &broken,
                  [&](const Error& error) {
                    const std::scoped_lock lock(mutex);
                    told.push_back(error.message);
                  });
  cut.errors_expected = 3;
  const auto tokens = random_tokens(rng, config, 8);
  const std::vector<std::int32_t> blocks{0};
  const SequenceChunk chunk{tokens, 0, blocks, true, {}, {}};
  EXPECT_TRUE(cut.backend->forward(std::span(&chunk, 1)).ok());
  broken = true;
  const auto logits = cut.backend->forward(std::span(&chunk, 1));
  ASSERT_FALSE(logits.ok());
  EXPECT_EQ(logits.error().code, ErrorCode::kUnavailable);
  const std::string why = logits.error().message;
  EXPECT_EQ(why, "rank 1 of 4: the emulated device is broken");
  EXPECT_THAT(told_so_far(), ::testing::Contains(why));
  std::vector<float> values(static_cast<std::size_t>(8 * cut.backend->kv_shape().values), 5);
  cut.backend->read_kv({0, 0, 8}, blocks, values.data());
  EXPECT_EQ(values.front(), 5);
  EXPECT_THAT(told_so_far(), ::testing::Contains(why)) << "by who copies";
  EXPECT_FALSE(cut.backend->forward(std::span(&chunk, 1)).ok());
}

// Given random models on two and four ranks in each precision; expects each rank to allocate exactly what memory_need()
// predicts, and all together to have each matrix once.
TEST(CudaRankMemory, UsesTheMemoryPredicted) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const auto precision = seed % 2 == 0 ? cuda::Precision::kBf16 : cuda::Precision::kFp32;
    const int ranks = seed < 4 ? 2 : 4;
    Rng rng(seed, "cuda rank memory");
    ModelConfig config = cut_config(rng, ranks, precision);
    config.vocab_size = 997;  // shares that differ by one
    config.hidden_size = 64;
    const ModelWeights weights = random_weights(config, seed);
    CudaBackendOptions options = cut_options(config, 10);
    options.max_batch_tokens = rng.integer(1, 64);
    const std::int64_t whole = cuda::memory_need(config, options, {}, precision, 4).weights_bytes;
    std::int64_t parts = 0;
    std::vector<std::shared_ptr<RankGroup>> groups;
    for (int rank = 0; rank < ranks; ++rank) {
      const RankGroupSizes sizes = tensor_parallel_sizes(config, options, ranks);
      groups.push_back((rank == 0 ? RankGroup::create(sizes) : RankGroup::join(groups[0]->descriptor(), rank, sizes)).value());
      options.group = groups.back().get();
      auto device = cuda::emulation::make_emulated_device({precision});
      const cuda::MemoryNeed need = cuda::memory_need(config, options, options.slice(), precision, device->multiprocessors());
      const cuda::Device& watched = *device;
      const auto before = watched.memory();
      const ModelWeights part = testing::slice_of_rank(config, weights, config.all_blocks(), {rank, ranks});
      const auto backend = cuda::make_cuda_backend(config, source_of(config, part), std::move(device), options);
      ASSERT_TRUE(backend.ok()) << backend.error().message;
      const std::int64_t taken = before->free_bytes - watched.memory()->free_bytes;
      const std::int64_t said = need.weights_bytes + need.working_bytes + options.kv_blocks * need.kv_block_bytes;
      EXPECT_LE(taken, said);
      EXPECT_GE(static_cast<double>(taken), 0.9 * static_cast<double>(said));
      parts += need.weights_bytes;
      options.group = nullptr;
    }
    EXPECT_GE(parts, whole);
    EXPECT_LE(static_cast<double>(parts), 1.2 * static_cast<double>(whole));  // every rank has all norms and biases
  }
}

// Given more ranks than devices; expects an error with the flag, the rule and the value.
TEST(CudaRankMemory, EachRankNeedsADevice) {
  EXPECT_TRUE(cuda::check_devices(1, 1).ok());
  EXPECT_TRUE(cuda::check_devices(2, 8).ok());
  const auto few = cuda::check_devices(4, 2);
  ASSERT_FALSE(few.ok());
  EXPECT_EQ(few.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(few.error().message,
              HasSubstr("--tensor-parallel: must be at most 2, the number of visible GPUs, with --backend cuda (got 4)"));
}

}  // namespace
}  // namespace windlass::worker
