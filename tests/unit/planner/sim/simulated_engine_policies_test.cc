// Tests the engine's policies in small cases computed by hand: cached prefixes, orders of prompts, admission that looks ahead.
#include <gtest/gtest.h>

#include "planner/sim/simulated_engine.h"

namespace windlass::sim {
namespace {

planner::EngineSettings caching(std::int64_t kv_blocks) {
  planner::EngineSettings options;
  options.prefix_caching = true;
  options.admission_reserve = 0;
  options.block_tokens = 4;
  options.kv_blocks = kv_blocks;
  return options;
}

// Runs until nothing is left; returns the number of prompt tokens computed.
double drain(SimulatedEngine& engine) {
  double tokens = 0;
  while (const auto batch = engine.begin()) {
    tokens += batch->prefill_tokens;
    engine.end();
  }
  return tokens;
}

// Given a prompt of 10 tokens whose first 9 are a prefix, in pages of 4, then a second one next to it; expects the second to
// skip two full pages: it computes 2 tokens that attend to 8 before them, and takes one more page instead of three.
TEST(EnginePrefixes, ShareFullPages) {
  SimulatedEngine engine(caching(20));
  const SequenceSpec spec{.request = 1, .prompt_tokens = 10, .output_tokens = 3, .prefix = 7, .prefix_tokens = 9};
  engine.enqueue(spec);
  EXPECT_EQ(engine.begin(), (planner::Batch{1, 10, 100, 0, 0}));
  engine.end();
  EXPECT_EQ(engine.free_blocks(), 17);
  engine.enqueue(spec);
  EXPECT_EQ(engine.pending_tokens(), 10 + 1);
  EXPECT_EQ(engine.begin(), (planner::Batch{1, 2, 2 * (2 + 2 * 8), 0, 0}));
  EXPECT_EQ(engine.pending_tokens(), 2 + 1);
  EXPECT_EQ(engine.free_blocks(), 16);
  EXPECT_EQ(engine.prefix_hit_tokens(), 8);
  engine.end();
  EXPECT_EQ(engine.begin(), (planner::Batch{0, 0, 0, 2, 20}));
  engine.end();
  EXPECT_EQ(drain(engine), 0);
  EXPECT_EQ(engine.free_blocks(), 20);
}

// Given two prompts of one prefix in one iteration, and a third that consists of the prefix; expects nothing to be cached
// before the iteration's end, so both are computed; the third computes its last page, since at least one token must be.
TEST(EnginePrefixes, AreCachedOnceComputed) {
  SimulatedEngine engine(caching(20));
  const SequenceSpec spec{.request = 1, .prompt_tokens = 8, .output_tokens = 1, .prefix = 7, .prefix_tokens = 8};
  engine.enqueue(spec);
  engine.enqueue(spec);
  EXPECT_EQ(drain(engine), 16);
  engine.enqueue(spec);
  EXPECT_EQ(drain(engine), 4);
  EXPECT_EQ(engine.prefix_hit_tokens(), 4);
}

// Given a prefix of one page, then the same one two pages longer, chunk by chunk; expects the longer one to continue where the
// shorter one ends, and its completed chunks to be available to a third during that.
TEST(EnginePrefixes, GrowChunkByChunk) {
  planner::EngineSettings options = caching(20);
  options.batching = planner::Batching::kVllmV1;
  options.max_batch_tokens = 5;
  SimulatedEngine engine(options);
  engine.enqueue({.request = 1, .prompt_tokens = 5, .output_tokens = 1, .prefix = 7, .prefix_tokens = 4});
  EXPECT_EQ(drain(engine), 5);
  engine.enqueue({.request = 2, .prompt_tokens = 14, .output_tokens = 1, .prefix = 7, .prefix_tokens = 12});
  EXPECT_EQ(engine.begin(), (planner::Batch{1, 5, 5 * (5 + 2 * 4), 0, 0}));  // tokens 4 to 8: the second page is full
  engine.end();
  engine.enqueue({.request = 3, .prompt_tokens = 14, .output_tokens = 1, .prefix = 7, .prefix_tokens = 12});
  EXPECT_EQ(engine.begin(), (planner::Batch{1, 5, 5 * (5 + 2 * 9), 0, 0}));
  engine.end();  // the second has ended; of the third prefix all three pages are full by now
  EXPECT_EQ(engine.begin(), (planner::Batch{1, 2, 2 * (2 + 2 * 12), 0, 0}));
}

// Given two prefixes of two pages, released in turn, in a cache of six pages, then a prompt that needs three; expects cached
// pages to count as free, the prefix released first to lose its last page, and the other to keep both.
TEST(EnginePrefixes, EvictTheLeastRecentlyUsedFirst) {
  SimulatedEngine engine(caching(6));
  for (const int prefix : {1, 2}) {
    engine.enqueue({.request = prefix, .prompt_tokens = 9, .output_tokens = 1, .prefix = prefix, .prefix_tokens = 8});
    EXPECT_EQ(drain(engine), 9);
  }
  EXPECT_EQ(engine.free_blocks(), 6);
  engine.enqueue({.request = 3, .prompt_tokens = 12, .output_tokens = 1});
  EXPECT_EQ(drain(engine), 12);
  engine.enqueue({.request = 2, .prompt_tokens = 9, .output_tokens = 1, .prefix = 2, .prefix_tokens = 8});
  EXPECT_EQ(drain(engine), 1);
  engine.enqueue({.request = 1, .prompt_tokens = 9, .output_tokens = 1, .prefix = 1, .prefix_tokens = 8});
  EXPECT_EQ(drain(engine), 5);
}

// Given a sequence that is preempted and recomputed while another one holds their prefix; expects only the part after the
// prefix to be recomputed.
TEST(EnginePrefixes, SpareRecomputation) {
  SimulatedEngine engine(caching(5));
  engine.enqueue({.request = 1, .prompt_tokens = 9, .output_tokens = 7, .prefix = 7, .prefix_tokens = 8});
  ASSERT_TRUE(engine.begin());
  engine.end();  // 3 pages
  engine.enqueue({.request = 2, .prompt_tokens = 9, .output_tokens = 9, .prefix = 7, .prefix_tokens = 8});
  ASSERT_TRUE(engine.begin());
  engine.end();  // 4 pages
  for (int token = 0; token < 3; ++token) {
    ASSERT_EQ(engine.begin()->decode_sequences, 2);
    engine.end();
  }
  EXPECT_EQ(engine.begin(), (planner::Batch{0, 0, 0, 1, 12}));  // both start a page; one is left
  EXPECT_EQ(engine.preemptions(), 1);
  engine.end();
  EXPECT_EQ(drain(engine), 13 - 8);
}

// Given waiting prompts of 5, 9, 1 and 3 tokens, each in an iteration of its own; expects them by arrival, or shortest or
// longest first within windows of 2, 3 and 4.
TEST(EnginePromptOrder, SortsInWindows) {
  const auto order = [](planner::PromptOrder order, int window) {
    planner::EngineSettings options;
    options.kv_blocks = 100;
    options.max_batch_tokens = 1;
    options.prompt_order = order;
    options.prompt_order_window = window;
    SimulatedEngine engine(options);
    for (const int tokens : {5, 9, 1, 3}) engine.enqueue({tokens, tokens, 1});
    EXPECT_EQ(engine.waiting(), 4);
    std::vector<int> found;
    while (engine.begin()) {
      for (const int request : engine.started()) found.push_back(request);
      engine.end();
    }
    return found;
  };
  EXPECT_EQ(order(planner::PromptOrder::kArrival, 4), (std::vector<int>{5, 9, 1, 3}));
  EXPECT_EQ(order(planner::PromptOrder::kShortestFirst, 4), (std::vector<int>{1, 3, 5, 9}));
  EXPECT_EQ(order(planner::PromptOrder::kShortestFirst, 2), (std::vector<int>{5, 9, 1, 3}));
  EXPECT_EQ(order(planner::PromptOrder::kShortestFirst, 3), (std::vector<int>{1, 5, 9, 3}));
  EXPECT_EQ(order(planner::PromptOrder::kLongestFirst, 3), (std::vector<int>{9, 5, 1, 3}));
  EXPECT_EQ(order(planner::PromptOrder::kLongestFirst, 2), (std::vector<int>{9, 5, 3, 1}));
}

// Whether a second cache has room next to a first one, in pages of one token. The first has 4 tokens and 10 predicted to come,
// the second 6 and 2.
bool has_room(planner::DecodeAdmission admission, std::int64_t kv_blocks) {
  planner::EngineSettings options;
  options.block_tokens = 1;
  options.kv_blocks = kv_blocks;
  options.admission = admission;
  SimulatedEngine engine(options);
  const SequenceSpec first{.request = 1, .prompt_tokens = 4, .output_tokens = 2, .predicted_output_tokens = 11};
  EXPECT_TRUE(engine.has_room(first));  // it would be alone
  engine.join(engine.reserve(first));
  return engine.has_room({.request = 2, .prompt_tokens = 6, .output_tokens = 5, .predicted_output_tokens = 3});
}

// Given the same; expects greedy to need the second's 6 pages and one more next to the first's 4; reserve-dynamic what both
// hold when the second has ended, 4 + 2 and 6 + 2; reserve-static what each holds in the end, 4 + 10 and 6 + 2.
TEST(EngineAdmission, LooksAhead) {
  EXPECT_TRUE(has_room(planner::DecodeAdmission::kGreedy, 11));
  EXPECT_FALSE(has_room(planner::DecodeAdmission::kGreedy, 10));
  EXPECT_TRUE(has_room(planner::DecodeAdmission::kReserveDynamic, 14));
  EXPECT_FALSE(has_room(planner::DecodeAdmission::kReserveDynamic, 13));
  EXPECT_TRUE(has_room(planner::DecodeAdmission::kReserveStatic, 22));
  EXPECT_FALSE(has_room(planner::DecodeAdmission::kReserveStatic, 21));
}

// Given reserve-static, a decode of 4 tokens with 3 to come next to a waiting prompt of 4 with 5 to come, in 15 pages of one
// token; expects the prompt to wait until the decode has ended, although 11 pages are free, because 4 + 3 and 4 + 5 exceed the
// pages.
TEST(EngineAdmission, HoldsForPromptsToo) {
  planner::EngineSettings options;
  options.admission_reserve = 0;
  options.block_tokens = 1;
  options.kv_blocks = 15;
  options.admission = planner::DecodeAdmission::kReserveStatic;
  SimulatedEngine engine(options);
  engine.enqueue({1, 4, 4});
  ASSERT_TRUE(engine.begin());
  engine.end();
  engine.enqueue({2, 4, 6});
  for (int token = 0; token < 3; ++token) {
    EXPECT_EQ(engine.begin(), (planner::Batch{0, 0, 0, 1, 4.0 + token}));
    engine.end();
  }
  EXPECT_EQ(engine.begin(), (planner::Batch{1, 4, 16, 0, 0}));
}

// Given sequences of 12 tokens that are all predicted to end with their second; expects them to be admitted together, to run
// out of pages, and to be preempted and finished as under greedy admission.
TEST(EngineAdmission, SurvivesWrongPredictions) {
  for (const planner::DecodeAdmission admission : planner::kAllDecodeAdmissions) {
    planner::EngineSettings options;
    options.admission_reserve = 0;
    options.block_tokens = 1;
    options.kv_blocks = 20;
    options.admission = admission;
    SimulatedEngine engine(options);
    for (int request = 0; request < 4; ++request) {
      engine.enqueue({.request = request, .prompt_tokens = 4, .output_tokens = 12, .predicted_output_tokens = 2});
    }
    std::size_t finished = 0;
    while (engine.begin()) finished += engine.end().finished.size();
    EXPECT_EQ(finished, 4U);
    EXPECT_GT(engine.preemptions(), 0);
    EXPECT_EQ(engine.free_blocks(), 20);
  }
}

}  // namespace
}  // namespace windlass::sim
