// The engine of the serving simulator: in small cases by hand, and against a plain engine that looks at every sequence every
// time.
#include "planner/sim/engine.h"

#include <algorithm>
#include <deque>

#include <gtest/gtest.h>

#include "planner/base/rng.h"

namespace windlass::sim {
namespace {

// The same rules, spelled out sequence by sequence.
class PlainEngine {
 public:
  explicit PlainEngine(const EngineOptions& options) : options_(options), free_(options.kv_blocks) {}

  void enqueue(int request, int prompt, int output) { waiting_.push_back({request, prompt, output, 0, 0, 0, 0, 0}); }

  std::optional<planner::Batch> begin() {
    planner::Batch batch;
    const bool alone = options_.batching == Batching::kVllm || options_.batching == Batching::kStatic;
    if (options_.batching != Batching::kSarathi && !(options_.batching == Batching::kStatic && !decoding_.empty())) {
      admit(options_.max_batch_tokens, false, batch);
    }
    if (!decoding_.empty() && !(alone && batch.prefill_sequences > 0)) {
      while (!reserves() && pages_needed() > free_) preempt();
      if (!reserves()) free_ -= pages_needed();
      for (const Item& item : decoding_) batch.add_decode(item.cached);
    }
    if (options_.batching == Batching::kSarathi) admit(options_.max_batch_tokens - batch.decode_sequences, true, batch);
    batch_ = batch;
    return batch.empty() ? std::nullopt : std::optional(batch);
  }

  Engine::Outcome end() {
    Engine::Outcome outcome;
    if (batch_.decode_sequences > 0) {
      outcome.decoded = static_cast<int>(decoding_.size());
      std::deque<Item> left;
      std::vector<std::pair<int, int>> done;
      for (Item& item : decoding_) {
        ++item.cached;
        ++item.made;
        if (item.made < item.output) {
          left.push_back(item);
          continue;
        }
        free_ += reserves() ? item.blocks : blocks_of(item.cached);
        outcome.finished.push_back(item.request);
      }
      decoding_ = left;
    }
    if (batch_.prefill_sequences > 0) {
      std::deque<Item> left;
      for (Item& item : prefilling_) {
        item.prefilled += item.chunk;
        item.chunk = 0;
        if (item.prefilled < item.prompt) {
          left.push_back(item);
          continue;
        }
        if (item.made == 0) outcome.first_tokens.push_back(item.request);
        ++item.made;
        item.cached = item.prompt;
        if (item.made >= item.output) {
          outcome.finished.push_back(item.request);
          free_ += item.blocks;
        } else {
          decoding_.push_back(item);
        }
      }
      prefilling_ = left;
    }
    return outcome;
  }

  [[nodiscard]] std::int64_t free_blocks() const { return free_; }

 private:
  struct Item {
    int request, prompt, output, made, prefilled, chunk, cached;
    std::int64_t blocks;
  };

  [[nodiscard]] bool reserves() const { return options_.batching == Batching::kStatic || options_.batching == Batching::kOrca; }
  [[nodiscard]] std::int64_t blocks_of(int tokens) const {
    return (tokens + options_.block_tokens - 1) / options_.block_tokens;
  }
  [[nodiscard]] std::int64_t pages_needed() const {
    return std::count_if(decoding_.begin(), decoding_.end(),
                         [&](const Item& i) { return i.cached % options_.block_tokens == 0; });
  }
  void preempt() {
    Item item = decoding_.back();
    decoding_.pop_back();
    free_ += blocks_of(item.cached);
    item.prompt = item.cached + 1;
    item.prefilled = 0;
    waiting_.push_front(item);
  }
  void admit(int budget, bool chunked, planner::Batch& batch) {
    const auto take = [&](Item& item, int tokens) {
      item.chunk = tokens;
      batch.add_prefill(tokens, item.prefilled);
      budget -= tokens;
    };
    for (Item& item : prefilling_) {
      if (budget <= 0) return;
      take(item, std::min(budget, item.prompt - item.prefilled));
    }
    bool first = true;
    while (!waiting_.empty() && static_cast<int>(decoding_.size() + prefilling_.size()) < options_.max_sequences) {
      Item item = waiting_.front();
      if (chunked ? budget <= 0 : item.prompt > budget && !first) return;
      item.blocks = blocks_of(reserves() ? item.prompt + item.output - item.made : item.prompt);
      const bool others = !decoding_.empty() || !prefilling_.empty();
      const auto reserve =
          others ? static_cast<std::int64_t>(options_.admission_reserve * static_cast<double>(options_.kv_blocks)) : 0;
      if (item.blocks + reserve > free_) return;
      free_ -= item.blocks;
      waiting_.pop_front();
      prefilling_.push_back(item);
      take(prefilling_.back(), chunked ? std::min(budget, item.prompt) : item.prompt);
      first = false;
    }
  }

  EngineOptions options_;
  std::deque<Item> waiting_, prefilling_, decoding_;
  std::int64_t free_;
  planner::Batch batch_;
};

// Given: 3,000 random engines of every batching, short of pages, sequences and tokens in turn, under random arrivals. Expected:
// iteration by iteration the same batch, the same first tokens, the same ends and the same free pages as the plain engine;
// everything ends; nothing leaks.
TEST(Engine, IsThePlainEngine) {
  constexpr Batching kAll[] = {Batching::kStatic, Batching::kOrca, Batching::kVllm, Batching::kMixed, Batching::kSarathi};
  Rng rng(1, "engine");
  std::int64_t preemptions = 0;
  for (int round = 0; round < 3000; ++round) {
    EngineOptions options;
    options.batching = kAll[round % 5];
    options.max_sequences = static_cast<int>(rng.integer(1, 8));
    options.max_batch_tokens = static_cast<int>(rng.integer(1, 60));
    options.block_tokens = static_cast<int>(rng.integer(1, 5));
    options.kv_blocks = rng.integer(10, 60);
    options.admission_reserve = rng.uniform() < 0.5 ? 0 : 0.1;
    Engine engine(options);
    PlainEngine plain(options);
    int arrived = 0, finished = 0, first_tokens = 0;
    const int requests = static_cast<int>(rng.integer(1, 25));
    for (int iteration = 0; iteration < 20'000 && finished < requests; ++iteration) {
      while (arrived < requests && rng.uniform() < 0.4) {
        const int prompt = static_cast<int>(rng.integer(1, 20)), output = static_cast<int>(rng.integer(1, 15));
        if (!engine.can_hold(prompt, output)) continue;
        engine.enqueue({arrived, prompt, output});
        plain.enqueue(arrived, prompt, output);
        ++arrived;
      }
      const auto batch = engine.begin(), expected = plain.begin();
      ASSERT_EQ(batch.has_value(), expected.has_value()) << "round " << round << ", iteration " << iteration;
      if (!batch) continue;
      ASSERT_EQ(*batch, *expected) << "round " << round << ", iteration " << iteration;
      auto outcome = engine.end();
      auto wanted = plain.end();
      std::sort(outcome.finished.begin(), outcome.finished.end());
      std::sort(wanted.finished.begin(), wanted.finished.end());
      ASSERT_EQ(outcome.finished, wanted.finished) << "round " << round << ", iteration " << iteration;
      ASSERT_EQ(outcome.first_tokens, wanted.first_tokens);
      ASSERT_EQ(outcome.decoded, wanted.decoded);
      ASSERT_EQ(engine.free_blocks(), plain.free_blocks()) << "round " << round << ", iteration " << iteration;
      ASSERT_GE(engine.free_blocks(), 0);
      finished += static_cast<int>(outcome.finished.size());
      first_tokens += static_cast<int>(outcome.first_tokens.size());
    }
    ASSERT_EQ(finished, requests) << "round " << round << ": it stands still";
    ASSERT_EQ(first_tokens, requests);
    ASSERT_EQ(engine.free_blocks(), options.kv_blocks);
    ASSERT_EQ(engine.held(), 0);
    ASSERT_EQ(engine.pending_tokens(), 0);
    preemptions += engine.preemptions();
  }
  EXPECT_GT(preemptions, 1000);
}

// Given: two prompts and room for both. Expected: vLLM prefills them together, then decodes; the second token comes from the
// decode.
TEST(Engine, PrefillsFirst) {
  EngineOptions options;
  options.kv_blocks = 100;
  Engine engine(options);
  engine.enqueue({7, 100, 2});
  engine.enqueue({8, 50, 1});
  EXPECT_EQ(engine.begin(), planner::prefill_batch(1, 100).prefill_sequences == 1
                                ? std::optional(planner::Batch{2, 150, 100.0 * 100 + 50 * 50, 0, 0})
                                : std::nullopt);
  EXPECT_EQ(engine.started().size(), 2U);
  const auto first = engine.end();
  EXPECT_EQ(first.first_tokens, (std::vector<int>{7, 8}));
  EXPECT_EQ(first.finished, std::vector<int>{8});
  EXPECT_EQ(engine.begin(), (planner::Batch{0, 0, 0, 1, 100}));
  EXPECT_EQ(engine.end().finished, std::vector<int>{7});
  EXPECT_EQ(engine.begin(), std::nullopt);
}

// Given: Sarathi's budget of 10 tokens, a decode under way and a prompt of 25. Expected: chunks of 9, 9 and 7 beside the
// decode, each with the attention of what stands before it.
TEST(Engine, ChunksFillTheBudget) {
  EngineOptions options;
  options.batching = Batching::kSarathi;
  options.max_batch_tokens = 10;
  options.kv_blocks = 100;
  Engine engine(options);
  engine.enqueue({1, 10, 20});
  ASSERT_TRUE(engine.begin());
  EXPECT_EQ(engine.end().first_tokens, std::vector<int>{1});
  engine.enqueue({2, 25, 5});
  int before = 0;
  for (const int chunk : {9, 9, 7}) {
    const auto batch = engine.begin();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->prefill_tokens, chunk);
    EXPECT_EQ(batch->prefill_attention, chunk * (chunk + 2.0 * before));
    EXPECT_EQ(batch->decode_sequences, 1);
    before += chunk;
    EXPECT_EQ(engine.end().first_tokens.empty(), chunk != 7);
  }
}

// Given: a prompt that is to be handed over. Expected: its first token here, its pages kept until release(); the decode worker
// takes pages with reserve() and makes the other tokens after join().
TEST(Engine, HandsOver) {
  EngineOptions options;
  options.kv_blocks = 10;
  options.admission_reserve = 0;
  Engine prefill(options), decode(options);
  prefill.enqueue({.request = 3, .prompt_tokens = 33, .output_tokens = 4, .hand_over = true});
  ASSERT_TRUE(prefill.begin());
  const auto outcome = prefill.end();
  ASSERT_EQ(outcome.prefilled.size(), 1U);
  EXPECT_EQ(outcome.first_tokens, std::vector<int>{3});
  EXPECT_EQ(prefill.free_blocks(), 7);
  ASSERT_TRUE(decode.has_room({3, 33, 4}));
  EXPECT_FALSE(decode.has_room({3, 16 * 10, 2}));
  const auto sequence = decode.reserve({3, 33, 4});
  EXPECT_EQ(decode.begin(), std::nullopt);  // not there yet
  decode.join(sequence);
  prefill.release(outcome.prefilled[0]);
  EXPECT_EQ(prefill.free_blocks(), 10);
  int tokens = 1;
  while (decode.begin()) {
    ++tokens;
    decode.end();
  }
  EXPECT_EQ(tokens, 4);
  EXPECT_EQ(decode.free_blocks(), 10);
}

// Given: a worker that fails with sequences waiting, prefilling and decoding. Expected: all of them come back in the order of
// arrival, and the engine is as new.
TEST(Engine, Abandons) {
  EngineOptions options;
  options.kv_blocks = 50;
  options.max_sequences = 2;
  Engine engine(options);
  for (const int request : {4, 5, 6}) engine.enqueue({request, 20, 9});
  ASSERT_TRUE(engine.begin());
  engine.end();
  ASSERT_TRUE(engine.begin());
  EXPECT_EQ(engine.abandon(), (std::vector<int>{4, 5, 6}));
  EXPECT_EQ(engine.held(), 0);
  EXPECT_EQ(engine.begin(), std::nullopt);
}

}  // namespace
}  // namespace windlass::sim
