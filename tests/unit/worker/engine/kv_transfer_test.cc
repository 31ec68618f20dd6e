// Prompts computed on one worker and answered on another: tokens never change, whatever fails on the way, and nothing leaks.
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "metrics/bundles.h"
#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/unit/worker/fake_backend.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_loop.h"
#include "worker/parallel/kv_exports.h"
#include "worker/parallel/kv_imports.h"
#include "worker/parallel/kv_stream.h"
#include "worker/parallel/kv_wire.h"

namespace windlass::worker {
namespace {

using testing::expected_text;
using testing::greedy;
using testing::HashBackend;
using ::testing::HasSubstr;
using testing::letter;
using testing::ManualClock;

constexpr std::int64_t kVocabulary = 97;
constexpr std::uint64_t kModel = 0x5EED;

std::string name_of(RequestId id) {
  return kv_prompt_hash(std::vector<std::int32_t>{static_cast<std::int32_t>(id)}, 0) + "0123456789abcdef";
}

std::vector<std::int32_t> random_prompt(Rng& rng, std::int64_t most) {
  std::vector<std::int32_t> prompt;
  for (std::int64_t n = rng.integer(1, most); n > 0; --n)
    prompt.push_back(static_cast<std::int32_t>(rng.integer(0, kVocabulary - 1)));
  return prompt;
}

// Answers a question from a worker's exports, as its HTTP side does.
Result<KvAnswer> answer_from(KvExports& exports, const KvQuestion& question) {
  auto pieces = exports.read(question.session, question.hash, question.piece);
  if (!pieces.ok()) return pieces.error();
  KvAnswer answer{std::move(pieces->bytes), pieces->next, std::nullopt};
  if (pieces->last) answer.first = first_token_text(*pieces->last);
  return answer;
}

// A prefill worker, a decode worker and the connection between them, all on one thread: questions wait until the test answers
// them.
class Pair {
 public:
  // Room for a little more than one whole context.
  Pair() : Pair({.max_context_tokens = 100}, 8, 8) {}
  Pair(EngineOptions options, std::int64_t prefill_blocks, std::int64_t decode_blocks)
      : prefill_backend(kVocabulary, prefill_blocks, options.max_batch_tokens),
        decode_backend(kVocabulary, decode_blocks, options.max_batch_tokens),
        exports(prefill_backend, kModel, clock, metrics),
        imports(
            decode_backend, kModel,
            [this](const KvQuestion& question, std::function<void(Result<KvAnswer>)> answered) {
              questions.push_back({question, std::move(answered)});
            },
            [this](RequestId request, const KvQuestion&, const Result<Sampled>& first) {
              arrived.emplace_back(request, first);
            },
            clock, metrics),
        prefill(options, prefill_backend, letter, clock, {&exports, nullptr}),
        decode(options, decode_backend, letter, clock, {nullptr, &imports}) {}

  struct Question {
    KvQuestion question;
    std::function<void(Result<KvAnswer>)> answered;
  };

  void begin(RequestId id, const GenerationRequest& request) {
    GenerationRequest part = request;
    part.kv.id = name_of(id);
    exports.open(part.kv.id, part.prompt, [this, id] { begun.insert(id); });
    ASSERT_TRUE(prefill.submit(id, std::move(part), clock.now).ok());
  }

  void go_on(RequestId id, GenerationRequest request) {
    request.kv = {name_of(id), "prefill:1"};
    ASSERT_TRUE(decode.submit(id, std::move(request), clock.now).ok());
  }

  // Ends the gateway's exchange with the prefill worker.
  void end_prefill(RequestId id) {
    if (const auto event = prefill.cancel(id, "the request is over")) record_prefill({*event});
    exports.close(name_of(id));
  }

  // Answers the question from the prefill worker, or reports that it broke.
  void answer(std::size_t index, bool broken) {
    Question each = std::move(questions[index]);
    questions.erase(questions.begin() + static_cast<std::ptrdiff_t>(index));
    if (broken) return each.answered(Error{ErrorCode::kUnavailable, "the connection broke"});
    const auto from = answer_from(exports, each.question);
    each.answered(from);
    if (!from.ok() || !from->first) return;
    if (const auto event = prefill.taken(each.question.session)) record_prefill({*event});
  }

  // Passes what has arrived to the decode engine, as its loop does.
  std::vector<TokenEvent> deliver() {
    std::vector<TokenEvent> events;
    for (const auto& [request, first] : std::exchange(arrived, {})) {
      if (const auto event = decode.received(request, first)) events.push_back(*event);
    }
    return events;
  }

  void record_prefill(const std::vector<TokenEvent>& events) {
    for (const TokenEvent& event : events) {
      EXPECT_TRUE(event.for_another);
      EXPECT_EQ(event.text, "") << "only the decode worker tells the client";
      if (!event.finish) continue;
      EXPECT_TRUE(prefill_ends.emplace(event.request, *event.finish).second) << "request " << event.request << " ends twice";
    }
  }

  ManualClock clock;
  metrics::Registry registry;
  metrics::WorkerMetrics metrics{registry, "m"};
  HashBackend prefill_backend, decode_backend;
  std::vector<Question> questions;
  std::vector<std::pair<RequestId, Result<Sampled>>> arrived;
  std::set<RequestId> begun;
  std::map<RequestId, FinishReason> prefill_ends;
  KvExports exports;
  KvImports imports;
  Engine prefill, decode;
};

// Given hundreds of random runs of a pair (caches so small that prompts are preempted on either side; answers that arrive in
// any order, break, or never arrive because the prefill worker dropped the prompt; requests cancelled midway; mostly common
// beginnings; some arrive together); expects each request's tokens to be those it has alone, each prefill to end once, all
// blocks to be free, and both engines to come to rest. Most prompts do arrive.
TEST(KvTransfer, SchedulesAndFaultsNeverChangeTokens) {
  std::int64_t received = 0, recomputed = 0, given_up = 0, preemptions = 0, found = 0, read_as_written = 0;
  for (std::uint64_t seed = 0; seed < effort(40U, 400U); ++seed) {
    Rng rng(seed, "pair");
    EngineOptions options;
    options.max_running = rng.integer(1, 5);
    options.max_waiting = 100;
    options.max_context_tokens = rng.integer(20, 120);
    options.max_batch_tokens = options.max_running + rng.integer(0, rng.uniform() < 0.6 ? 40 : 300);
    const std::int64_t least = blocks_for(options.max_context_tokens);
    Pair pair(options, least + rng.integer(0, 8), least + rng.integer(0, 8));
    const double breaks = rng.uniform() < 0.5 ? 0 : 0.1;
    const bool at_once = rng.uniform() < 0.3;
    struct Planned {
      std::int64_t at_step = 0;
      bool whole = false;  // served only by the decode worker
      GenerationRequest request;
    };
    std::map<RequestId, Planned> planned;
    const std::vector<std::int32_t> common(120, static_cast<std::int32_t>(seed % kVocabulary));
    for (RequestId id = 1; id <= 8; ++id) {
      auto prompt = random_prompt(rng, options.max_context_tokens - 1);
      if (rng.uniform() < 0.6)
        std::copy_n(common.begin(), at_once ? std::ssize(prompt) : rng.integer(0, std::ssize(prompt)), prompt.begin());
      planned[id] = {at_once ? 0 : rng.integer(0, 30), rng.uniform() < 0.2, greedy(std::move(prompt), rng.integer(1, 30))};
    }
    // One whole request also runs on the prefill worker and competes for its room.
    const GenerationRequest other = greedy(random_prompt(rng, options.max_context_tokens - 1), 40);
    const RequestId cancelled = rng.uniform() < 0.4 ? static_cast<RequestId>(rng.integer(1, 8)) : 0;
    const std::int64_t cancel_step = rng.integer(0, 60);
    std::map<RequestId, std::string> texts;
    std::set<RequestId> at_decode, over;
    std::string other_text;
    const auto record = [&](const std::vector<TokenEvent>& events) {
      for (const TokenEvent& event : events) {
        ASSERT_EQ(over.count(event.request), 0U) << "an event after the end";
        texts[event.request] += event.text;
        if (event.generated_tokens == 1 && at_decode.count(event.request) > 0 && !planned[event.request].whole) {
          ++(event.prompt_received ? received : recomputed);
        }
        if (!event.finish) continue;
        over.insert(event.request);
        if (!planned[event.request].whole) pair.end_prefill(event.request);
      }
    };
    for (std::int64_t step = 0; step <= 60 || over.size() < planned.size() || !pair.prefill.idle(); ++step) {
      ASSERT_LT(step, 5000) << "seed " << seed << " does not come to rest";
      if (step == 5) {
        ASSERT_TRUE(pair.prefill.submit(99, other, 0).ok());
      }
      for (const auto& [id, plan] : planned) {
        if (plan.at_step == step && !plan.whole && over.count(id) == 0) pair.begin(id, plan.request);
        const bool may_go_on = plan.whole ? plan.at_step <= step : pair.begun.count(id) > 0 && rng.uniform() < 0.5;
        if (may_go_on && over.count(id) == 0 && at_decode.insert(id).second) {
          if (plan.whole) {
            ASSERT_TRUE(pair.decode.submit(id, plan.request, 0).ok());
          } else {
            pair.go_on(id, plan.request);
          }
        }
      }
      if (cancelled != 0 && step == cancel_step && over.count(cancelled) == 0) {
        over.insert(cancelled);
        static_cast<void>(pair.decode.cancel(cancelled, "left"));
        pair.end_prefill(cancelled);
      }
      while (!pair.questions.empty() && rng.uniform() < 0.6) {
        pair.answer(static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(pair.questions.size()) - 1)),
                    rng.uniform() < breaks);
      }
      record(pair.deliver());
      std::vector<TokenEvent> here;
      for (TokenEvent& event : pair.prefill.step()) {
        if (event.request == 99) {
          other_text += event.text;
        } else {
          here.push_back(std::move(event));
        }
      }
      pair.record_prefill(here);
      record(pair.decode.step());
    }
    for (const auto& [id, plan] : planned) {
      const auto room = options.max_context_tokens - static_cast<std::int64_t>(plan.request.prompt.size());
      const std::string whole =
          expected_text(pair.decode_backend, plan.request.prompt, std::min(plan.request.max_tokens, room));
      if (id == cancelled && texts[id].size() < whole.size()) {
        EXPECT_EQ(whole.substr(0, texts[id].size()), texts[id]) << "seed " << seed;
      } else {
        EXPECT_EQ(texts[id], whole) << "seed " << seed << ", request " << id;
      }
    }
    const auto room = options.max_context_tokens - static_cast<std::int64_t>(other.prompt.size());
    EXPECT_EQ(other_text, expected_text(pair.prefill_backend, other.prompt, std::min(other.max_tokens, room)))
        << "seed " << seed;
    EXPECT_EQ(pair.prefill.load().kv_blocks_used, 0) << "seed " << seed;
    EXPECT_EQ(pair.decode.load().kv_blocks_used, 0) << "seed " << seed;
    for (const auto& [id, end] : pair.prefill_ends) given_up += end == FinishReason::kCancelled && id != cancelled ? 1 : 0;
    preemptions += pair.decode.preemptions();
    found += pair.prefill.prefix_counts().found;
    read_as_written += pair.prefill_backend.read_as_written;
  }
  EXPECT_GT(found, effort(200, 3000));
  EXPECT_GT(read_as_written, effort(1, 20));
  EXPECT_GT(received, effort(86, 1300));
  EXPECT_GT(recomputed, effort(5, 80));
  EXPECT_GT(given_up, effort(5, 80));
  EXPECT_GT(preemptions, effort(1, 25));
}

// Given a prompt that another worker computed and a later one with the same beginning; expects the second not to use the
// received data, which only the request that asked for it may trust.
TEST(KvTransfer, ReceivedBlocksAreNotShared) {
  EngineOptions options;
  options.max_running = 2;
  options.max_context_tokens = 100;
  options.max_batch_tokens = 100;
  Pair pair(options, 8, 8);
  const GenerationRequest request = greedy(std::vector<std::int32_t>(50, 7), 3);
  pair.begin(1, request);
  pair.record_prefill(pair.prefill.step());
  pair.go_on(1, request);
  static_cast<void>(pair.decode.step());
  while (!pair.questions.empty()) pair.answer(0, false);
  EXPECT_EQ(pair.deliver().size(), 1U);
  while (!pair.decode.idle()) static_cast<void>(pair.decode.step());
  ASSERT_TRUE(pair.decode.submit(2, request, 0).ok());
  static_cast<void>(pair.decode.step());
  EXPECT_EQ(pair.decode.last_iteration().tokens, 50);
  EXPECT_EQ(pair.decode.prefix_counts().found, 0);
}

// Given a long prompt in several iterations; expects pieces to be readable while later ones are still being computed, and the
// first token to reach the decode worker only after all data.
TEST(KvTransfer, PiecesCanBeReadWhileThePrefillRuns) {
  EngineOptions options;
  options.max_running = 2;
  options.max_context_tokens = 100;
  options.max_batch_tokens = 20;
  Pair pair(options, 8, 8);
  Rng rng(1, "prompt");
  GenerationRequest request = greedy(std::vector<std::int32_t>(50, 7), 5);
  pair.begin(1, request);
  pair.record_prefill(pair.prefill.step());
  EXPECT_EQ(pair.begun.count(1), 1U);
  pair.go_on(1, request);
  EXPECT_TRUE(pair.decode.step().empty());
  EXPECT_TRUE(pair.decode.stalled());
  ASSERT_EQ(pair.questions.size(), 1U);
  pair.answer(0, false);
  ASSERT_EQ(pair.questions.size(), 1U);
  EXPECT_EQ(pair.questions[0].question.piece, 2) << "one chunk in two layers";
  bool ready = false;
  pair.exports.when_ready(name_of(1), kv_prompt_hash(request.prompt, kModel), 2, [&] { ready = true; });
  EXPECT_FALSE(ready);
  pair.record_prefill(pair.prefill.step());
  EXPECT_TRUE(ready);
  pair.record_prefill(pair.prefill.step());
  pair.answer(0, false);
  EXPECT_EQ(pair.prefill_ends.at(1), FinishReason::kStop);
  EXPECT_TRUE(pair.prefill.idle());
  const auto events = pair.deliver();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_TRUE(events[0].prompt_received);
  EXPECT_EQ(events[0].generated_tokens, 1);
  EXPECT_FALSE(pair.decode.stalled());
}

// Given a prompt for another worker that waits for memory, then a request answered here and a small prompt for another worker;
// expects the request to be admitted, and the small prompt to wait its turn although it would fit.
TEST(KvTransfer, PromptsForOthersKeepTheirOrder) {
  Pair pair({.max_context_tokens = 100, .prefix_caching = false}, 8, 8);
  const auto prompt = [](std::size_t tokens, std::int32_t token) { return std::vector<std::int32_t>(tokens, token); };
  pair.begin(1, greedy(prompt(70, 1), 5));
  static_cast<void>(pair.prefill.step());
  pair.begin(2, greedy(prompt(70, 2), 5));
  ASSERT_TRUE(pair.prefill.submit(99, greedy(prompt(4, 3), 5), 0).ok());
  pair.begin(3, greedy(prompt(4, 4), 5));
  std::string text;
  for (int step = 0; step < 10; ++step) {
    for (const TokenEvent& event : pair.prefill.step()) text += event.request == 99 ? event.text : "";
  }
  EXPECT_EQ(text, expected_text(pair.prefill_backend, prompt(4, 3), 5));
  EXPECT_THAT(pair.begun, ::testing::ElementsAre(1));
  pair.end_prefill(1);
  pair.record_prefill(pair.prefill.step());
  EXPECT_THAT(pair.begun, ::testing::ElementsAre(1, 2, 3));
}

// Reads data as soon as it is announced, as another worker may.
class EagerReader final : public KvSender {
 public:
  EagerReader(const HashBackend& backend, std::vector<std::int32_t> prompt) : backend_(backend), prompt_(std::move(prompt)) {}
  void begins(const std::string& session) override { told_[session].assign(2, 0); }
  void computed(const std::string& session, const KvRange& range, std::span<const std::int32_t> blocks) override {
    auto& told = told_.at(session).at(static_cast<std::size_t>(range.layer));
    EXPECT_EQ(range.start, told) << "pieces of a layer follow each other";
    EXPECT_LE(range.tokens, longest);
    told += range.tokens;
    std::vector<float> found(static_cast<std::size_t>(range.tokens));
    backend_.read_kv(range, blocks, found.data());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i], static_cast<float>(prompt_[static_cast<std::size_t>(range.start) + i])) << "session " << session;
    }
  }
  void completed(const std::string& session, const Sampled&) override {
    for (const std::int64_t told : told_.at(session)) EXPECT_EQ(told, std::ssize(prompt_));
    ++whole;
  }
  void stop(const std::string&) override {}

  std::int64_t longest = 0;  // longest piece allowed
  int whole = 0;             // sessions that ended with the whole prompt announced

 private:
  const HashBackend& backend_;
  std::vector<std::int32_t> prompt_;
  std::map<std::string, std::vector<std::int64_t>> told_;  // positions, by layer
};

// Given the same prompt three times, twice together and once later; expects a sequence that shares blocks of the current step
// to announce them layer by layer when they exist, and in the end the whole prompt.
TEST(KvTransfer, AnnouncesSharedBlocksOnceComputed) {
  EngineOptions options;
  options.max_running = 2;
  options.max_context_tokens = 100;
  options.max_batch_tokens = 60;
  std::vector<std::int32_t> prompt;
  for (std::int32_t token = 0; token < 90; ++token) prompt.push_back(token);
  HashBackend backend(kVocabulary, 20, options.max_batch_tokens);
  EagerReader reader(backend, prompt);
  reader.longest = options.max_batch_tokens;
  ManualClock clock;
  Engine engine(options, backend, letter, clock, {&reader, nullptr});
  const auto submit = [&](RequestId id) {
    GenerationRequest request = greedy(prompt, 5);
    request.kv.id = name_of(id);
    ASSERT_TRUE(engine.submit(id, std::move(request), 0).ok());
  };
  submit(1);
  submit(2);
  static_cast<void>(engine.step());
  static_cast<void>(engine.step());
  EXPECT_EQ(reader.whole, 2);
  EXPECT_EQ(backend.read_as_written, 1);
  submit(3);
  static_cast<void>(engine.step());
  EXPECT_EQ(engine.last_iteration().tokens, 10);
  EXPECT_EQ(reader.whole, 3);
}

// Given a waiting reader and no progress; expects a tick after the longest wait to call it, and so does the end of the session.
// A question that must be refused does not wait.
TEST(KvTransfer, WaitingHasAnEnd) {
  Pair pair;
  const GenerationRequest request = greedy({1, 2, 3}, 5);
  pair.begin(1, request);
  const std::string hash = kv_prompt_hash(request.prompt, kModel);
  int called = 0;
  const auto wait = [&](const std::string& session, const std::string& of, std::int64_t piece) {
    pair.exports.when_ready(session, of, piece, [&] { ++called; });
  };
  wait(name_of(1), hash, 0);
  pair.clock.now = 0.9;
  EXPECT_TRUE(pair.exports.tick().empty());
  EXPECT_EQ(called, 0);
  pair.clock.now = 1.1;
  EXPECT_TRUE(pair.exports.tick().empty());
  EXPECT_EQ(called, 1);
  wait(name_of(1), hash, 0);
  wait(name_of(1), "another prompt's", 0);
  EXPECT_EQ(called, 2);
  wait("no such session", hash, 0);
  EXPECT_EQ(called, 3);
  pair.end_prefill(1);  // before it began
  EXPECT_EQ(called, 4);
}

// Given a prompt that a reader began to fetch and then abandoned; expects it to be dropped after the lease, not before. One
// that nobody has begun to fetch stays, because it waits for a decode worker with room.
TEST(KvTransfer, DropsAbandonedPrompts) {
  Pair pair;
  for (RequestId id : {1, 2}) pair.begin(id, greedy({1, 2, static_cast<std::int32_t>(id)}, 5));
  pair.record_prefill(pair.prefill.step());
  pair.go_on(1, greedy({1, 2, 1}, 5));
  static_cast<void>(pair.decode.step());
  EXPECT_TRUE(answer_from(pair.exports, pair.questions[0].question).ok());
  pair.clock.now = KvExports::kLeaseS;
  EXPECT_TRUE(pair.exports.tick().empty());
  pair.clock.now += 0.5;
  EXPECT_THAT(pair.exports.tick(), ::testing::ElementsAre(KvExports::Abandoned{name_of(1), KvExports::kLeaseS}));
  const auto event = pair.prefill.abandoned(name_of(1));
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->finish, FinishReason::kCancelled);
  EXPECT_FALSE(pair.prefill.abandoned(name_of(1)).has_value());
  EXPECT_EQ(pair.prefill.load().held, 1);
  EXPECT_TRUE(pair.exports.tick().empty());
}

// Given a draining worker and prompts that nobody begins to fetch; expects each to be dropped after the limit, counted from the
// drain or from its completion, whichever is later. Prompts still to be computed, or being read, stay.
TEST(KvTransfer, DrainDropsPromptsThatNobodyFetches) {
  Pair pair;
  for (RequestId id : {1, 2}) pair.begin(id, greedy({1, 2, static_cast<std::int32_t>(id)}, 5));
  pair.record_prefill(pair.prefill.step());
  pair.go_on(2, greedy({1, 2, 2}, 5));
  static_cast<void>(pair.decode.step());
  pair.clock.now = 100;
  EXPECT_TRUE(pair.exports.tick().empty());
  pair.exports.drain();
  pair.begin(3, greedy({1, 2, 3}, 5));
  pair.clock.now = 100 + KvExports::kUnaskedS - 5;
  EXPECT_TRUE(answer_from(pair.exports, pair.questions[0].question).ok());
  pair.record_prefill(pair.prefill.step());
  pair.exports.drain();  // a second call changes nothing
  EXPECT_TRUE(pair.exports.tick().empty());
  pair.clock.now = 100 + KvExports::kUnaskedS + 1;
  EXPECT_THAT(pair.exports.tick(), ::testing::ElementsAre(KvExports::Abandoned{name_of(1), KvExports::kUnaskedS}));
  ASSERT_TRUE(pair.prefill.abandoned(name_of(1)).has_value());
  EXPECT_TRUE(answer_from(pair.exports, pair.questions[0].question).ok());
  pair.clock.now = 100 + 2 * KvExports::kUnaskedS - 4;
  EXPECT_TRUE(answer_from(pair.exports, pair.questions[0].question).ok());
  EXPECT_THAT(pair.exports.tick(), ::testing::ElementsAre(KvExports::Abandoned{name_of(3), KvExports::kUnaskedS}));
}

// Given a cache full of prompts held for other workers; expects another prompt for others to wait, and a whole request that
// comes later to pass it and to get just the room it needs.
TEST(KvTransfer, WholeRequestsTakeRoomFromHeldPrompts) {
  EngineOptions options;
  options.max_running = 4;
  options.max_context_tokens = 100;
  options.max_batch_tokens = 200;
  Pair pair(options, 9, 9);
  const auto prompt = [](std::int32_t token) { return std::vector<std::int32_t>(40, token); };  // three blocks of its own
  for (RequestId id : {1, 2, 3}) pair.begin(id, greedy(prompt(static_cast<std::int32_t>(id)), 5));
  pair.record_prefill(pair.prefill.step());
  EXPECT_EQ(pair.prefill.load().held, 3);
  pair.begin(4, greedy(prompt(4), 5));
  EXPECT_TRUE(pair.prefill.step().empty());
  EXPECT_TRUE(pair.prefill.stalled());
  ASSERT_TRUE(pair.prefill.submit(99, greedy(prompt(5), 2), 0).ok());
  const auto events = pair.prefill.step();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].request, 3U);
  EXPECT_EQ(events[0].finish, FinishReason::kCancelled);
  EXPECT_EQ(events[1].request, 99U);
  EXPECT_EQ(pair.prefill.load().held, 2);
  EXPECT_EQ(pair.prefill.load().waiting, 1);
}

// Given a worker that answers without making progress; expects the prompt to be computed here after a while, and immediately if
// the worker does not even wait before its empty answers.
TEST(KvTransfer, GivesUpWithoutProgress) {
  EngineOptions options;
  options.max_context_tokens = 100;
  for (const double each_s : {1.0, 0.1}) {
    Pair pair(options, 8, 8);
    pair.go_on(1, greedy({1, 2, 3}, 5));
    EXPECT_TRUE(pair.decode.step().empty());
    int answers = 0;
    for (; pair.arrived.empty() && answers < 100; ++answers) {
      ASSERT_EQ(pair.questions.size(), 1U);
      const auto asked = std::move(pair.questions[0]);
      pair.questions.clear();
      pair.clock.now += each_s;
      asked.answered(KvAnswer{});
    }
    EXPECT_EQ(answers, each_s == 1.0 ? 31 : 1);
    ASSERT_EQ(pair.arrived.size(), 1U);
    EXPECT_FALSE(pair.arrived[0].second.ok());
    EXPECT_TRUE(pair.deliver().empty());
    const auto events = pair.decode.step();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_FALSE(events[0].prompt_received);
  }
}

// Given invalid questions; expects errors that say why, and nothing about another prompt.
TEST(KvTransfer, RefusesWrongQuestions) {
  Pair pair;
  const GenerationRequest request = greedy({1, 2, 3}, 5);
  pair.begin(1, request);
  pair.record_prefill(pair.prefill.step());
  const std::string hash = kv_prompt_hash(request.prompt, kModel);
  EXPECT_EQ(pair.exports.read("nobody", hash, 0).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(pair.exports.read(name_of(1), "another", 0).error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(pair.exports.read(name_of(1), hash, 3).error().message, HasSubstr("piece: must be at most 2 (got 3)"));
  EXPECT_TRUE(pair.exports.read(name_of(1), hash, 2).ok());
  pair.end_prefill(1);
  EXPECT_EQ(pair.exports.read(name_of(1), hash, 0).error().code, ErrorCode::kNotFound);
}

// Given answers with hundreds of damaged bytes, heads and tokens; expects an import to fail or go on, never to write outside of
// its blocks (for the address sanitizer), and never to accept an incomplete prompt.
TEST(KvTransfer, DamagedAnswersAreErrors) {
  std::int64_t errors = 0;
  for (std::uint64_t seed = 0; seed < effort(50U, 500U); ++seed) {
    Rng rng(seed, "damage");
    Pair pair;
    const GenerationRequest request = greedy(random_prompt(rng, 60), 5);
    pair.begin(1, request);
    pair.record_prefill(pair.prefill.step());
    pair.go_on(1, request);
    static_cast<void>(pair.decode.step());
    ASSERT_EQ(pair.questions.size(), 1U);
    auto answer = answer_from(pair.exports, pair.questions[0].question);
    ASSERT_TRUE(answer.ok());
    const auto asked = std::move(pair.questions[0]);
    pair.questions.clear();
    bool harmless = false;
    switch (rng.integer(0, 3)) {
      case 0:
        answer->bytes.resize(static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(answer->bytes.size()) - 1)));
        break;
      case 1: {
        // One of the head's numbers.
        const auto at = static_cast<std::size_t>(rng.integer(0, 11));
        const char before = answer->bytes[at];
        answer->bytes[at] = static_cast<char>(rng.integer(0, 255));
        harmless = answer->bytes[at] == before;
        break;
      }
      case 2: answer->next += rng.integer(1, 5); break;
      default: answer->first = answer->first->substr(0, static_cast<std::size_t>(rng.integer(0, 20))); break;
    }
    asked.answered(*answer);
    if (harmless) continue;
    ASSERT_EQ(pair.arrived.size(), 1U) << "seed " << seed;
    EXPECT_FALSE(pair.arrived[0].second.ok()) << "seed " << seed;
    ++errors;
  }
  EXPECT_GT(errors, effort(30, 450));
}

// A pool of threads, as in an HTTP library.
class Threads {
 public:
  explicit Threads(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this] { run(); });
  }
  ~Threads() { finish(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  void post(std::function<void()> work) {
    const std::scoped_lock lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_one();
  }

  // Runs everything posted, including what that posts, and then stops.
  void finish() {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& each : threads_) each.join();
    threads_.clear();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || !work_.empty(); });
      if (work_.empty()) return;
      const std::function<void()> next = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      next();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

class TwoLoops : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(KvTransfer, TwoLoops, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ByStreams" : "ByQuestions"; });

// Given two engines on their own threads, other threads between them, and caches too small for all requests together; expects
// fifty requests to have their own tokens in any order, although some prefills are cancelled midway. Also with streams between
// the engines. For the thread sanitizer: cache and sessions are shared.
TEST_P(TwoLoops, KeepTokensUnderThreads) {
  EngineOptions options;
  options.max_running = 4;
  options.max_waiting = 100;
  options.max_context_tokens = 100;
  options.max_batch_tokens = 24;
  const SteadyClock clock;
  metrics::Registry registry;
  const metrics::WorkerMetrics metrics(registry, "m");
  auto sender = std::make_unique<HashBackend>(kVocabulary, 14, options.max_batch_tokens);
  auto receiver = std::make_unique<HashBackend>(kVocabulary, 14, options.max_batch_tokens);
  const HashBackend reference(kVocabulary, 1, 1);
  KvExports exports(*sender, kModel, clock, metrics);
  EngineLoop* decode = nullptr;
  EngineLoop* prefill = nullptr;
  Threads between(3);
  const auto taken = [&](const std::string& session) { prefill->taken(session); };
  KvStreamClient client;
  auto server = KvStreamServer::open("127.0.0.1", [&] { return KvSource{{std::shared_ptr<void>(), &exports}, taken}; }).value();
  const auto serve = [&](const KvQuestion& question, const std::function<void(Result<KvAnswer>)>& answered) {
    between.post([&, question, answered] {
      if (question.stream) {
        KvAnswer answer;
        answer.stream_port = server->port();
        return answered(answer);
      }
      exports.when_ready(question.session, question.hash, question.piece, [&, question, answered] {
        between.post([&, question, answered] {
          const auto answer = answer_from(exports, question);
          answered(answer);
          if (answer.ok() && answer->first) taken(question.session);
        });
      });
    });
  };
  KvImports imports(
      *receiver, kModel, serve,
      [&](RequestId request, const KvQuestion&, const Result<Sampled>& first) { decode->received(request, first); }, clock,
      metrics, GetParam() ? client.stream() : KvImports::Stream());
  EngineLoop prefill_loop(options, std::move(sender), letter, clock, metrics, {&exports, nullptr});
  EngineLoop decode_loop(options, std::move(receiver), letter, clock, metrics, {nullptr, &imports});
  prefill = &prefill_loop;
  decode = &decode_loop;

  struct Run {
    GenerationRequest request;
    std::string text;
    std::promise<RequestId> prefill_is;
    std::shared_future<RequestId> prefill = prefill_is.get_future().share();
    std::promise<void> ended;
  };
  std::deque<Run> runs(50);
  const auto go_on = [&](RequestId id) {
    Run& run = runs[id];
    if (id % 5 == 0) prefill_loop.cancel(run.prefill.get(), "broken off");
    GenerationRequest rest = run.request;
    rest.kv = {name_of(id), "127.0.0.1:1"};
    const auto accepted = decode_loop.submit(std::move(rest), [&](const TokenEvent& event) {
      run.text += event.text;
      if (!event.finish) return;
      prefill_loop.cancel(run.prefill.get(), "the request is over");  // as its gateway does
      run.ended.set_value();
    });
    EXPECT_TRUE(accepted.ok());
  };
  Rng rng(3, "loops");
  for (RequestId id = 0; id < runs.size(); ++id) {
    Run& run = runs[id];
    run.request = greedy(random_prompt(rng, 80), rng.integer(1, 15));
    GenerationRequest part = run.request;
    part.kv.id = name_of(id);
    exports.open(part.kv.id, part.prompt, [&, id] { between.post([&, id] { go_on(id); }); });
    const auto taken = prefill_loop.submit(std::move(part), [](const TokenEvent&) {});
    ASSERT_TRUE(taken.ok());
    run.prefill_is.set_value(*taken);
  }
  for (Run& run : runs) {
    ASSERT_EQ(run.ended.get_future().wait_for(std::chrono::seconds(120)), std::future_status::ready);
    const auto room = options.max_context_tokens - static_cast<std::int64_t>(run.request.prompt.size());
    EXPECT_EQ(run.text, expected_text(reference, run.request.prompt, std::min(run.request.max_tokens, room)));
  }
  EXPECT_TRUE(prefill_loop.wait_idle(60));
  EXPECT_TRUE(decode_loop.wait_idle(60));
  between.finish();  // before the loops that it calls, like the streams
  server.reset();
}

// Given a first token as text; expects the same back, and errors for invalid texts.
TEST(KvTransfer, FirstTokenAsText) {
  const Sampled first{7, -0.125, {{7, -0.125}, {3, -2.5}}};
  const auto back = first_token_from(first_token_text(first), 10);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->id, 7);
  EXPECT_EQ(back->logprob, -0.125);
  ASSERT_EQ(back->top.size(), 2U);
  EXPECT_EQ(back->top[1].id, 3);
  EXPECT_EQ(back->top[1].logprob, -2.5);
  for (const char* text : {"", "7", "[]", "{}", R"({"id":10,"logprob":0,"top":[]})", R"({"id":-1,"logprob":0,"top":[]})",
                           R"({"id":1,"logprob":null,"top":[]})", R"({"id":1,"logprob":0,"top":[[1]]})",
                           R"({"id":1,"logprob":0,"top":[[10,0]]})", R"({"id":1e300,"logprob":0,"top":[]})"}) {
    EXPECT_FALSE(first_token_from(text, 10).ok()) << text;
  }
}

// Given names of sessions; expects a list of them back from its text, and errors for invalid names.
TEST(KvTransfer, SessionsAsText) {
  const std::vector<std::string> sessions = {name_of(1), name_of(2)};
  const auto back = sessions_from(sessions_text(sessions));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, sessions);
  for (const std::string& text : {std::string(), std::string("abc"), name_of(1) + ",", name_of(1) + "," + name_of(2) + "x",
                                  std::string("0123456789ABCDEF0123456789ABCDEF")}) {
    EXPECT_FALSE(sessions_from(text).ok()) << text;
  }
}

}  // namespace
}  // namespace windlass::worker
