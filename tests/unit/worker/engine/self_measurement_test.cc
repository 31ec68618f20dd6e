// The worker's self-measurement: which iterations it runs, how often, within which limits, and that it leaves nothing behind.
#include "worker/engine/self_measurement.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/unit/worker/fake_backend.h"

namespace windlass::worker {
namespace {

using metrics::MeasuredIteration;
using ::testing::ElementsAre;
using testing::HashBackend;
using ::testing::HasSubstr;
using testing::letter;
using testing::ManualClock;

constexpr std::int64_t kVocab = 97;

// A hash backend with iteration times set by the test.
class TimedBackend final : public Backend {
 public:
  // Seconds of the iteration with this index, over these tokens of these sequences.
  using Cost = std::function<double(std::int64_t index, std::int64_t tokens, std::int64_t sequences)>;
  TimedBackend(std::int64_t blocks, std::int64_t max_batch_tokens, ManualClock& clock, Cost cost)
      : inner(kVocab, blocks, max_batch_tokens), clock_(clock), cost_(std::move(cost)) {}

  [[nodiscard]] std::int64_t vocab_size() const override { return inner.vocab_size(); }
  [[nodiscard]] std::int64_t kv_blocks() const override { return inner.kv_blocks(); }
  [[nodiscard]] KvShape kv_shape() const override { return inner.kv_shape(); }
  void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const override {
    inner.read_kv(range, blocks, out);
  }
  void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    inner.write_kv(range, blocks, in);
  }

  HashBackend inner;
  std::vector<std::int64_t> tokens;  // by iteration

 private:
  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                   std::int64_t skip) override {
    std::int64_t sum = 0;
    for (const SequenceChunk& chunk : chunks) sum += static_cast<std::int64_t>(chunk.tokens.size());
    clock_.now += cost_(std::ssize(tokens), sum, std::ssize(chunks));
    tokens.push_back(sum);
    return inner.forward(chunks, layer_done, skip);
  }

  ManualClock& clock_;
  const Cost cost_;
};

std::int64_t times(const TimedBackend& backend, std::int64_t tokens) {
  return std::count(backend.tokens.begin(), backend.tokens.end(), tokens);
}

// Given a fast machine, with some slow iterations at the start and in the middle; expects medians without the first ones, from
// a limited number of iterations, at the contexts that these had.
TEST(SelfMeasurement, RepeatsAndTakesTheMedian) {
  ManualClock clock;
  TimedBackend backend(1000, 256, clock, [](std::int64_t index, std::int64_t tokens, std::int64_t /*sequences*/) {
    const bool slow = index % 8 < 2 || index % 8 == 5;
    return (slow ? 16 : 1) * static_cast<double>(tokens) / 65536;
  });
  const auto measured = measure_iterations({}, backend, clock, {1000, true});
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_THAT(*measured, ElementsAre(MeasuredIteration{32, 0, 0, 32.0 / 65536}, MeasuredIteration{0, 1, 274, 1.0 / 65536},
                                     MeasuredIteration{0, 8, 274, 8.0 / 65536}, MeasuredIteration{256, 0, 0, 256.0 / 65536}));
  EXPECT_EQ(times(backend, 32), 8);
  EXPECT_EQ(times(backend, 256), 8);
  EXPECT_EQ(times(backend, 1), 32);
  EXPECT_EQ(times(backend, 8), 32);
}

// Given a machine on which one iteration exceeds the whole budget; expects one iteration of each kind, the second prompt only
// twice as long as the first, and their own times.
TEST(SelfMeasurement, ASlowMachineDoesEachOnce) {
  ManualClock clock;
  TimedBackend backend(1000, 256, clock, [](std::int64_t /*index*/, std::int64_t tokens, std::int64_t /*sequences*/) {
    return 4 + static_cast<double>(tokens);
  });
  const auto measured = measure_iterations({}, backend, clock, {2, true});
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_THAT(*measured, ElementsAre(MeasuredIteration{32, 0, 0, 36}, MeasuredIteration{0, 1, 257, 5},
                                     MeasuredIteration{0, 8, 257, 12}, MeasuredIteration{64, 0, 0, 68}));
  EXPECT_THAT(backend.tokens, ElementsAre(32, 1, 8, 64));
}

// Given a budget for sixteen iterations of equal length; expects four of each kind, within the budget.
TEST(SelfMeasurement, SharesTheBudget) {
  ManualClock clock;
  TimedBackend backend(1000, 256, clock,
                       [](std::int64_t /*index*/, std::int64_t /*tokens*/, std::int64_t /*sequences*/) { return 0.125; });
  const auto measured = measure_iterations({}, backend, clock, {2, true});
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_EQ(measured->size(), 4U);
  for (const std::int64_t tokens : {32, 256, 1, 8}) EXPECT_EQ(times(backend, tokens), 4) << tokens;
  EXPECT_EQ(clock.now, 2);
}

// Given a prefill worker; expects only prompts.
TEST(SelfMeasurement, MayLeaveOutDecode) {
  ManualClock clock;
  TimedBackend backend(1000, 256, clock,
                       [](std::int64_t /*index*/, std::int64_t tokens, std::int64_t /*sequences*/) { return 1e-3 * tokens; });
  const auto measured = measure_iterations({}, backend, clock, {2, false});
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  ASSERT_EQ(measured->size(), 2U);
  for (const MeasuredIteration& each : *measured) EXPECT_EQ(each.batch, 0);
}

// Given random small and large contexts, caches, batches and step sizes; expects figures within all limits, each once, and no
// preemption, which would be an iteration of fewer tokens and an error.
TEST(SelfMeasurement, KeepsToEveryLimit) {
  std::int64_t two_batches = 0;
  for (std::uint64_t seed = 0; seed < effort(300U, 3000U); ++seed) {
    Rng rng(seed, "limits");
    EngineOptions options;
    options.max_running = rng.integer(1, 12);
    options.max_context_tokens = rng.uniform() < 0.3 ? rng.integer(2, 8) : rng.integer(2, 600);
    options.max_batch_tokens = options.max_running + (rng.uniform() < 0.5 ? rng.integer(0, 10) : rng.integer(0, 400));
    const std::int64_t blocks = blocks_for(options.max_context_tokens) + rng.integer(0, 40);
    ManualClock clock;
    TimedBackend backend(blocks, options.max_batch_tokens, clock,
                         [](std::int64_t /*index*/, std::int64_t /*tokens*/, std::int64_t /*sequences*/) { return 0.25; });
    const auto measured = measure_iterations(options, backend, clock, {rng.uniform() * 40, true});
    ASSERT_TRUE(measured.ok()) << "seed " << seed << ": " << measured.error().message;
    std::set<std::pair<int, int>> kinds;
    for (const MeasuredIteration& each : *measured) {
      EXPECT_EQ(each.seconds, 0.25);
      EXPECT_LT(each.prompt_tokens, options.max_context_tokens);
      EXPECT_LE(each.prompt_tokens, std::min<std::int64_t>(256, options.max_batch_tokens));
      EXPECT_LE(each.batch, std::min<std::int64_t>({8, options.max_running, blocks}));
      EXPECT_LT(each.context_tokens, options.max_context_tokens);
      EXPECT_LE(each.batch * blocks_for(each.context_tokens), blocks);
      EXPECT_TRUE(kinds.emplace(each.prompt_tokens, each.batch).second) << "seed " << seed;
      two_batches += each.batch > 1 ? 1 : 0;
    }
    EXPECT_EQ(kinds.contains({0, 1}), options.max_context_tokens > 2) << "seed " << seed;
    EXPECT_NE(kinds.rbegin()->first, 0) << "seed " << seed << ": no prefill";
  }
  EXPECT_GT(two_batches, effort(200, 2000));
}

// Given a backend that fails in any of its iterations; expects its error, and no figures.
TEST(SelfMeasurement, AFailureIsAnError) {
  for (const std::int64_t at : {1, 9, 17, 49, 80}) {
    ManualClock clock;
    TimedBackend backend(1000, 256, clock,
                         [](std::int64_t /*index*/, std::int64_t /*tokens*/, std::int64_t /*sequences*/) { return 1e-6; });
    backend.inner.fail_at_step = at;
    const auto measured = measure_iterations({}, backend, clock, {2, true});
    ASSERT_FALSE(measured.ok()) << at;
    EXPECT_THAT(measured.error().message, HasSubstr("the backend broke"));
  }
}

// Given a backend that has been measured; expects an engine on it to answer as on a new one, without finding any measured
// prompt.
TEST(SelfMeasurement, LeavesNothingBehind) {
  ManualClock clock;
  TimedBackend backend(200, 256, clock,
                       [](std::int64_t /*index*/, std::int64_t /*tokens*/, std::int64_t /*sequences*/) { return 1e-6; });
  ASSERT_TRUE(measure_iterations({}, backend, clock, {2, true}).ok());
  Engine engine({}, backend, letter, clock);
  EXPECT_EQ(engine.load().kv_blocks_used, 0);
  std::vector<std::int32_t> prompt;  // the measured one
  for (std::int64_t i = 0; i < 256; ++i) prompt.push_back(static_cast<std::int32_t>((1 + 7919 * i) % kVocab));
  ASSERT_TRUE(engine.submit(1, testing::greedy(prompt, 20), 0).ok());
  std::string text;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) text += event.text;
  }
  EXPECT_EQ(text, testing::expected_text(backend.inner, prompt, 20));
  EXPECT_EQ(engine.prefix_counts().found, 0);
}

// Given figures; expects their text for people.
TEST(SelfMeasurement, IsWrittenForPeople) {
  EXPECT_EQ(to_text({256, 0, 0, 0.08123}), "prefill of 256 tokens 81.2 ms");
  EXPECT_EQ(to_text({0, 8, 271, 0.0204}), "decode at batch 8 and context 271 20.4 ms");
}

}  // namespace
}  // namespace windlass::worker
