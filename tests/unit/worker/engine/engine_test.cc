// The scheduler: tokens do not depend on the schedule, no request starves or fails because the cache is full, limits and finish
// reasons are right.
#include "worker/engine/engine.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/unit/worker/fake_backend.h"
#include "tests/unit/worker/model_files.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/model/weights.h"

namespace windlass::worker {
namespace {

using testing::expected_text;
using testing::greedy;
using testing::HashBackend;
using ::testing::HasSubstr;
using testing::letter;
using testing::ManualClock;

constexpr std::int64_t kVocab = 97;

struct Outcome {
  std::string text;
  std::int64_t generated = 0;
  std::optional<FinishReason> finish;
  std::string error;
  RequestTimes times;
};

void collect(std::map<RequestId, Outcome>& outcomes, const std::vector<TokenEvent>& events) {
  for (const TokenEvent& event : events) {
    Outcome& outcome = outcomes[event.request];
    ASSERT_FALSE(outcome.finish.has_value()) << "an event after the end of request " << event.request;
    outcome.text += event.text;
    if (event.has_token) ++outcome.generated;
    EXPECT_EQ(event.generated_tokens, outcome.generated);
    outcome.finish = event.finish;
    outcome.error = event.error;
    outcome.times = event.times;
  }
}

// Given thousands of random schedules (arrivals at random steps or all together, random budgets, places and cache sizes, some
// so small that sequences are preempted, some requests cancelled midway, some steps that fail, most prompts with a common
// beginning); expects each request's greedy tokens to be those it has alone, and all blocks to be free in the end.
TEST(Engine, SchedulesNeverChangeGreedyTokens) {
  std::int64_t preemptions = 0;
  std::int64_t found = 0;
  std::int64_t largest_batch = 0;
  std::int64_t read_as_written = 0;
  std::int64_t failed = 0;
  for (std::uint64_t seed = 0; seed < effort(200U, 2000U); ++seed) {
    Rng rng(seed, "schedule");
    EngineOptions options;
    options.max_running = rng.integer(1, 6);
    options.max_waiting = 100;
    options.max_context_tokens = rng.integer(20, 120);
    options.max_batch_tokens = options.max_running + rng.integer(0, rng.uniform() < 0.6 ? 40 : 300);
    options.prefix_caching = rng.uniform() < 0.8;
    const std::int64_t blocks = blocks_for(options.max_context_tokens) + rng.integer(0, 8);
    std::vector<std::int32_t> common;
    while (common.size() < 120) common.push_back(static_cast<std::int32_t>(rng.integer(0, kVocab - 1)));
    HashBackend backend(kVocab, blocks, options.max_batch_tokens);
    if (rng.uniform() < 0.3) backend.fail_at_step = rng.integer(1, 30);
    const bool at_once = rng.uniform() < 0.3;
    ManualClock clock;
    Engine engine(options, backend, letter, clock);

    struct Planned {
      std::int64_t at_step;
      GenerationRequest request;
    };
    std::map<RequestId, Planned> planned;
    for (RequestId id = 1; id <= 8; ++id) {
      std::vector<std::int32_t> prompt;
      for (std::int64_t n = rng.integer(1, options.max_context_tokens - 1); n > 0; --n)
        prompt.push_back(static_cast<std::int32_t>(rng.integer(0, kVocab - 1)));
      if (rng.uniform() < 0.7) {
        const auto shared = at_once ? std::ssize(prompt) : rng.integer(0, std::ssize(prompt));
        std::copy_n(common.begin(), shared, prompt.begin());
      }
      planned.emplace(id, Planned{at_once ? 0 : rng.integer(0, 30), greedy(std::move(prompt), rng.integer(1, 40))});
    }
    const RequestId cancelled = rng.uniform() < 0.5 ? static_cast<RequestId>(rng.integer(1, 8)) : 0;
    const std::int64_t cancel_step = rng.integer(0, 60);
    std::map<RequestId, Outcome> outcomes;
    for (std::int64_t step = 0; step <= 60 || !engine.idle(); ++step) {
      ASSERT_LT(step, 5000) << "seed " << seed << " does not come to rest";
      for (const auto& [id, plan] : planned) {
        if (plan.at_step != step) continue;
        ASSERT_TRUE(engine.submit(id, plan.request, clock.now).ok());
      }
      if (cancelled != 0 && step == cancel_step) {
        if (const auto event = engine.cancel(cancelled, "left")) outcomes[cancelled].finish = event->finish;
      }
      collect(outcomes, engine.step());
    }
    for (const auto& [id, plan] : planned) {
      const Outcome& outcome = outcomes[id];
      const auto room = options.max_context_tokens - static_cast<std::int64_t>(plan.request.prompt.size());
      const std::string whole = expected_text(backend, plan.request.prompt, std::min(plan.request.max_tokens, room));
      const bool fails = outcome.finish == FinishReason::kError && outcome.error == "the backend broke";
      failed += fails ? 1 : 0;
      if (fails || (id == cancelled && outcome.finish == FinishReason::kCancelled)) {
        EXPECT_EQ(whole.substr(0, outcome.text.size()), outcome.text) << "seed " << seed;
        continue;
      }
      EXPECT_EQ(outcome.text, whole) << "seed " << seed << ", request " << id;
      EXPECT_EQ(outcome.finish, FinishReason::kLength);
    }
    EXPECT_EQ(engine.load().kv_blocks_used, 0) << "seed " << seed;
    preemptions += engine.preemptions();
    found += engine.prefix_counts().found;
    EXPECT_TRUE(options.prefix_caching || engine.prefix_counts().found == 0);
    largest_batch = std::max(largest_batch, backend.largest_batch);
    read_as_written += backend.read_as_written;
  }
  // The schedules covered what they should: sequences shared steps and blocks, and some were preempted and resumed.
  EXPECT_GT(preemptions, effort(10, 100));
  EXPECT_GT(found, effort(200, 2000));
  EXPECT_GT(largest_batch, 3);
  EXPECT_GT(read_as_written, effort(5, 50));
  EXPECT_GT(failed, effort(10, 100));
}

// Given the real CPU backend and random schedules; expects greedy text as for a request alone. Sums round differently in
// batches of different sizes, so a request may diverge where two logits nearly tie; that must be rare.
TEST(Engine, CpuBackendTextDoesNotDependOnOtherRequests) {
  const testing::TemporaryFolder folder;
  ASSERT_TRUE(init_model(testing::tiny_shape(), folder.path()).ok());
  const auto config = load_model_config(folder.path());
  ASSERT_TRUE(config.ok());
  const auto store = TensorStore::open(folder.path());
  ASSERT_TRUE(store.ok());
  const auto weights = load_weights(*config, *store);
  ASSERT_TRUE(weights.ok());
  const auto token_text = [](std::int32_t token) {
    static const std::vector<std::string> kNames = [] {
      std::vector<std::string> names;
      for (int i = 0; i < 300; ++i) names.push_back(std::to_string(i) + " ");
      return names;
    }();
    return std::string_view(kNames[static_cast<std::size_t>(token)]);
  };
  const auto run = [&](EngineOptions options, std::int64_t blocks, const std::vector<GenerationRequest>& requests,
                       std::uint64_t seed) {
    CpuBackendOptions cpu;
    cpu.kv_blocks = blocks;
    cpu.max_batch_tokens = options.max_batch_tokens;
    cpu.max_logit_rows = options.max_running;
    cpu.max_context_tokens = options.max_context_tokens;
    auto backend = make_cpu_backend(*config, *weights, cpu);
    EXPECT_TRUE(backend.ok());
    ManualClock clock;
    Engine engine(options, **backend, token_text, clock);
    Rng rng(seed, "arrivals");
    std::map<RequestId, Outcome> outcomes;
    std::size_t next = 0;
    while (next < requests.size() || !engine.idle()) {
      while (next < requests.size() && rng.uniform() < 0.4) {
        EXPECT_TRUE(engine.submit(next, requests[next], 0).ok());
        ++next;
      }
      collect(outcomes, engine.step());
    }
    return outcomes;
  };
  Rng rng(17, "prompts");
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 12; ++i) {
    std::vector<std::int32_t> prompt;
    for (std::int64_t n = rng.integer(1, 90); n > 0; --n) prompt.push_back(static_cast<std::int32_t>(rng.integer(0, 299)));
    requests.push_back(greedy(std::move(prompt), 30));
  }
  EngineOptions alone;
  alone.max_running = 1;
  alone.max_waiting = 100;
  alone.max_context_tokens = 160;
  alone.max_batch_tokens = 160;
  const auto expected = run(alone, 10, requests, 0);
  int different = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    EngineOptions options = alone;
    options.max_running = 1 + static_cast<std::int64_t>(seed % 6);
    options.max_batch_tokens = options.max_running + static_cast<std::int64_t>(seed * 7);
    const auto found = run(options, 10 + static_cast<std::int64_t>(seed), requests, seed);
    for (const auto& [id, outcome] : expected) {
      EXPECT_EQ(found.at(id).generated, outcome.generated);
      if (found.at(id).text != outcome.text) ++different;
    }
  }
  EXPECT_LE(different, 2) << "of 144 requests";
}

// Given a long prompt next to a running answer, with budgets of a few tokens and of many; expects a small budget to cut the
// prompt into pieces that leave the answer its token in each step, and the same tokens from all.
TEST(Engine, ABudgetCutsPrompts) {
  std::vector<std::int32_t> prompt(90);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<std::int32_t>(i * 7 % 97);
  const std::vector<std::int32_t> running = {3, 1, 4};
  for (const auto& [budget, steps] : std::map<std::int64_t, int>{{4, 30}, {10, 10}, {31, 3}, {91, 1}, {512, 1}}) {
    EngineOptions options;
    options.max_running = 2;
    options.max_context_tokens = 200;
    options.max_batch_tokens = budget;
    HashBackend backend(kVocab, 30, options.max_batch_tokens);
    ManualClock clock;
    Engine engine(options, backend, letter, clock);
    std::map<RequestId, Outcome> outcomes;
    ASSERT_TRUE(engine.submit(1, greedy(running, 60), clock.now).ok());
    collect(outcomes, engine.step());
    ASSERT_TRUE(engine.submit(2, greedy(prompt, 20), clock.now).ok());
    int pieces = 0;
    while (outcomes[2].text.empty()) {
      const std::size_t before = outcomes[1].text.size();
      collect(outcomes, engine.step());
      EXPECT_LE(engine.last_iteration().tokens, budget);
      EXPECT_GT(outcomes[1].text.size(), before) << "the answer waits for no prompt";
      ++pieces;
    }
    EXPECT_EQ(pieces, steps) << "with a budget of " << budget;
    while (!engine.idle()) collect(outcomes, engine.step());
    EXPECT_EQ(outcomes[1].text, expected_text(backend, running, 60));
    EXPECT_EQ(outcomes[2].text, expected_text(backend, prompt, 20));
  }
}

// Given a second prompt with the same beginning as a finished one; expects only its new part to be computed, always including
// its last token. After other requests have used the room, expects all of it to be computed.
TEST(Engine, APrefixIsComputedOnce) {
  EngineOptions options;
  options.max_running = 1;
  options.max_context_tokens = 100;
  options.max_batch_tokens = 100;
  HashBackend backend(kVocab, 8, options.max_batch_tokens);
  ManualClock clock;
  Engine engine(options, backend, letter, clock);
  std::vector<std::int32_t> prompt;
  for (std::int32_t token = 0; token < 48; ++token) prompt.push_back(token);
  RequestId id = 0;
  std::map<RequestId, Outcome> outcomes;
  // Returns the tokens that a prompt's first step computes; also checks the number found in the cache.
  const auto computed = [&](const std::vector<std::int32_t>& of) {
    EXPECT_TRUE(engine.submit(++id, greedy(of, 2), clock.now).ok());
    const auto first = engine.step();
    const std::int64_t tokens = engine.last_iteration().tokens;
    EXPECT_EQ(first.at(0).cached_tokens, static_cast<std::int64_t>(of.size()) - tokens);
    collect(outcomes, first);
    while (!engine.idle()) collect(outcomes, engine.step());
    EXPECT_EQ(outcomes[id].text, expected_text(backend, of, 2));
    return tokens;
  };
  EXPECT_EQ(computed(prompt), 48);
  EXPECT_EQ(computed(prompt), 16) << "of the last block one token is needed";
  prompt.push_back(96);
  EXPECT_EQ(computed(prompt), 1);
  prompt[20] = 96;
  EXPECT_EQ(computed(prompt), 33);
  EXPECT_EQ(engine.prefix_counts().found, 32 + 48 + 16);
  EXPECT_EQ(engine.load().kv_blocks_used, 0);
  const std::vector<std::int32_t> other(97, 5);  // needs seven of the eight blocks
  EXPECT_EQ(computed(other), 97);
  EXPECT_GT(computed(prompt), 17);
}

// Given three prompts that arrive together, two equal and one with a common beginning; expects the first step to compute only
// what differs. If the budget ends within the first prompt, expects the others to wait just for the step that computes its
// rest.
TEST(Engine, PromptsOfOneStepShare) {
  std::vector<std::int32_t> prompt;
  for (std::int32_t token = 0; token < 50; ++token) prompt.push_back(token);
  std::vector<std::int32_t> branch = prompt;
  branch[40] = 96;
  for (const std::int64_t budget : {100, 40}) {
    EngineOptions options;
    options.max_running = 4;
    options.max_context_tokens = 100;
    options.max_batch_tokens = budget;
    HashBackend backend(kVocab, 7, budget);  // without sharing there is room for one
    ManualClock clock;
    Engine engine(options, backend, letter, clock);
    std::map<RequestId, Outcome> outcomes;
    for (RequestId id = 1; id <= 3; ++id) ASSERT_TRUE(engine.submit(id, greedy(id == 3 ? branch : prompt, 2), 0).ok());
    if (budget == 40) {
      EXPECT_TRUE(engine.step().empty());
      EXPECT_EQ(engine.last_iteration().tokens, 40);
      EXPECT_EQ(engine.load().running, 1);
    }
    const auto events = engine.step();
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(engine.last_iteration().tokens, (budget == 40 ? 10 : 50) + 2 + 18);
    EXPECT_EQ(events[0].cached_tokens, 0);
    EXPECT_EQ(events[1].cached_tokens, 48);
    EXPECT_EQ(events[2].cached_tokens, 32);
    EXPECT_EQ(engine.load().kv_blocks_used, 7);
    collect(outcomes, events);
    while (!engine.idle()) collect(outcomes, engine.step());
    EXPECT_EQ(outcomes[1].text, expected_text(backend, prompt, 2));
    EXPECT_EQ(outcomes[2].text, outcomes[1].text);
    EXPECT_EQ(outcomes[3].text, expected_text(backend, branch, 2));
    EXPECT_EQ(engine.load().kv_blocks_used, 0);
  }
}

// Given a step that fails; expects nobody to use what it should have computed: the same prompt, submitted later, is computed
// from its beginning.
TEST(Engine, FailedStepsLeaveNoSharedBlocks) {
  EngineOptions options;
  options.max_batch_tokens = 40;
  HashBackend backend(kVocab, 128, options.max_batch_tokens);
  backend.fail_at_step = 2;
  ManualClock clock;
  Engine engine(options, backend, letter, clock);
  const std::vector<std::int32_t> prompt(70, 3);
  for (RequestId id = 1; id <= 2; ++id) ASSERT_TRUE(engine.submit(id, greedy(prompt, 3), 0).ok());
  std::map<RequestId, Outcome> outcomes;
  while (!engine.idle()) collect(outcomes, engine.step());
  EXPECT_EQ(outcomes[1].finish, FinishReason::kError);
  EXPECT_EQ(outcomes[2].finish, FinishReason::kError) << "it shared what did not come to be";
  ASSERT_TRUE(engine.submit(3, greedy(prompt, 3), 0).ok());
  const auto first = engine.step();
  EXPECT_EQ(engine.last_iteration().tokens, 70 - 32) << "two blocks are of the step before that";
  collect(outcomes, first);
  while (!engine.idle()) collect(outcomes, engine.step());
  EXPECT_EQ(outcomes[3].text, expected_text(backend, prompt, 3));
  EXPECT_EQ(engine.load().kv_blocks_used, 0);
}

// Given a cache that has room for one of two requests; expects the second to wait and then to be served completely.
TEST(Engine, CacheExhaustionQueues) {
  EngineOptions options;
  options.max_running = 4;
  options.max_context_tokens = 64;
  HashBackend backend(kVocab, blocks_for(64), options.max_batch_tokens);
  ManualClock clock;
  Engine engine(options, backend, letter, clock);
  const std::vector<std::int32_t> prompt(50, 3), other(50, 4);
  ASSERT_TRUE(engine.submit(1, greedy(prompt, 10), 0).ok());
  ASSERT_TRUE(engine.submit(2, greedy(other, 10), 0).ok());
  std::map<RequestId, Outcome> outcomes;
  collect(outcomes, engine.step());
  EXPECT_EQ(engine.load().running, 1);
  EXPECT_EQ(engine.load().waiting, 1);
  while (!engine.idle()) collect(outcomes, engine.step());
  EXPECT_EQ(outcomes[1].text, expected_text(backend, prompt, 10));
  EXPECT_EQ(outcomes[2].text, expected_text(backend, other, 10));
}

// Given a long prompt next to a decoding request; expects the decoding one to get a token in every step, because prefill is
// split into chunks.
TEST(Engine, PrefillDoesNotStopDecoding) {
  EngineOptions options;
  options.max_running = 2;
  options.max_context_tokens = 512;
  options.max_batch_tokens = 16;
  HashBackend backend(kVocab, 64, 16);
  ManualClock clock;
  Engine engine(options, backend, letter, clock);
  ASSERT_TRUE(engine.submit(1, greedy({1, 2}, 100), 0).ok());
  ASSERT_EQ(engine.step().size(), 1U);
  ASSERT_TRUE(engine.submit(2, greedy(std::vector<std::int32_t>(300, 5), 1), 0).ok());
  for (int step = 0; step < 19; ++step) {
    const auto events = engine.step();
    ASSERT_EQ(events.size(), 1U) << "step " << step;
    EXPECT_EQ(events[0].request, 1U);
  }
  EXPECT_EQ(engine.step().size(), 2U);  // 300 tokens at 15 per step
}

// Given requests beyond the limits; expects each to be refused with the rule and the value, and nothing to be queued.
TEST(Engine, RefusesWhatDoesNotFit) {
  EngineOptions options;
  options.max_running = 1;
  options.max_waiting = 2;
  options.max_context_tokens = 32;
  HashBackend backend(kVocab, 2, options.max_batch_tokens);
  ManualClock clock;
  Engine engine(options, backend, letter, clock);
  const auto error_of = [&](const GenerationRequest& request) {
    const auto taken = engine.submit(9, request, 0);
    EXPECT_FALSE(taken.ok());
    return taken.ok() ? "" : taken.error().message;
  };
  EXPECT_THAT(error_of(greedy(std::vector<std::int32_t>(40, 1), 1)),
              HasSubstr("the prompt has 40 tokens, but the context holds 32"));
  EXPECT_THAT(error_of(greedy({}, 1)), HasSubstr("prompt: must have at least 1 token (got none)"));
  EXPECT_THAT(error_of(greedy({1}, 0)), HasSubstr("max_tokens: must be at least 1 (got 0)"));
  EXPECT_THAT(error_of(greedy({kVocab}, 1)), HasSubstr("prompt: must have token ids from 0 to 96 (got 97)"));
  EXPECT_TRUE(engine.idle());
  for (RequestId id = 1; id <= 3; ++id) EXPECT_TRUE(engine.submit(id, greedy({1}, 5), 0).ok());
  const auto full = engine.submit(4, greedy({1}, 5), 0);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, ErrorCode::kResourceExhausted);
}

// Given an end-of-sequence token; expects generation to stop there without its text, and to go on with ignore_eos.
TEST(Engine, EndOfSequence) {
  EngineOptions options;
  HashBackend backend(kVocab, 128, options.max_batch_tokens);
  std::vector<std::int32_t> tokens{4};
  for (int i = 0; i < 5; ++i) tokens.push_back(backend.next_token(tokens));
  options.eos_token_ids = {tokens.back()};
  const auto first = std::find(tokens.begin() + 1, tokens.end(), tokens.back()) - tokens.begin();  // it may come earlier
  ManualClock clock;
  Engine engine(options, backend, letter, clock);
  ASSERT_TRUE(engine.submit(1, greedy({4}, 20), 0).ok());
  GenerationRequest on = greedy({4}, 20);
  on.ignore_eos = true;
  ASSERT_TRUE(engine.submit(2, on, 0).ok());
  std::map<RequestId, Outcome> outcomes;
  while (!engine.idle()) collect(outcomes, engine.step());
  EXPECT_EQ(outcomes[1].finish, FinishReason::kStop);
  EXPECT_EQ(outcomes[1].generated, first);
  EXPECT_EQ(outcomes[1].text, expected_text(backend, {4}, first - 1));
  EXPECT_EQ(outcomes[2].finish, FinishReason::kLength);
  EXPECT_EQ(outcomes[2].generated, 20);
}

// Given a stop string that spans three tokens; expects the text to end before it, although parts of it were generated.
TEST(Engine, StopStringSpanningTokens) {
  EngineOptions options;
  HashBackend backend(kVocab, 128, options.max_batch_tokens);
  const std::string whole = expected_text(backend, {8}, 30);
  const std::string stop = whole.substr(10, 3);
  GenerationRequest request = greedy({8}, 30);
  request.stop = {stop};
  ManualClock clock;
  Engine engine(options, backend, letter, clock);
  ASSERT_TRUE(engine.submit(1, request, 0).ok());
  std::map<RequestId, Outcome> outcomes;
  while (!engine.idle()) collect(outcomes, engine.step());
  EXPECT_EQ(outcomes[1].finish, FinishReason::kStop);
  EXPECT_EQ(outcomes[1].text, whole.substr(0, whole.find(stop)));
}

// Given a backend that fails; expects the requests of that step to end with its error, and the engine to go on with others.
TEST(Engine, BackendFailureEndsItsRequests) {
  EngineOptions options;
  HashBackend backend(kVocab, 128, options.max_batch_tokens);
  backend.fail_at_step = 2;
  ManualClock clock;
  Engine engine(options, backend, letter, clock);
  ASSERT_TRUE(engine.submit(1, greedy({8}, 30), 0).ok());
  std::map<RequestId, Outcome> outcomes;
  while (!engine.idle()) collect(outcomes, engine.step());
  EXPECT_EQ(outcomes[1].finish, FinishReason::kError);
  EXPECT_EQ(outcomes[1].error, "the backend broke");
  ASSERT_TRUE(engine.submit(2, greedy({8}, 3), 0).ok());
  while (!engine.idle()) collect(outcomes, engine.step());
  EXPECT_EQ(outcomes[2].finish, FinishReason::kLength);
  EXPECT_EQ(engine.load().kv_blocks_used, 0);
}

// Given a clock that the test controls; expects a request's times to be those of its events.
TEST(Engine, TimesComeFromTheClock) {
  EngineOptions options;
  HashBackend backend(kVocab, 128, options.max_batch_tokens);
  ManualClock clock;
  Engine engine(options, backend, letter, clock);
  ASSERT_TRUE(engine.submit(1, greedy({8}, 3), 10).ok());
  std::map<RequestId, Outcome> outcomes;
  for (const double now : {12.0, 13.0, 15.0}) {
    clock.now = now;
    collect(outcomes, engine.step());
  }
  ASSERT_TRUE(engine.idle());
  EXPECT_EQ(engine.last_iteration().tokens, 1);
  EXPECT_EQ(outcomes[1].times.arrived_s, 10);
  EXPECT_EQ(outcomes[1].times.started_s, 12);
  EXPECT_EQ(outcomes[1].times.first_token_s, 12);
  EXPECT_EQ(outcomes[1].times.last_token_s, 15);
}

}  // namespace
}  // namespace windlass::worker
