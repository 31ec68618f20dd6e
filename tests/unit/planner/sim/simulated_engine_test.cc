// Tests the simulated engine: batching, hand-over and preemption in small cases computed by hand.
#include "planner/sim/simulated_engine.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace windlass::sim {
namespace {

// Given two prompts and room for both; expects vLLM to prefill them together, then to decode; the second token comes from the
// decode.
TEST(SimulatedEngine, PrefillsFirst) {
  planner::EngineSettings options;
  options.kv_blocks = 100;
  SimulatedEngine engine(options);
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

// Given Sarathi's budget of 10 tokens, a running decode and a prompt of 25; expects chunks of 9, 9 and 7 next to the decode,
// each attending to the tokens before it.
TEST(SimulatedEngine, ChunksFillTheBudget) {
  planner::EngineSettings options;
  options.batching = planner::Batching::kSarathi;
  options.max_batch_tokens = 10;
  options.kv_blocks = 100;
  SimulatedEngine engine(options);
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

// Given a static batch with outputs of 2, 5 and 1 tokens whose prompts of 4, 6 and 2 need two iterations of at most 8, and a
// prompt that arrives during it; expects all three to stay in every decode, padded, with their reserved pages, and to be
// returned together with the fifth token. The new prompt waits for the next batch; a failing worker returns all of them.
TEST(SimulatedEngine, AStaticBatchEndsTogether) {
  planner::EngineSettings options;
  options.batching = planner::Batching::kStatic;
  options.max_batch_tokens = 8;
  options.block_tokens = 4;
  options.kv_blocks = 100;
  options.admission_reserve = 0;
  SimulatedEngine engine(options);
  engine.enqueue({1, 4, 2});
  engine.enqueue({2, 6, 5});
  engine.enqueue({3, 2, 1});
  EXPECT_EQ(engine.begin(), (planner::Batch{1, 4, 16, 0, 0}));
  engine.enqueue({4, 2, 3});
  EXPECT_EQ(engine.end().first_tokens, std::vector<int>{1});
  EXPECT_EQ(engine.begin(), (planner::Batch{2, 8, 36 + 4, 0, 0}));
  const auto prompts = engine.end();
  EXPECT_EQ(prompts.first_tokens, (std::vector<int>{2, 3}));
  EXPECT_TRUE(prompts.finished.empty());
  for (int iteration = 0; iteration < 4; ++iteration) {
    EXPECT_EQ(engine.free_blocks(), 100 - 2 - 3 - 1);
    EXPECT_EQ(engine.running(), 3);
    EXPECT_EQ(engine.held(), 4);
    EXPECT_EQ(engine.pending_tokens(), 2 + 3);
    ASSERT_EQ(engine.begin(), (planner::Batch{0, 0, 0, 3, 12.0 + 3 * iteration}));
    SimulatedEngine fails = engine;
    EXPECT_EQ(fails.abandon(), (std::vector<int>{1, 2, 3, 4}));
    EXPECT_EQ(fails.begin(), std::nullopt);
    const auto outcome = engine.end();
    EXPECT_EQ(outcome.decoded, iteration == 0 ? 2 : 1);
    EXPECT_EQ(outcome.finished, iteration == 3 ? (std::vector<int>{1, 2, 3}) : std::vector<int>{});
  }
  EXPECT_EQ(engine.free_blocks(), 100);
  EXPECT_EQ(engine.held(), 1);
  EXPECT_EQ(engine.begin(), (planner::Batch{1, 2, 4, 0, 0}));
}

// Given static batching and four pages of 4 tokens: a request with a single output token, next to which the next cache does not
// fit, and a small one after that; expects the first to be a batch of its own, done at its prefill, and the other two to form
// the next one.
TEST(SimulatedEngine, MemoryEndsTheFormingOfAStaticBatch) {
  planner::EngineSettings options;
  options.batching = planner::Batching::kStatic;
  options.max_batch_tokens = 4;
  options.block_tokens = 4;
  options.kv_blocks = 4;
  options.admission_reserve = 0;
  SimulatedEngine engine(options);
  engine.enqueue({1, 4, 1});
  engine.enqueue({2, 8, 4});
  engine.enqueue({3, 2, 1});
  EXPECT_EQ(engine.begin(), (planner::Batch{1, 4, 16, 0, 0}));
  EXPECT_EQ(engine.end().finished, std::vector<int>{1});
  EXPECT_EQ(engine.begin(), (planner::Batch{1, 8, 64, 0, 0}));
  EXPECT_EQ(engine.end().first_tokens, std::vector<int>{2});
  EXPECT_EQ(engine.begin(), (planner::Batch{1, 2, 4, 0, 0}));
  EXPECT_TRUE(engine.end().finished.empty());
  for (const double context : {10, 12, 14}) {
    EXPECT_EQ(engine.begin(), (planner::Batch{0, 0, 0, 2, context}));
    EXPECT_EQ(engine.end().finished, context == 14 ? (std::vector<int>{2, 3}) : std::vector<int>{});
  }
  EXPECT_EQ(engine.free_blocks(), 4);
}

// Given a prompt to be handed over; expects its first token here and its pages kept until release(); the decode worker takes
// pages with reserve() and makes the other tokens after join().
TEST(SimulatedEngine, HandsOver) {
  planner::EngineSettings options;
  options.kv_blocks = 10;
  options.admission_reserve = 0;
  SimulatedEngine prefill(options), decode(options);
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

// Given a cache that joins during an iteration and whose next token starts a page; expects that iteration to continue without
// it, and its token in the next one, in a page of its own.
TEST(SimulatedEngine, JoinsFromTheNextIteration) {
  planner::EngineSettings options;
  options.kv_blocks = 4;
  options.block_tokens = 4;
  SimulatedEngine engine(options);
  engine.join(engine.reserve({1, 3, 4}));
  ASSERT_EQ(engine.begin(), (planner::Batch{0, 0, 0, 1, 3}));
  engine.join(engine.reserve({2, 4, 3}));
  EXPECT_EQ(engine.end().decoded, 1);
  EXPECT_EQ(engine.free_blocks(), 2);
  ASSERT_EQ(engine.begin(), (planner::Batch{0, 0, 0, 2, 8}));
  EXPECT_EQ(engine.free_blocks(), 0);
  EXPECT_TRUE(engine.end().finished.empty());
  ASSERT_EQ(engine.begin(), (planner::Batch{0, 0, 0, 2, 10}));
  EXPECT_EQ(engine.end().finished, (std::vector<int>{1, 2}));
  EXPECT_EQ(engine.free_blocks(), 4);
}

// Given a decode that needs a page while a half-computed prompt holds the last ones; expects vLLM V1 to take the prompt's pages
// and to admit nothing in that iteration, and Sarathi-Serve to preempt the decode and to continue the prompt.
TEST(SimulatedEngine, VllmV1PreemptsThePromptUnderWay) {
  for (const planner::Batching batching : {planner::Batching::kVllmV1, planner::Batching::kSarathi}) {
    planner::EngineSettings options = planner::with_defaults_of(batching);
    options.admission_reserve = 0;
    options.max_batch_tokens = 2;
    options.block_tokens = 4;
    options.kv_blocks = 4;
    SimulatedEngine engine(options);
    engine.enqueue({1, 4, 8});
    engine.enqueue({2, 8, 2});
    for (int iteration = 0; iteration < 6; ++iteration) {  // two chunks of the first; four of its tokens next to the second
      ASSERT_TRUE(engine.begin());
      engine.end();
    }
    EXPECT_EQ(engine.free_blocks(), 0);
    const auto batch = engine.begin();
    EXPECT_EQ(engine.preemptions(), 1);
    if (batching == planner::Batching::kVllmV1) {
      EXPECT_EQ(batch, (planner::Batch{0, 0, 0, 1, 8}));
      EXPECT_EQ(engine.pending_tokens(), 8 + 1);
    } else {
      EXPECT_EQ(batch, (planner::Batch{1, 2, 2 * (2 + 2 * 4), 0, 0}));
      EXPECT_EQ(engine.pending_tokens(), 4 + 9);
    }
  }
}

// Given two sequences that grow until the four pages are used up, two pages of host memory, and a prompt that arrives then;
// expects the later sequence's eight tokens to move out, and back once its two pages and one more are free, with the prompt
// waiting. With one host page, expects the sequence to be recomputed instead, before the prompt.
TEST(SimulatedEngine, SwapsTheSequenceThatBeganLast) {
  for (const std::int64_t host_blocks : {2, 1}) {
    planner::EngineSettings options;
    options.admission_reserve = 0;
    options.block_tokens = 4;
    options.kv_blocks = 4;
    options.preemption = planner::Preemption::kSwap;
    options.host_blocks = host_blocks;
    SimulatedEngine engine(options);
    engine.enqueue({1, 4, 10});
    engine.enqueue({2, 4, 10});
    for (int iteration = 0; iteration < 5; ++iteration) {  // the prompts, and four tokens
      ASSERT_TRUE(engine.begin());
      EXPECT_EQ(engine.swapped_tokens(), 0);
      engine.end();
    }
    EXPECT_EQ(engine.free_blocks(), 0);
    EXPECT_EQ(engine.begin(), (planner::Batch{0, 0, 0, 1, 8}));
    engine.enqueue({3, 3, 2});
    const bool fits = host_blocks == 2;
    EXPECT_EQ(engine.swapped(), fits ? 1 : 0);
    EXPECT_EQ(engine.swapped_tokens(), fits ? 8 : 0);
    EXPECT_EQ(engine.host_free_blocks(), fits ? 0 : 1);
    EXPECT_EQ(engine.waiting(), fits ? 1 : 2);
    EXPECT_FALSE(engine.has_room({4, 1, 2}) && fits);
    while (engine.end().finished.empty()) ASSERT_EQ(engine.begin()->decode_sequences, 1);
    if (fits) {
      EXPECT_EQ(engine.begin(), (planner::Batch{0, 0, 0, 1, 8}));
      EXPECT_EQ(engine.swapped_tokens(), 8);
      EXPECT_EQ(engine.host_free_blocks(), 2);
      EXPECT_EQ(engine.free_blocks(), 1);
      EXPECT_TRUE(engine.started().empty());
      engine.end();
      EXPECT_EQ(engine.begin(), (planner::Batch{1, 3, 9, 0, 0}));
      EXPECT_EQ(engine.started()[0], 3);
    } else {
      EXPECT_EQ(engine.begin(), (planner::Batch{2, 9 + 3, 81 + 9, 0, 0}));
      ASSERT_EQ(engine.started().size(), 1U);  // the other had started before
      EXPECT_EQ(engine.started()[0], 3);
    }
  }
}

// Given a failing worker with waiting, prefilling and decoding sequences, one of them preempted; expects all of them back in
// order of arrival, and the engine as new except for its counters.
TEST(SimulatedEngine, Abandons) {
  planner::EngineSettings options;
  options.kv_blocks = 4;
  options.block_tokens = 4;
  options.max_sequences = 3;
  options.max_batch_tokens = 4;
  SimulatedEngine engine(options);
  for (const int request : {4, 5, 6, 7}) engine.enqueue({request, 4, 9});
  for (int iteration = 0; iteration < 4; ++iteration) {  // three prompts, then decodes for which one page is left
    ASSERT_TRUE(engine.begin());
    if (iteration < 3) engine.end();
  }
  EXPECT_EQ(engine.preemptions(), 1);
  EXPECT_EQ(engine.abandon(), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(engine.held(), 0);
  EXPECT_EQ(engine.free_blocks(), 4);
  EXPECT_EQ(engine.preemptions(), 1);
  EXPECT_EQ(engine.begin(), std::nullopt);
}

// Given an engine that schedules ahead, a prompt that comes during an iteration and one that comes as an iteration ends;
// expects each in the iteration after the next, and one that comes when nothing is left to run in the next. Without scheduling
// ahead, expects all in the next one.
TEST(SimulatedEngine, SchedulingAheadMakesPromptsWait) {
  for (const bool ahead : {false, true}) {
    SCOPED_TRACE(ahead);
    planner::EngineSettings options;
    options.batching = planner::Batching::kSarathi;
    options.kv_blocks = 100;
    options.schedules_ahead = ahead;
    SimulatedEngine engine(options);
    const auto prompts_of_next = [&] {
      const auto batch = engine.begin();
      return batch ? batch->prefill_sequences : -1;
    };
    engine.enqueue({.request = 0, .prompt_tokens = 4, .output_tokens = 6});
    ASSERT_EQ(prompts_of_next(), 1);
    engine.enqueue({.request = 1, .prompt_tokens = 5, .output_tokens = 2});
    EXPECT_EQ(engine.waiting(), 1);
    engine.end();
    EXPECT_EQ(prompts_of_next(), ahead ? 0 : 1);
    engine.end();
    EXPECT_EQ(prompts_of_next(), ahead ? 1 : 0);
    engine.end();
    engine.enqueue({.request = 2, .prompt_tokens = 6, .output_tokens = 1});
    EXPECT_EQ(prompts_of_next(), ahead ? 0 : 1);
    engine.end();
    EXPECT_EQ(prompts_of_next(), ahead ? 1 : 0);
    engine.end();
    while (engine.held() > 0) {
      ASSERT_EQ(prompts_of_next(), 0);
      engine.end();
    }
    engine.enqueue({.request = 3, .prompt_tokens = 7, .output_tokens = 1});
    EXPECT_EQ(prompts_of_next(), 1);
  }
}

// Given every batching; expects distinct names; vllm-v1's defaults cache prefixes, schedule ahead and keep no watermark, the
// others' defaults are those of EngineSettings.
TEST(SimulatedEngine, KnowsItsDefaults) {
  std::set<std::string> names;
  for (const planner::Batching batching : planner::kAllBatchings) {
    names.insert(to_string(batching));
    const planner::EngineSettings options = planner::with_defaults_of(batching);
    EXPECT_EQ(options.batching, batching);
    EXPECT_EQ(options.prefix_caching, batching == planner::Batching::kVllmV1);
    EXPECT_EQ(options.schedules_ahead, batching == planner::Batching::kVllmV1);
    EXPECT_EQ(options.admission_reserve,
              batching == planner::Batching::kVllmV1 ? 0 : planner::EngineSettings{}.admission_reserve);
  }
  EXPECT_EQ(names, (std::set<std::string>{"static", "orca", "vllm", "mixed", "sarathi", "vllm-v1"}));
}

}  // namespace
}  // namespace windlass::sim
