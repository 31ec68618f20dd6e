// The whole CUDA backend, always in the emulation, and on a GPU if there is one. Compared with the plain reference, Hugging
// Face transformers' golden logits and the CPU backend.
#include "worker/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <regex>
#include <thread>

#include <gmock/gmock.h>

#include "tests/effort.h"
#include "tests/unit/worker/cuda_devices.h"
#include "tests/unit/worker/cuda_models.h"
#include "tests/unit/worker/cuda_summaries.h"
#include "tests/unit/worker/cut_sequences.h"
#include "tests/unit/worker/fake_backend.h"
#include "tests/unit/worker/golden_parity.h"
#include "tests/unit/worker/random_model.h"
#include "tests/unit/worker/reference_model.h"
#include "tests/unit/worker/shared_blocks.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/memory_fit.h"
#include "worker/engine/engine.h"

namespace windlass::worker {
namespace {

using cuda::CudaBackendOptions;
using ::testing::HasSubstr;
using testing::random_config;
using testing::random_tokens;
using testing::random_weights;
using testing::rounded;
using testing::source_of;

class CudaBackend : public testing::OnCudaDevice {
 protected:
  [[nodiscard]] Result<std::unique_ptr<Backend>> make(const ModelConfig& config, const ModelWeights& weights,
                                                      const CudaBackendOptions& options) {
    std::unique_ptr<cuda::Device> device;
    if (GetParam().gpu) {
      WINDLASS_ASSIGN_OR_RETURN(device, cuda::open_device(precision()));
    } else {
      device = emulated();
    }
    return cuda::make_cuda_backend(config, source_of(config, weights), std::move(device), options);
  }
  // For batches of 32 tokens and contexts of 64.
  static CudaBackendOptions small_options(std::int64_t kv_blocks, std::int64_t logit_rows) {
    CudaBackendOptions options;
    options.kv_blocks = kv_blocks;
    options.max_batch_tokens = 32;
    options.max_logit_rows = logit_rows;
    options.max_context_tokens = 64;
    return options;
  }
  // FP32 against FP32 or double: some 1e-5 for logits near 1. In BF16, values between operations are rounded to 8 bits, some
  // ten times per layer: a row is off by a few hundredths of its length.
  template <typename Expected>
  static void expect_logits(std::span<const float> found, const Expected& expected, double most = 0.03) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size() && !bf16(); ++i) ASSERT_NEAR(found[i], expected[i], 2e-4) << "logit " << i;
    ASSERT_LE(relative_difference(found, expected), most);
  }
  // The length of the difference relative to the expected row.
  template <typename Expected>
  static double relative_difference(std::span<const float> found, const Expected& expected) {
    double difference = 0;
    double length = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double off = static_cast<double>(found[i]) - static_cast<double>(expected[i]);
      difference += off * off;
      length += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
    }
    return std::sqrt(difference / length);
  }
};

std::vector<testing::CudaCase> backend_cases() {
  using Order = cuda::emulation::Schedule::Order;
  return {{"EmulatedFp32", false, cuda::Precision::kFp32, Order::kBackward},
          {"EmulatedBf16", false, cuda::Precision::kBf16, Order::kForward},
          {"GpuFp32", true, cuda::Precision::kFp32},
          {"GpuBf16", true, cuda::Precision::kBf16}};
}
INSTANTIATE_TEST_SUITE_P(Devices, CudaBackend, ::testing::ValuesIn(backend_cases()), testing::case_name);

// Given random shapes (with and without biases, norms of heads and windows), weights, and sequences cut into random chunks,
// batched together and placed in shuffled blocks; expects the logits of every chunk's last token to be the reference's for the
// whole sequence.
TEST_P(CudaBackend, MatchesReferenceHoweverWorkIsCut) {
  Rng rng(5, "cuda forward");
  for (int round = 0; round < effort(2, 5); ++round) {
    const ModelConfig config = random_config(rng, precision());
    ModelWeights weights = random_weights(config, static_cast<std::uint64_t>(round));
    if (bf16()) weights = rounded(std::move(weights));
    CudaBackendOptions options;
    options.kv_blocks = 20;
    options.max_batch_tokens = testing::CutSequences::kMaxTokens;
    options.max_logit_rows = testing::CutSequences::kMaxRows;
    options.max_context_tokens = config.max_context_tokens;
    auto backend = make(config, weights, options);
    ASSERT_TRUE(backend.ok()) << backend.error().message;

    testing::CutSequences sequences(rng, config, weights, options.kv_blocks, 60);
    for (testing::CutSequences::Batch batch; sequences.next(batch);) {
      const auto& expected = batch.expected;
      const auto logits = (*backend)->forward(batch.chunks);
      ASSERT_TRUE(logits.ok()) << logits.error().message;
      ASSERT_EQ(logits->size(), expected.size() * static_cast<std::size_t>(config.vocab_size));
      for (std::size_t row = 0; row < expected.size(); ++row) {
        const auto vocab = static_cast<std::size_t>(config.vocab_size);
        // Two more products, and the norms' output continues in the residual stream: measured 0.032.
        const double most = config.norm_after || config.embedding_size > 0 ? 0.04 : 0.03;
        ASSERT_NO_FATAL_FAILURE(expect_logits(logits->subspan(row * vocab, vocab), *expected[row], most)) << "round " << round;
      }
    }
  }
}

// Given random models and sequences that continue after blocks which another one fills in the same batch; expects the
// reference's logits.
TEST_P(CudaBackend, ChunksReadWhatTheirBatchWrites) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Rng rng(seed, "cuda shared blocks");
    const ModelConfig config = random_config(rng, precision());
    const ModelWeights weights = rounded(random_weights(config, seed));
    const testing::SharedBlocks shared(rng, config);
    CudaBackendOptions options;
    options.kv_blocks = testing::SharedBlocks::kBlocks;
    options.max_batch_tokens = testing::SharedBlocks::kTokens;
    options.max_logit_rows = testing::SharedBlocks::kRows;
    options.max_context_tokens = config.max_context_tokens;
    auto backend = make(config, weights, options);
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    const auto logits = (*backend)->forward(shared.batch());
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    const auto vocab = static_cast<std::size_t>(config.vocab_size);
    std::size_t row = 0;
    for (const testing::Row& expected : shared.expected(config, weights)) {
      ASSERT_NO_FATAL_FAILURE(expect_logits(logits->subspan(row++ * vocab, vocab), expected)) << "seed " << seed;
    }
  }
}

// Given a long context, which decode attention splits, and prompts longer than a tile that begin within windows; expects the
// reference's last logits.
TEST_P(CudaBackend, LongContexts) {
  Rng rng(6, "cuda long");
  for (const std::int64_t window : {0, 133}) {
    const ModelConfig config = testing::one_layer(window);
    const ModelWeights weights = rounded(random_weights(config, 9));
    const auto tokens = random_tokens(rng, config, 300);
    CudaBackendOptions options;
    options.kv_blocks = blocks_for(300);
    options.max_batch_tokens = 299;
    options.max_logit_rows = 1;
    options.max_context_tokens = 300;
    auto backend = make(config, weights, options);
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    std::vector<std::int32_t> blocks(static_cast<std::size_t>(options.kv_blocks));
    std::iota(blocks.begin(), blocks.end(), 0);
    const auto expected = testing::reference_logits(config, weights, tokens);
    const SequenceChunk prompt{std::span(tokens).first(299), 0, blocks, true};
    const SequenceChunk last{std::span(tokens).last(1), 299, blocks, true};
    for (const auto& [chunk, position] : {std::pair{prompt, 298U}, std::pair{last, 299U}}) {
      const auto logits = (*backend)->forward(std::span(&chunk, 1));
      ASSERT_TRUE(logits.ok()) << logits.error().message;
      expect_logits(*logits, expected[position]);
    }
  }
}

// Given 8-bit weights, a prompt with many rows and then single tokens, also through graphs; expects the logits of the reference
// on the numbers that the codes stand for. Also with rows that are not aligned for the product of few rows, and with matrices
// unpacked in several parts.
TEST_P(CudaBackend, EightBitWeights) {
  Rng rng(8, "cuda eight bits");
  std::size_t turn = bf16() ? 1 : 0;
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kFp8}) {
    // With 144, the products added to the residual stream are in parts too.
    for (const std::int64_t hidden : effort_share(std::vector<std::int64_t>{144, 36}, turn++, 2)) {
      SCOPED_TRACE(fmt::format("{} {}", to_string(format), hidden));
      ModelConfig config = random_config(rng, precision());
      config.hidden_size = hidden;
      config.intermediate_size = 150;
      ModelWeights weights = random_weights(config, 3, format);
      if (bf16()) weights = rounded(std::move(weights));
      CudaBackendOptions options;
      options.kv_blocks = 6;
      options.max_batch_tokens = 80;
      options.max_logit_rows = 1;
      options.max_context_tokens = config.max_context_tokens;
      options.weights = format;
      options.max_unpacked = 1;  // 128 rows at a time
      auto backend = make(config, weights, options);
      ASSERT_TRUE(backend.ok()) << backend.error().message;
      const auto tokens = random_tokens(rng, config, 84);
      const auto expected = testing::reference_logits(config, weights, tokens);
      const std::vector<std::int32_t> blocks{5, 1, 4, 0, 3, 2};
      for (std::size_t done = 0; done < tokens.size();) {
        const std::size_t count = done == 0 ? 80 : 1;
        const SequenceChunk chunk{std::span(tokens).subspan(done, count), static_cast<std::int64_t>(done), blocks, true};
        done += count;
        const auto logits = (*backend)->forward(std::span(&chunk, 1));
        ASSERT_TRUE(logits.ok()) << logits.error().message;
        ASSERT_NO_FATAL_FAILURE(expect_logits(*logits, expected[done - 1])) << "after " << done;
      }
    }
  }
}

class CudaBackendInBf16 : public CudaBackend {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaBackendInBf16,
                         ::testing::Values(testing::CudaCase{"Emulated", false, cuda::Precision::kBf16},
                                           testing::CudaCase{"Gpu", true, cuda::Precision::kBf16}),
                         testing::case_name);

// Given 8-bit weights and activations, a prompt with many rows and then single tokens; expects logits within a tenth of the
// length of the reference's, which rounds no activations, but not equal. Products are made in several parts. A device without
// FP8 products is refused by name.
TEST_P(CudaBackendInBf16, Fp8Activations) {
  Rng rng(9, "cuda fp8 activations");
  ModelConfig config;
  config.hidden_size = 144;
  config.heads = 6;
  config.kv_heads = 3;
  config.head_dim = 16;
  config.layers = 2;
  config.intermediate_size = 160;
  config.vocab_size = 50;
  const ModelWeights weights = rounded(random_weights(config, 3, WeightFormat::kFp8));
  CudaBackendOptions options;
  options.kv_blocks = 6;
  options.max_batch_tokens = 80;
  options.max_logit_rows = 1;
  options.max_context_tokens = 96;
  options.weights = WeightFormat::kFp8;
  options.max_unpacked = 1;
  const auto plain = make(config, weights, options);
  options.fp8_activations = true;
  const auto backend = make(config, weights, options);
  ASSERT_TRUE(plain.ok());
  if (!device_->multiplies_fp8()) {  // a GPU
    ASSERT_FALSE(backend.ok());
    EXPECT_THAT(backend.error().message, HasSubstr("its tensor cores have no products of FP8"));
    return;
  }
  ASSERT_TRUE(backend.ok()) << backend.error().message;
  const auto tokens = random_tokens(rng, config, 84);
  const std::vector<std::int32_t> blocks{5, 1, 4, 0, 3, 2};
  for (std::size_t done = 0; done < tokens.size();) {
    const std::size_t count = done == 0 ? 80 : 1;
    const SequenceChunk chunk{std::span(tokens).subspan(done, count), static_cast<std::int64_t>(done), blocks, true};
    done += count;
    const auto expected = (*plain)->forward(std::span(&chunk, 1));
    const auto found = (*backend)->forward(std::span(&chunk, 1));
    ASSERT_TRUE(expected.ok() && found.ok());
    const double off = relative_difference(*found, *expected);
    EXPECT_GT(off, 1e-4) << "after " << done;
    EXPECT_LT(off, 0.1) << "after " << done;
    RecordProperty(fmt::format("off_after_{}", done), std::to_string(off));
  }
  if (GetParam().gpu) return;
  auto old = cuda::emulation::make_emulated_device({.precision = precision(), .fp8 = false});
  const auto refused = cuda::make_cuda_backend(config, source_of(config, weights), std::move(old), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "--activations: must be bf16 on emulated device (got fp8): its tensor cores do not support FP8");
}

// Given the same batch of single tokens four times (launched, captured, then replayed), with other batches in between; expects
// the same bits each time, also for a shorter batch in the same graph.
TEST_P(CudaBackend, GraphsComputeWhatKernelsDo) {
  Rng rng(8, "cuda graphs");
  ModelConfig config = random_config(rng, precision());
  const ModelWeights weights = rounded(random_weights(config, 3));
  const CudaBackendOptions options = small_options(8, 8);
  auto backend = make(config, weights, options);
  ASSERT_TRUE(backend.ok()) << backend.error().message;
  const auto tokens = random_tokens(rng, config, 8);
  std::vector<std::int32_t> blocks(8);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<SequenceChunk> chunks;
  for (std::size_t i = 0; i < 4; ++i)
    chunks.push_back({std::span(tokens).subspan(i, 1), 0, std::span(blocks).subspan(i, 1), i != 1});
  std::vector<float> first;
  for (int time = 0; time < 4; ++time) {
    const auto logits = (*backend)->forward(chunks);
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    ASSERT_EQ(logits->size(), 3 * static_cast<std::size_t>(config.vocab_size));
    const std::vector<float> found(logits->begin(), logits->end());
    if (time == 0) first = found;
    EXPECT_EQ(found, first) << "time " << time;
    const auto shorter = (*backend)->forward(std::span(chunks).first(3));
    ASSERT_TRUE(shorter.ok());
    EXPECT_TRUE(std::equal(shorter->begin(), shorter->end(), first.begin())) << "time " << time;
    const SequenceChunk prompt{tokens, 0, std::span(blocks).last(1), false};
    ASSERT_TRUE((*backend)->forward(std::span(&prompt, 1)).ok());
  }
}

// Given the same batch repeatedly (launched, captured, replayed), first with full rows wanted and then with needs that change
// each time; expects a summary for each row that allows one, and full rows for the others and for those requested afterwards.
TEST_P(CudaBackend, SummarisesRowsWhereThatSuffices) {
  Rng rng(12, "cuda needs");
  ModelConfig config = random_config(rng, precision());
  config.vocab_size = cuda::kSummarySegment + 100;
  const ModelWeights weights = rounded(random_weights(config, 12));
  const CudaBackendOptions options = small_options(8, 6);
  auto backend = make(config, weights, options);
  ASSERT_TRUE(backend.ok()) << backend.error().message;
  testing::expect_rows_by_need(rng, config, **backend);
}

// Returns another backend's logits, never a summary.
class RowsAlone final : public Backend {
 public:
  explicit RowsAlone(Backend& of) : of_(of) {}
  [[nodiscard]] std::int64_t vocab_size() const override { return of_.vocab_size(); }
  [[nodiscard]] std::int64_t kv_blocks() const override { return of_.kv_blocks(); }
  [[nodiscard]] KvShape kv_shape() const override { return of_.kv_shape(); }
  void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const override {
    of_.read_kv(range, blocks, out);
  }
  void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    of_.write_kv(range, blocks, in);
  }

 private:
  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> wanted, const LayerDone& layer_done,
                                                   std::int64_t skip) override {
    std::vector<SequenceChunk> chunks(wanted.begin(), wanted.end());
    for (SequenceChunk& each : chunks) each.need = {};
    return of_.forward(chunks, layer_done, skip);
  }
  Backend& of_;
};

// Given requests with greedy sampling, top-k, log probabilities and penalties in one batch; expects the engine to draw the same
// tokens, with the same log probabilities, from summaries as from rows.
TEST_P(CudaBackend, AnEngineDrawsFromSummariesAsFromRows) {
  Rng rng(14, "cuda engine");
  ModelConfig config = random_config(rng, precision());
  config.vocab_size = cuda::kSummarySegment + 100;
  const ModelWeights weights = rounded(random_weights(config, 14));
  const CudaBackendOptions options = small_options(32, 6);
  auto made = make(config, weights, options);
  ASSERT_TRUE(made.ok()) << made.error().message;
  std::vector<std::vector<std::int32_t>> prompts;
  for (int i = 0; i < 6; ++i) prompts.push_back(random_tokens(rng, config, 5));
  const std::vector<SamplingParams> sampling{{.temperature = 0},
                                             {.top_k = 50, .seed = 1},
                                             {.temperature = 0, .logprobs = 3},
                                             {.top_p = 0.8, .top_k = 20, .logprobs = 2, .seed = 2},
                                             {.temperature = 0, .frequency_penalty = 1},
                                             {.top_k = 1000, .seed = 3}};
  struct Told {
    std::vector<std::string> tokens;
    std::vector<double> logprobs;
  };
  const auto told_by = [&](Backend& backend) {
    EngineOptions engine_options;
    engine_options.max_running = 6;
    engine_options.max_context_tokens = 64;
    engine_options.max_batch_tokens = 32;
    engine_options.prefix_caching = false;
    std::vector<std::string> texts;
    for (std::int64_t id = 0; id < config.vocab_size; ++id) texts.push_back(fmt::format("{} ", id));
    const auto text = [&](std::int32_t id) { return std::string_view(texts[static_cast<std::size_t>(id)]); };
    const testing::ManualClock clock;
    Engine engine(engine_options, backend, text, clock);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      GenerationRequest request;
      request.prompt = prompts[i];
      request.sampling = sampling[i];
      request.max_tokens = effort(4, 12);
      request.ignore_eos = true;
      EXPECT_TRUE(engine.submit(i, std::move(request), 0).ok());
    }
    Told told;
    while (!engine.idle()) {
      for (const TokenEvent& event : engine.step()) {
        EXPECT_EQ(event.error, "");
        told.tokens.push_back(event.text);
        if (!event.logprobs) continue;
        told.logprobs.push_back(event.logprobs->token.logprob);
        for (const auto& each : event.logprobs->top) told.logprobs.push_back(each.logprob);
      }
    }
    return told;
  };
  const Told by_summaries = told_by(**made);
  RowsAlone rows(**made);
  const Told by_rows = told_by(rows);
  EXPECT_EQ(by_summaries.tokens.size(), effort(24U, 72U));
  EXPECT_EQ(by_summaries.tokens, by_rows.tokens);
  ASSERT_EQ(by_summaries.logprobs.size(), by_rows.logprobs.size());
  for (std::size_t i = 0; i < by_rows.logprobs.size(); ++i) EXPECT_NEAR(by_summaries.logprobs[i], by_rows.logprobs[i], 1e-4);
}

// Given a model in two parts; expects the second, fed with the first one's hidden states, to give the whole model's logits, for
// prompts and single tokens.
TEST_P(CudaBackend, PartsOfAModel) {
  // In CI each precision tries one of the plain models, and both try the last.
  const std::vector<std::uint64_t> seeds = effort(std::vector<std::uint64_t>{bf16() ? 1U : 0U, 2}, {0, 1, 2});
  for (const std::uint64_t seed : seeds) {
    Rng rng(seed, "cuda parts");
    ModelConfig config = random_config(rng, precision());
    const bool three = seed == 2;  // three parts, and a model arranged like OPT-350M
    if (three) {
      config.experts = 0;
      config.norm_after = true;
      config.embedding_size = 24;
    }
    config.layers = 3;
    config.windows = {0, 9, 0};
    const ModelWeights weights = rounded(random_weights(config, seed));
    CudaBackendOptions options;
    options.kv_blocks = 4;
    options.max_batch_tokens = 40;
    options.max_context_tokens = 64;
    auto whole = make(config, weights, options);
    ASSERT_TRUE(whole.ok());
    std::vector<std::unique_ptr<Backend>> parts;
    for (const BlockRange blocks :
         three ? std::vector<BlockRange>{{0, 1}, {1, 2}, {2, 3}} : std::vector<BlockRange>{{0, 2}, {2, 3}}) {
      options.blocks = blocks;
      auto part = make(config, weights, options);
      ASSERT_TRUE(part.ok());
      parts.push_back(std::move(part).value());
    }
    const auto tokens = random_tokens(rng, config, 44);
    const std::vector<std::int32_t> blocks{2, 0, 3};
    std::size_t done = 0;
    for (const std::size_t count : {40, 1, 1, 1, 1}) {
      const SequenceChunk chunk{std::span(tokens).subspan(done, count), static_cast<std::int64_t>(done), blocks, true};
      const auto expected = (*whole)->forward(std::span(&chunk, 1));
      ASSERT_TRUE(expected.ok());
      SequenceChunk later = chunk;
      Result<std::span<const float>> found = std::span<const float>();
      for (const auto& part : parts) {
        if (part != parts.front()) {
          ASSERT_EQ(found->size(), count * static_cast<std::size_t>(config.hidden_size));
          later = {{}, chunk.start, blocks, true, *found};
        }
        found = part->forward(std::span(&later, 1));
        ASSERT_TRUE(found.ok());
      }
      EXPECT_TRUE(std::equal(found->begin(), found->end(), expected->begin(), expected->end())) << "seed " << seed;
      done += count;
    }
  }
}

// Given a prompt's keys and values, read layer by layer as the callback reports them and written to the CPU backend's cache and
// another device's; expects both to continue with the first one's logits, that device with the same bits.
TEST_P(CudaBackend, KeysAndValuesMoveBetweenBackends) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Rng rng(seed, "cuda move");
    const ModelConfig config = random_config(rng, precision());
    const ModelWeights weights = rounded(random_weights(config, seed));
    CudaBackendOptions options;
    options.kv_blocks = testing::MovedPrompt::kBlocks;
    options.max_batch_tokens = 64;
    options.max_context_tokens = 64;
    CpuBackendOptions cpu_options;
    cpu_options.kv_blocks = testing::MovedPrompt::kBlocks;
    cpu_options.max_context_tokens = 64;
    auto from = make(config, weights, options);
    auto to = make(config, weights, options);
    auto cpu = make_cpu_backend(config, weights, cpu_options);
    ASSERT_TRUE(from.ok() && to.ok() && cpu.ok());
    const testing::MovedPrompt prompt(rng, config);
    const std::int64_t layers = prompt.compute(**from, [&](std::int64_t layer, std::vector<float>& values) {
      std::thread transfer([&] {  // on a thread of its own, like transfers
        prompt.read(**from, layer, values);
        prompt.write(**to, layer, values);
      });
      transfer.join();
      prompt.write(**cpu, layer, values);
    });
    EXPECT_EQ(layers, config.layers);
    const std::vector<float> expected = prompt.last(**from, true);
    EXPECT_EQ(prompt.last(**to, false), expected) << "seed " << seed;
    expect_logits(prompt.last(**cpu, false), expected);
  }
}

// Given more tokens than the backend was made for, more heads or experts than the kernels support, and a source that fails;
// expects errors.
TEST_P(CudaBackend, RefusesUnsupportedFeatures) {
  Rng rng(1, "cuda large");
  ModelConfig config = random_config(rng, precision());
  const ModelWeights weights = random_weights(config, 1);
  CudaBackendOptions options;
  options.kv_blocks = 4;
  options.max_batch_tokens = 8;
  options.max_context_tokens = 64;
  auto backend = make(config, weights, options);
  ASSERT_TRUE(backend.ok());
  const auto tokens = random_tokens(rng, config, 9);
  const std::vector<std::int32_t> blocks{0};
  const SequenceChunk chunk{tokens, 0, blocks, true};
  const auto logits = (*backend)->forward(std::span(&chunk, 1));
  ASSERT_FALSE(logits.ok());
  EXPECT_THAT(logits.error().message, HasSubstr("(got 9 and"));
  const auto failed = cuda::make_cuda_backend(
      config,
      [](BlockRange) -> Result<ModelWeights> {
        return Error{ErrorCode::kNotFound, "no such weights"};
      },
      std::move(device_), options);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "no such weights");
  config.head_dim = 258;
  const auto large = make(config, weights, options);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().message, "head_dim: must be at most 256 with --backend cuda (got 258)");
  config.experts = 8000;
  config.experts_per_token = 33;
  const auto experts = make(config, weights, options);
  ASSERT_FALSE(experts.ok());
  EXPECT_EQ(experts.error().message, "num_experts: must be at most 4096 with --backend cuda (got 8000)");
  config.experts = 40;
  const auto each = make(config, weights, options);
  ASSERT_FALSE(each.ok());
  EXPECT_EQ(each.error().message, "num_experts_per_tok: must be at most 32 with --backend cuda (got 33)");
}

// Given random models in each precision, with weights of each format; expects the backend to allocate exactly what
// memory_need() predicts.
TEST(CudaMemory, UsesTheMemoryPredicted) {
  for (std::uint64_t seed = 0; seed < 9; ++seed) {
    const auto precision = seed % 2 == 0 ? cuda::Precision::kBf16 : cuda::Precision::kFp32;
    Rng rng(seed, "cuda memory");
    const ModelConfig config = random_config(rng);
    const WeightFormat format = seed % 3 == 0 ? WeightFormat::kFp32 : seed % 3 == 1 ? WeightFormat::kInt8 : WeightFormat::kFp8;
    const ModelWeights weights = random_weights(config, seed, format);
    CudaBackendOptions options;
    options.weights = format;
    options.fp8_activations = format == WeightFormat::kFp8 && precision == cuda::Precision::kBf16;
    options.kv_blocks = 10;
    options.max_batch_tokens = rng.integer(1, 64);
    options.max_context_tokens = 64;
    auto device = cuda::emulation::make_emulated_device({precision});
    const cuda::MemoryNeed need = cuda::memory_need(config, options, {}, precision, device->multiprocessors());
    const cuda::Device& watched = *device;
    const auto before = watched.memory();
    const auto backend = cuda::make_cuda_backend(config, source_of(config, weights), std::move(device), options);
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    const std::int64_t taken = before->free_bytes - watched.memory()->free_bytes;
    const std::int64_t said = need.weights_bytes + need.working_bytes + options.kv_blocks * need.kv_block_bytes;
    EXPECT_LE(taken, said);
    EXPECT_GE(static_cast<double>(taken), 0.9 * static_cast<double>(said));
  }
}

// Given a device that breaks; expects forward() to fail and call `lost`, each time from then on, and copies to do no harm.
TEST(CudaDeviceLost, IsToldOf) {
  Rng rng(1, "cuda lost");
  const ModelConfig config = random_config(rng);
  const ModelWeights weights = random_weights(config, 1);
  std::atomic<bool> broken = false;
  cuda::emulation::DeviceOptions device;
  device.broken = &broken;
  CudaBackendOptions options;
  options.kv_blocks = 4;
  options.max_batch_tokens = 8;
  options.max_context_tokens = 64;
  int told = 0;
  auto backend = cuda::make_cuda_backend(config, source_of(config, weights), cuda::emulation::make_emulated_device(device),
                                         options, [&](const Error&) { ++told; });
  ASSERT_TRUE(backend.ok()) << backend.error().message;
  const auto tokens = random_tokens(rng, config, 8);
  const std::vector<std::int32_t> blocks{0};
  const SequenceChunk chunk{tokens, 0, blocks, true};
  EXPECT_TRUE((*backend)->forward(std::span(&chunk, 1)).ok());
  EXPECT_EQ(told, 0);
  broken = true;
  for (int time = 1; time <= 2; ++time) {
    const auto logits = (*backend)->forward(std::span(&chunk, 1));
    ASSERT_FALSE(logits.ok());
    EXPECT_EQ(logits.error().message, "the emulated device is broken");
    EXPECT_EQ(told, time);
  }
  std::vector<float> values(static_cast<std::size_t>(8 * (*backend)->kv_shape().values), 5);
  (*backend)->read_kv({0, 0, 8}, blocks, values.data());
  EXPECT_EQ(values.front(), 5);
}

class CudaGolden : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};
INSTANTIATE_TEST_SUITE_P(Architectures, CudaGolden,
                         ::testing::Combine(::testing::ValuesIn(testing::kGoldenModels), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + (std::get<1>(info.param) ? "Gpu" : "Emulated");
                         });

// Given transformers' config, tokens and logits of a random model in FP32; expects the backend's logits within 1e-4 of them,
// with the prompt in one piece or in chunks of seven and then one token at a time, and the same greedy token at every step.
TEST_P(CudaGolden, LogitsAreThoseOfTransformers) {
  const auto [name, gpu] = GetParam();
  if (gpu) {
    if (const auto usable = cuda::usable_devices(); !usable.ok()) GTEST_SKIP() << "no GPU: " << usable.error().message;
  }
  const auto make = [gpu = gpu](const ModelConfig& config, const ModelWeights& weights) -> Result<std::unique_ptr<Backend>> {
    CudaBackendOptions options;
    options.kv_blocks = testing::kGoldenKvBlocks;
    options.max_context_tokens = testing::kGoldenContext;
    options.max_batch_tokens = 256;
    std::unique_ptr<cuda::Device> device = cuda::emulation::make_emulated_device({});
    if (gpu) {
      WINDLASS_ASSIGN_OR_RETURN(device, cuda::open_device(cuda::Precision::kFp32));
    }
    return cuda::make_cuda_backend(config, source_of(config, weights), std::move(device), options);
  };
  const std::size_t steps = gpu ? testing::kGoldenSteps : effort<std::size_t>(8, testing::kGoldenSteps);
  EXPECT_NO_FATAL_FAILURE(testing::expect_golden_logits(testing::GoldenModel(name), make, steps));
}

ModelConfig llama_8b() {
  ModelConfig config;
  config.hidden_size = 4096;
  config.layers = 32;
  config.heads = 32;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.intermediate_size = 14336;
  config.vocab_size = 128256;
  return config;
}

// Given the memory of an 80 GB device and the need of Llama 3.1 8B in BF16; expects the cache to take what is left within the
// share, or what was requested if that is less. If not even one context fits, expects an error with the missing GB.
TEST(CudaMemory, CacheTakesWhatIsLeft) {
  const ModelConfig config = llama_8b();
  CudaBackendOptions options;
  options.max_context_tokens = 8192;
  const cuda::MemoryNeed need = cuda::memory_need(config, options, {}, cuda::Precision::kBf16, 132);
  EXPECT_NEAR(static_cast<double>(need.weights_bytes) / 1e9, 16.06, 0.01);
  EXPECT_EQ(need.kv_block_bytes, 2 * 32 * 16 * 1024 * 2);
  const cuda::DeviceMemory memory{79'000'000'000, 80'000'000'000};
  const auto blocks = cuda::affordable_kv_blocks(need, memory, 0.9, 1 << 30, 512);
  ASSERT_TRUE(blocks.ok());
  EXPECT_EQ(*blocks, (72'000'000'000 - need.weights_bytes - need.working_bytes) / need.kv_block_bytes);
  EXPECT_EQ(cuda::affordable_kv_blocks(need, memory, 0.9, 1000, 512).value(), 1000);
  const auto none = cuda::affordable_kv_blocks(need, {15'000'000'000, 16'000'000'000}, 0.9, 1000, 512);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kResourceExhausted);
  const double missing = static_cast<double>(need.weights_bytes + need.working_bytes + 512 * need.kv_block_bytes) / 1e9 - 14.4;
  EXPECT_THAT(none.error().message, HasSubstr(fmt::format("{:.1f} GB are missing: weights take 16.1 GB", missing)));
}

// Given less memory than Llama 3.1 8B with a context of 32,768 tokens needs; expects suggested flags that fit: the longest
// context, the largest cache, smaller weights and the fewest GPUs; or a message that none does.
TEST(CudaMemory, SaysWhatWouldFit) {
  const ModelConfig config = llama_8b();
  CudaBackendOptions options;
  options.max_context_tokens = 32768;
  const auto said = [&](double gb, bool cache_asked, cuda::Precision precision = cuda::Precision::kBf16) {
    return cuda::what_would_fit(config, options, precision, 132, static_cast<std::int64_t>(gb * 1e9), cache_asked);
  };
  const auto bytes = [&](std::int64_t context) {
    CudaBackendOptions shorter = options;
    shorter.max_context_tokens = context;
    const cuda::MemoryNeed need = cuda::memory_need(config, shorter, {}, cuda::Precision::kBf16, 132);
    return static_cast<double>(need.weights_bytes + need.working_bytes + context / 16 * need.kv_block_bytes);
  };
  const std::string at_20 = said(20, false);
  std::smatch found;
  ASSERT_TRUE(
      std::regex_match(at_20, found,
                       std::regex("what would fit: --max-context-tokens (\\d+), or --weights fp8 \\(weights of 9.1 GB\\), "
                                  "or --tensor-parallel 2, on GPUs like this one")))
      << at_20;
  const std::int64_t context = std::stoll(found[1]);
  EXPECT_LE(bytes(context), 20e9);
  EXPECT_GT(bytes(context + 16), 20e9);
  EXPECT_EQ(said(15, false),
            "what would fit: --weights fp8 (weights of 9.1 GB), or --tensor-parallel 2, on GPUs like this one");
  EXPECT_THAT(said(12, false), HasSubstr("what would fit: --weights fp8 --max-context-tokens "));
  EXPECT_EQ(said(8, false), "what would fit: --tensor-parallel 4, on GPUs like this one");
  EXPECT_THAT(said(20, false, cuda::Precision::kFp32), HasSubstr("--precision bf16 --max-context-tokens "));
  EXPECT_EQ(said(2.4, false), "what would fit: --weights fp8 --tensor-parallel 8, on GPUs like this one");
  EXPECT_THAT(said(1, false), HasSubstr("nor --tensor-parallel would fit; some of the model's blocks may (--blocks)"));
  options.kv_blocks = 1 << 20;
  EXPECT_THAT(said(40, true),
              ::testing::ContainsRegex("what would fit: --kv-cache-tokens [0-9]+, or --weights fp8 --kv-cache"));
  EXPECT_THAT(said(20, true), HasSubstr(fmt::format("--max-context-tokens {0} --kv-cache-tokens {0}", context)));
  EXPECT_EQ(cuda::budget_bytes({50, 100}, 0.4), 40);
  EXPECT_EQ(cuda::budget_bytes({30, 100}, 0.4), 30);
}

// Given growing batches and contexts; expects decode attention to be split so that the device has enough work, and not where
// that is not worth it.
TEST(CudaMemory, SplitsFillTheDevice) {
  ModelConfig config;
  config.heads = 32;
  config.kv_heads = 8;
  EXPECT_EQ(cuda::decode_splits(config, 1, 100, 132), 1);
  EXPECT_EQ(cuda::decode_splits(config, 1, 4096, 132), 32);
  EXPECT_EQ(cuda::decode_splits(config, 1, 131072, 132), 64);
  EXPECT_EQ(cuda::decode_splits(config, 16, 131072, 132), 4);
  EXPECT_EQ(cuda::decode_splits(config, 128, 131072, 132), 1);
  std::int64_t last = 0;
  for (std::int64_t rows = 1; rows <= 1024; ++rows) {
    const std::int64_t padded = cuda::padded_decode_rows(rows);
    EXPECT_GE(padded, std::max(rows, last));
    last = padded;
  }
}

}  // namespace
}  // namespace windlass::worker
