// A model split over several workers: the tokens equal those of one worker whatever the schedule, and nothing leaks whatever
// fails.
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <set>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/effort.h"
#include "tests/unit/worker/chain_mesh.h"
#include "tests/unit/worker/fake_backend.h"
#include "tests/unit/worker/logit_summaries.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_loop.h"
#include "worker/parallel/kv_wire.h"

namespace windlass::worker {
namespace {

using testing::config_with_layers;
using testing::First;
using testing::greedy;
using ::testing::HasSubstr;
using testing::Mesh;
using testing::random_tokens;
using testing::session_of;
using testing::token_text;
using Fault = Mesh::Fault;

struct Arriving {
  GenerationRequest request;
  int step = 0;
  std::vector<std::string> hops;
};

std::vector<Arriving> random_requests(Rng& rng, const ModelConfig& config, int count) {
  std::vector<Arriving> requests;
  int step = 0;
  for (int i = 0; i < count; ++i) {
    step += static_cast<int>(rng.integer(0, 5));
    GenerationRequest request = greedy(random_tokens(rng, config, rng.integer(1, 70)), rng.integer(1, 25));
    request.sampling.logprobs = 1;
    requests.push_back({std::move(request), step, {}});
  }
  return requests;
}

void expect_same(const TokenEvent& found, const TokenEvent& expected, double tolerance) {
  EXPECT_EQ(found.request, expected.request);
  EXPECT_EQ(found.text, expected.text);
  EXPECT_EQ(found.finish, expected.finish) << found.error;
  ASSERT_EQ(found.logprobs.has_value(), expected.logprobs.has_value());
  if (!found.logprobs) return;
  EXPECT_NEAR(found.logprobs->token.logprob, expected.logprobs->token.logprob, tolerance);
}

EngineOptions small_options() {
  EngineOptions options;
  options.max_running = 4;
  options.max_waiting = 100;
  options.max_context_tokens = 100;
  options.max_batch_tokens = 24;
  options.prefix_caching =
      false;  // chains do not cache prefixes, so preempted sequences would take different steps in a whole model
  return options;
}

class Chains : public testing::BothWays {};
INSTANTIATE_TEST_SUITE_P(Steps, Chains, ::testing::Bool(), testing::name_of_way);

// Given random models, splits into two to four parts (some with overlapping blocks) and schedules with chunks and preemption;
// expects every step of the chain's engine to give exactly the tokens of an engine over the whole model, and its log
// probabilities as accurately as a summary's single-precision sum allows.
TEST_P(Chains, GivesWhatTheWholeModelGives) {
  std::int64_t preemptions = 0;
  for (std::uint64_t seed = 0; seed < effort(6U, 24U); ++seed) {
    Rng rng(seed, "cuts");
    Mesh mesh(config_with_layers(rng, rng.integer(2, 6)), seed);
    const std::int64_t layers = mesh.config.layers;
    const std::int64_t first = rng.integer(1, layers - 1);
    std::vector<std::string> hops;
    for (std::int64_t at = first; at < layers;) {
      const std::int64_t end = hops.size() == 2 ? layers : rng.integer(at + 1, layers);
      const std::int64_t from = rng.uniform() < 0.3 ? rng.integer(1, at) : at;  // it may have more than the chain needs from it
      hops.push_back(fmt::format("w:{}", hops.size() + 1));
      mesh.add(hops.back(), {from, end}, 100 * blocks_for(100));
      at = end;
    }
    const EngineOptions options = small_options();
    const std::int64_t kv_blocks = 10;
    First chain(mesh, first, options, kv_blocks);
    const auto whole = mesh.backend(mesh.config.all_blocks(), kv_blocks, options.max_batch_tokens, options.max_running);
    Engine engine(options, *whole, token_text, mesh.clock);

    const auto requests = random_requests(rng, mesh.config, 14);
    std::size_t next = 0;
    for (int step = 0; next < requests.size() || !engine.idle(); ++step) {
      for (; next < requests.size() && requests[next].step <= step; ++next) {
        ASSERT_TRUE(engine.submit(next, requests[next].request, 0).ok());
        const auto taken = chain.submit(next, requests[next].request, hops);
        ASSERT_TRUE(taken.ok()) << taken.error().message;
      }
      const auto expected = engine.step();
      const auto found = chain.step();
      ASSERT_EQ(found.size(), expected.size()) << "seed " << seed << ", step " << step;
      for (std::size_t i = 0; i < found.size(); ++i) expect_same(found[i], expected[i], 1e-6);
    }
    preemptions += chain.engine.preemptions();
    EXPECT_EQ(chain.sessions.sessions(), 0);
    EXPECT_EQ(chain.engine.load().kv_blocks_used, 0);
    mesh.expect_empty();
  }
  EXPECT_GT(preemptions, effort(2, 20));
}

// Given requests of one engine that take different routes, and later workers with smaller batches; expects the tokens of the
// whole model, apart from rounding differences between batches of other sizes.
TEST_P(Chains, DifferentWaysInOneBatch) {
  for (std::uint64_t seed = 0; seed < effort(3U, 8U); ++seed) {
    Rng rng(seed, "ways");
    Mesh mesh(config_with_layers(rng, 4), seed);
    mesh.add("b:1", {1, 3}, 200, 7, 2);
    mesh.add("c:1", {3, 4}, 200, 5, 1);
    mesh.add("d:1", {1, 4}, 200, 9, 3);
    const EngineOptions options = small_options();
    First chain(mesh, 1, options, 12);
    const auto whole = mesh.backend(mesh.config.all_blocks(), 12, options.max_batch_tokens, options.max_running);
    Engine engine(options, *whole, token_text, mesh.clock);
    auto requests = random_requests(rng, mesh.config, 10);
    for (Arriving& each : requests) {
      const double way = rng.uniform();
      each.hops = way < 0.4   ? std::vector<std::string>{"b:1", "c:1"}
                  : way < 0.7 ? std::vector<std::string>{"d:1"}
                              : std::vector<std::string>{"b:1", "d:1"};
    }
    std::size_t next = 0;
    for (int step = 0; next < requests.size() || !engine.idle(); ++step) {
      for (; next < requests.size() && requests[next].step <= step; ++next) {
        ASSERT_TRUE(engine.submit(next, requests[next].request, 0).ok());
        ASSERT_TRUE(chain.submit(next, requests[next].request, requests[next].hops).ok());
      }
      const auto expected = engine.step();
      const auto found = chain.step();
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) expect_same(found[i], expected[i], 1e-5);
    }
    mesh.expect_empty();
  }
}

// Given calls or answers that get lost; expects each request to have its own tokens or to end with an error that says so. Once
// the wire works again, expects nothing to remain except what the lease removes.
TEST_P(Chains, FailuresLeakNothing) {
  std::int64_t failed = 0;
  std::int64_t refused = 0;
  std::int64_t whole = 0;
  for (std::uint64_t seed = 0; seed < effort(10U, 40U); ++seed) {
    Rng rng(seed, "faults");
    Mesh mesh(config_with_layers(rng, 3), seed);
    mesh.add("b:1", {1, 2}, 24);
    mesh.add("c:1", {2, 3}, 18);
    std::mutex mutex;
    Rng faults(seed, "wire");
    double share = seed % 4 == 0 ? 0 : 0.03;
    mesh.faults = [&](const ChainCall& call) {
      const std::scoped_lock lock(mutex);
      // Only steps go silent: all other calls learn of a lost worker from their client.
      if (faults.uniform() >= share) return Fault::kNone;
      return call.verb == ChainVerb::kStep || faults.uniform() < 0.5 ? Fault::kNotSent : Fault::kNotHeard;
    };
    const EngineOptions options = small_options();
    First chain(mesh, 1, options, 12);
    const auto reference = mesh.backend(mesh.config.all_blocks(), 7, 100, 1);
    EngineOptions alone = options;
    alone.max_running = 1;
    alone.max_batch_tokens = 100;
    const auto requests = random_requests(rng, mesh.config, 16);
    std::map<RequestId, std::string> texts;
    std::map<RequestId, TokenEvent> ends;
    std::size_t next = 0;
    for (int step = 0; next < requests.size() || !chain.engine.idle(); ++step) {
      mesh.clock.now = mesh.clock.now + 0.05;
      chain.sessions.tick();
      mesh.tick();
      for (; next < requests.size() && requests[next].step <= step; ++next) {
        const auto taken = chain.submit(next, requests[next].request, {"b:1", "c:1"});
        if (!taken.ok()) ++refused;
      }
      for (const TokenEvent& event : chain.step()) {
        texts[event.request] += event.text;
        if (event.finish) ends[event.request] = event;
      }
    }
    for (const auto& [id, end] : ends) {
      Engine engine(alone, *reference, token_text, mesh.clock);
      ASSERT_TRUE(engine.submit(id, requests[id].request, 0).ok());
      std::string expected;
      while (!engine.idle()) {
        for (const TokenEvent& event : engine.step()) expected += event.text;
      }
      if (end.finish == FinishReason::kError) {
        ++failed;
        EXPECT_TRUE(end.chain_lost);
        EXPECT_THAT(end.error, HasSubstr("chain"));
        EXPECT_EQ(texts[id], expected.substr(0, texts[id].size())) << "seed " << seed;
      } else {
        ++whole;
        EXPECT_EQ(texts[id], expected) << "seed " << seed;
      }
    }
    EXPECT_EQ(chain.sessions.sessions(), 0);
    EXPECT_EQ(chain.engine.load().kv_blocks_used, 0);
    share = 0;
    mesh.clock.now = mesh.clock.now + kChainLeaseS + 1;
    mesh.tick();
    mesh.expect_empty();
  }
  EXPECT_GT(failed, effort(4, 30));
  EXPECT_GT(refused, effort(8, 60));
  EXPECT_GT(whole, effort(20, 150));
}

// Given sessions whose leases are renewed; expects them to last that long, and to end with the lease once renewal stops.
TEST_P(Chains, SessionsLastAsLongAsTheyAreRenewed) {
  Rng rng(1, "lease");
  Mesh mesh(config_with_layers(rng, 3), 1);
  ChainStage& middle = mesh.add("b:1", {1, 2}, 24);
  ChainStage& last = mesh.add("c:1", {2, 3}, 24);
  ChainSessions sessions(mesh.model, 1, 100, mesh.post(), mesh.clock, mesh.head.metrics);
  sessions.reserve({session_of(1), session_of(2)}, {"b:1", "c:1"}, 40,
                   [](const Result<void>& done) { EXPECT_TRUE(done.ok()); });
  EXPECT_EQ(middle.sessions(), 2);
  EXPECT_EQ(last.sessions(), 2);
  EXPECT_EQ(mesh.metrics_of("c:1").kv_blocks_used.value(), 6) << "two sessions of 40 positions";
  for (int i = 0; i < 100; ++i) {
    mesh.clock.now = mesh.clock.now + 0.5;
    sessions.tick();
    mesh.tick();
  }
  EXPECT_EQ(middle.sessions(), 2);
  EXPECT_EQ(last.sessions(), 2);
  sessions.release(session_of(2));
  EXPECT_EQ(middle.sessions(), 1);
  EXPECT_EQ(last.sessions(), 1);
  EXPECT_EQ(mesh.metrics_of("b:1").chain_sessions_expired.value(), 0);
  mesh.clock.now = mesh.clock.now + kChainLeaseS + 1;
  mesh.tick();
  EXPECT_EQ(mesh.metrics_of("b:1").chain_sessions_expired.value(), 1);
  mesh.expect_empty();
}

// Given invalid chains; expects the reservation to be refused with what was found and needed, and nothing to remain anywhere.
TEST_P(Chains, RefusesWhatDoesNotFit) {
  Rng rng(2, "refusals");
  Mesh mesh(config_with_layers(rng, 8), 2);
  mesh.add("mid:1", {4, 8}, 24);
  mesh.add("b:1", {2, 6}, 24);
  mesh.add("late:1", {7, 8}, 24);
  mesh.add("small:1", {2, 8}, 3);
  ChainStage& leaving = mesh.add("leaving:1", {2, 8}, 24);
  leaving.drain();
  ChainModel other = mesh.model;
  other.fingerprint ^= 1;
  struct Case {
    ChainModel model;
    std::int64_t block;
    std::vector<std::string> hops;
    std::int64_t tokens;
    ErrorCode code;
    std::string says;
  };
  const ChainModel& model = mesh.model;
  for (const Case& each : {
           Case{model,
                2,
                {"b:1", "late:1"},
                40,
                ErrorCode::kFailedPrecondition,
                "worker b:1: worker late:1: blocks: must be 6:8 or the first of them (got 7:8 here)"},
           Case{model, 3, {"mid:1"}, 40, ErrorCode::kFailedPrecondition, "must be 3:8 or the first of them (got 4:8 here)"},
           Case{model,
                2,
                {"b:1"},
                40,
                ErrorCode::kFailedPrecondition,
                "must also have 6:8 (got a chain that ends here with 2:6)"},
           Case{model,
                4,
                {"mid:1", "b:1"},
                40,
                ErrorCode::kFailedPrecondition,
                "the chain must end here, at the last block (got another worker, b:1)"},
           Case{model,
                6,
                {"b:1", "mid:1"},
                40,
                ErrorCode::kFailedPrecondition,
                "must be 6:8 or the first of them (got 2:6 here)"},
           Case{other, 2, {"b:1", "mid:1"}, 40, ErrorCode::kFailedPrecondition, "model: must have fingerprint"},
           Case{model, 2, {"b:1", "mid:1"}, 129, ErrorCode::kFailedPrecondition, "(got 129)"},
           Case{model, 2, {"small:1"}, 60, ErrorCode::kResourceExhausted, "3 blocks of the KV cache are free and 4 are needed"},
           Case{model, 2, {"leaving:1"}, 40, ErrorCode::kResourceExhausted, "draining"},
           Case{model, 2, {"b:1", "nobody:1"}, 40, ErrorCode::kUnavailable, "worker nobody:1: the connection broke"},
           Case{model, 2, {"nobody:1"}, 40, ErrorCode::kUnavailable, "worker nobody:1: the connection broke"},
       }) {
    ChainSessions sessions(each.model, each.block, 1, mesh.post(), mesh.clock, mesh.head.metrics);
    int calls = 0;
    sessions.reserve({session_of(1)}, each.hops, each.tokens, [&](const Result<void>& reserved) {
      ++calls;
      ASSERT_FALSE(reserved.ok()) << each.says;
      EXPECT_EQ(reserved.error().code, each.code) << reserved.error().message;
      EXPECT_THAT(reserved.error().message, HasSubstr(each.says));
    });
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(sessions.sessions(), 0);
    mesh.expect_empty();
  }
  // Overlaps are not gaps: a worker computes only the blocks that the chain has not passed.
  ChainSessions sessions(model, 3, 1, mesh.post(), mesh.clock, mesh.head.metrics);
  sessions.reserve({session_of(1)}, {"b:1", "mid:1"}, 40, [](const Result<void>& done) { EXPECT_TRUE(done.ok()); });
  sessions.release(session_of(1));
  mesh.expect_empty();
}

// Given as many requests as a first worker accepts, some still being reserved; expects more to be refused without a call to
// another worker, until one of them is refused or over.
TEST_P(Chains, ReservationsUnderWayAreCounted) {
  Rng rng(10, "under way");
  Mesh mesh(config_with_layers(rng, 2), 10);
  std::vector<ChainAnswered> open;
  const ChainPost post = [&](const ChainCall& call, ChainAnswered answered) {
    if (call.verb == ChainVerb::kReserve) open.push_back(std::move(answered));
  };
  ChainSessions sessions(mesh.model, 1, 3, post, mesh.clock, mesh.head.metrics);
  std::vector<std::optional<Result<void>>> outcomes(5);
  const auto reserve = [&](std::size_t i, const std::vector<std::string>& names) {
    sessions.reserve(names, {"b:1"}, 40, [&, i](const Result<void>& outcome) { outcomes[i] = outcome; });
  };
  reserve(0, {session_of(1)});
  reserve(1, {session_of(2), session_of(3)});
  reserve(2, {session_of(4)});
  EXPECT_EQ(open.size(), 2U);
  EXPECT_FALSE(outcomes[0] || outcomes[1]);
  ASSERT_TRUE(outcomes[2] && !outcomes[2]->ok());
  EXPECT_EQ(outcomes[2]->error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(outcomes[2]->error().message, HasSubstr("this worker is full: 3 requests and 1 more (at most 3)"));
  open[0]({});
  open[1]({503, "full", "no room"});
  EXPECT_TRUE(outcomes[0]->ok() && !outcomes[1]->ok());
  reserve(3, {session_of(5), session_of(6), session_of(7)});
  EXPECT_TRUE(outcomes[3] && !outcomes[3]->ok());
  sessions.release(session_of(1));
  reserve(4, {session_of(5), session_of(6), session_of(7)});
  EXPECT_EQ(open.size(), 3U);
  open[2]({});
  EXPECT_TRUE(outcomes[4]->ok());
}

// Given a chain of four workers; expects each call to have less time at each worker than at the one before, so that the
// neighbour of a lost worker can report it before the others give up.
TEST_P(Chains, EarlierWorkersWaitLonger) {
  Rng rng(11, "patience");
  Mesh mesh(config_with_layers(rng, 4), 11);
  const std::vector<std::string> hops = {"b:1", "c:1", "d:1"};
  for (std::size_t i = 0; i < hops.size(); ++i) {
    const auto first = static_cast<std::int64_t>(i) + 1;
    mesh.add(hops[i], {first, first + 1}, 24);
  }
  std::mutex mutex;
  std::map<std::pair<ChainVerb, std::string>, double> patience;
  mesh.faults = [&](const ChainCall& call) {
    const std::scoped_lock lock(mutex);
    patience[{call.verb, call.address}] = call.timeout_s;
    return Fault::kNone;
  };
  First chain(mesh, 1, small_options(), 20);
  ASSERT_TRUE(chain.submit(1, greedy({1, 2, 3}, 5), hops).ok());
  EXPECT_EQ(chain.step().size(), 1U);
  mesh.clock.now = kChainKeepS + 1;
  chain.sessions.tick();
  for (const ChainVerb verb : {ChainVerb::kReserve, ChainVerb::kStep, ChainVerb::kKeep}) {
    SCOPED_TRACE(to_string(verb));
    EXPECT_GT(patience.at({verb, "c:1"}), (patience.at({verb, "d:1"})) + 0.1);
    EXPECT_GT(patience.at({verb, "b:1"}), (patience.at({verb, "c:1"})) + 0.1);
    EXPECT_LT(patience.at({verb, "b:1"}), (patience.at({verb, "d:1"})) + 1);
  }
}

void silence_ends_a_step(Fault keep) {
  Rng rng(3, "silence");
  Mesh mesh(config_with_layers(rng, 2), 3);
  mesh.add("b:1", {1, 2}, 24);
  mesh.add("mute:1", {1, 2}, 24);
  std::atomic<bool> mute = false;
  mesh.faults = [&](const ChainCall& call) {
    if (!mute || call.address != "mute:1") return Fault::kNone;
    return call.verb == ChainVerb::kKeep ? keep : Fault::kSilent;
  };
  First chain(mesh, 1, small_options(), 20);
  ASSERT_TRUE(chain.submit(1, greedy({1, 2, 3}, 50), {"mute:1"}).ok());
  ASSERT_TRUE(chain.submit(2, greedy({4, 5}, 50), {"b:1"}).ok());
  EXPECT_EQ(chain.step().size(), 2U);
  mute = true;
  const double began_s = mesh.clock.now_s();
  std::promise<void> ended;
  std::thread time([&, end = ended.get_future()] {
    do {
      mesh.clock.now = mesh.clock.now + 0.1;
      chain.sessions.tick();
    } while (end.wait_for(std::chrono::milliseconds(2)) != std::future_status::ready);  // waits check ten times a second
  });
  const auto events = chain.step();
  const double took_s = mesh.clock.now_s() - began_s;
  ended.set_value();
  time.join();
  EXPECT_GT(took_s, ChainSessions::kSilentS / 2);
  EXPECT_LT(took_s, kChainStepS / 2);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].finish, FinishReason::kError);
  EXPECT_TRUE(events[0].chain_lost);
  EXPECT_FALSE(events[1].finish.has_value()) << events[1].error;
  EXPECT_EQ(chain.step().size(), 1U);
}

// Given a worker that goes silent in the middle of a step; expects the step to end after the limit of silence, before its
// timeout, and a chain of other workers to go on.
TEST_P(Chains, SilenceEndsAStep) { silence_ends_a_step(Fault::kSilent); }

// Given keep calls that fail immediately while the step hangs; expects the same.
TEST_P(Chains, RefusalsToKeepEndAStep) { silence_ends_a_step(Fault::kNotSent); }

// Given a worker in the middle or at the end of a chain that restarts at its address while a step hangs; expects the step to
// end as soon as the worker gets a keep call for the session, before silence or timeout would end it, and a chain of other
// workers to go on.
TEST_P(Chains, RestartedWorkerEndsAStep) {
  for (const std::string again : {"b:1", "c:1"}) {
    Rng rng(7, "restart");
    Mesh mesh(config_with_layers(rng, 3), 7);
    mesh.add("b:1", {1, 2}, 24);
    mesh.add("c:1", {2, 3}, 24);
    mesh.add("d:1", {1, 3}, 24);
    std::atomic<bool> hangs = false;
    mesh.faults = [&](const ChainCall& call) {
      return hangs && call.verb == ChainVerb::kStep && call.address == again ? Fault::kSilent : Fault::kNone;
    };
    First chain(mesh, 1, small_options(), 20);
    ASSERT_TRUE(chain.submit(1, greedy({1, 2, 3}, 50), {"b:1", "c:1"}).ok());
    ASSERT_TRUE(chain.submit(2, greedy({4, 5}, 50), {"d:1"}).ok());
    EXPECT_EQ(chain.step().size(), 2U);
    mesh.remove(again);
    mesh.add(again, again == "b:1" ? BlockRange{1, 2} : BlockRange{2, 3}, 24);
    hangs = true;
    std::promise<void> ended;
    std::thread time([&, end = ended.get_future()] {
      do {
        mesh.clock.now = mesh.clock.now + 0.005;
        chain.sessions.tick();
      } while (end.wait_for(std::chrono::milliseconds(2)) != std::future_status::ready);
    });
    const double began_s = mesh.clock.now_s();
    const auto events = chain.step();
    const double took_s = mesh.clock.now_s() - began_s;
    ended.set_value();
    time.join();
    EXPECT_LT(took_s, ChainSessions::kSilentS);
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[0].finish, FinishReason::kError);
    EXPECT_TRUE(events[0].chain_lost);
    EXPECT_THAT(events[0].error, HasSubstr("it has restarted"));
    EXPECT_FALSE(events[1].finish.has_value()) << events[1].error;
  }
}

// Given a worker that restarts at its address; expects only its earlier sessions to end, with the next step. One of the same
// chain that was reserved afterwards gets its own tokens from that step on.
TEST_P(Chains, LostSessionsEndAlone) {
  Rng rng(8, "restart");
  Mesh mesh(config_with_layers(rng, 3), 8);
  mesh.add("b:1", {1, 2}, 24);
  mesh.add("c:1", {2, 3}, 24);
  First chain(mesh, 1, small_options(), 20);
  ASSERT_TRUE(chain.submit(1, greedy({1, 2, 3}, 50), {"b:1", "c:1"}).ok());
  EXPECT_EQ(chain.step().size(), 1U);
  mesh.remove("c:1");
  mesh.add("c:1", {2, 3}, 24);
  const GenerationRequest request = greedy({4, 5}, 20);
  ASSERT_TRUE(chain.submit(2, request, {"b:1", "c:1"}).ok());
  const auto events = chain.step();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].finish, FinishReason::kError);
  EXPECT_TRUE(events[0].chain_lost);
  EXPECT_THAT(events[0].error, HasSubstr("it has restarted"));
  std::string text = events[1].text;
  while (!chain.engine.idle()) {
    for (const TokenEvent& event : chain.step()) text += event.text;
  }
  const auto whole = mesh.backend(mesh.config.all_blocks(), 20, 24, 4);
  Engine engine(small_options(), *whole, token_text, mesh.clock);
  ASSERT_TRUE(engine.submit(2, request, 0).ok());
  std::string expected;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) expected += event.text;
  }
  EXPECT_EQ(text, expected);
  mesh.expect_empty();
}

// Given calls for sessions, one unknown to all workers and one known only to the first of two; expects both to be named.
TEST_P(Chains, NamesSessionsThatAreGone) {
  Rng rng(9, "named");
  Mesh mesh(config_with_layers(rng, 3), 9);
  ChainStage& middle = mesh.add("b:1", {1, 2}, 24);
  ChainStage& last = mesh.add("c:1", {2, 3}, 24);
  ChainSessions sessions(mesh.model, 1, 100, mesh.post(), mesh.clock, mesh.head.metrics);
  sessions.reserve({session_of(1), session_of(2)}, {"b:1", "c:1"}, 40,
                   [](const Result<void>& done) { EXPECT_TRUE(done.ok()); });
  last.call(ChainVerb::kRelease, session_of(2), [](const ChainAnswer& answer) { EXPECT_TRUE(answer.ok()); });
  const std::vector<std::string> names = {session_of(1), session_of(2), session_of(3)};
  int calls = 0;
  middle.call(ChainVerb::kKeep, sessions_text(names), [&](const ChainAnswer& answer) {
    ++calls;
    EXPECT_THAT(sessions_over(answer), ::testing::UnorderedElementsAre(session_of(2), session_of(3)));
  });
  const auto at = [&](ChainStage& stage, const std::vector<std::string>& of) {
    std::vector<ChainChunk> chunks;
    for (const std::string& each : of) chunks.push_back({each, 0, 1, true});
    const std::size_t floats = of.size() * static_cast<std::size_t>(mesh.model.hidden_size);
    std::promise<ChainAnswer> answer;
    stage.call(ChainVerb::kStep, step_head(chunks) + std::string(floats * sizeof(float), '\0'),
               [&](ChainAnswer found) { answer.set_value(std::move(found)); });
    return answer.get_future().get();
  };
  EXPECT_THAT(sessions_over(at(middle, names)), ::testing::ElementsAre(session_of(3)));
  EXPECT_THAT(sessions_over(at(middle, {session_of(1), session_of(2)})), ::testing::ElementsAre(session_of(2)));
  EXPECT_TRUE(at(middle, {session_of(1)}).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(sessions_over({404, "", "no such page"}).empty());
}

// Given three first workers on their own loops and threads that share the later ones; expects sixty requests to get their own
// tokens, although every fifth is cancelled early and a later worker of some disappears. For the thread sanitizer.
TEST_P(Chains, LoopsShareLaterWorkers) {
  Rng rng(4, "loops");
  Mesh mesh(config_with_layers(rng, 3), 4);
  mesh.add("b:1", {1, 2}, 400);
  mesh.add("c:1", {2, 3}, 400);
  mesh.add("gone:1", {2, 3}, 400);
  EngineOptions options = small_options();
  EngineOptions alone = options;
  alone.max_running = 1;
  const auto reference = mesh.backend(mesh.config.all_blocks(), 7, alone.max_batch_tokens, 1);
  struct Loop {
    std::unique_ptr<ChainSessions> sessions;
    std::unique_ptr<EngineLoop> engine;
  };
  std::vector<Loop> loops(3);
  for (Loop& loop : loops) {
    loop.sessions = std::make_unique<ChainSessions>(mesh.model, 1, 100, mesh.post(), mesh.clock, mesh.head.metrics);
    auto backend = std::make_unique<ChainBackend>(mesh.backend({0, 1}, 12, options.max_batch_tokens, options.max_running),
                                                  mesh.model, *loop.sessions, mesh.clock, mesh.head.metrics);
    loop.engine = std::make_unique<EngineLoop>(options, std::move(backend), token_text, mesh.clock, mesh.head.metrics);
  }
  struct Run {
    GenerationRequest request;
    bool through_lost = false;
    std::string text;
    TokenEvent end;
    std::promise<void> ended;
  };
  std::deque<Run> runs(60);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Run& run = runs[i];
    Loop& loop = loops[i % loops.size()];
    run.request = greedy(random_tokens(rng, mesh.config, rng.integer(1, 60)), rng.integer(1, 30));
    run.through_lost = i % 4 == 3;
    if (i == 40) mesh.remove("gone:1");
    GenerationRequest request = run.request;
    request.chain = session_of(i);
    bool room = false;
    loop.sessions->reserve({request.chain}, {"b:1", run.through_lost ? "gone:1" : "c:1"}, 100,
                           [&](const Result<void>& reserved) { room = reserved.ok(); });
    if (!room) {
      EXPECT_TRUE(run.through_lost && i > 40);
      run.end.finish = FinishReason::kError;
      run.ended.set_value();
      continue;
    }
    const auto taken = loop.engine->submit(std::move(request), [&run, &loop, i](const TokenEvent& event) {
      run.text += event.text;
      if (!event.finish) return;
      loop.sessions->release(session_of(i));
      run.end = event;
      run.ended.set_value();
    });
    ASSERT_TRUE(taken.ok());
    if (i % 5 == 0) loop.engine->cancel(*taken, "left");
  }
  for (Run& run : runs) {
    ASSERT_EQ(run.ended.get_future().wait_for(std::chrono::seconds(120)), std::future_status::ready);
    Engine engine(alone, *reference, token_text, mesh.clock);
    ASSERT_TRUE(engine.submit(1, run.request, 0).ok());
    std::string expected;
    while (!engine.idle()) {
      for (const TokenEvent& event : engine.step()) expected += event.text;
    }
    if (run.end.finish == FinishReason::kError) {
      EXPECT_TRUE(run.through_lost) << run.end.error;
    } else if (run.end.finish == FinishReason::kLength) {
      EXPECT_EQ(run.text, expected);
    }
    EXPECT_EQ(run.text, expected.substr(0, run.text.size()));
  }
  for (Loop& loop : loops) {
    EXPECT_TRUE(loop.engine->wait_idle(60));
    EXPECT_EQ(loop.sessions->sessions(), 0);
  }
  mesh.expect_empty();
}

// Given models that differ in anything that blocks are computed with; expects different fingerprints.
TEST(ChainWire, FingerprintsTellModelsApart) {
  Rng rng(6, "models");
  const ModelConfig config = config_with_layers(rng, 3);
  const ChainModel model = chain_model(config, 1);
  EXPECT_EQ(model, chain_model(config, 1));
  EXPECT_NE(model, chain_model(config, 2));
  const auto differs = [&](const auto& change) {
    ModelConfig other = config;
    change(other);
    return chain_model(other, 1) != model;
  };
  EXPECT_TRUE(differs([](ModelConfig& c) { c.rope_theta += 1; }));
  EXPECT_TRUE(differs([](ModelConfig& c) { c.norm_eps *= 2; }));
  EXPECT_TRUE(differs([](ModelConfig& c) { c.norm_after = !c.norm_after; }));
  EXPECT_TRUE(differs([](ModelConfig& c) { c.embedding_size += 8; }));
  EXPECT_TRUE(differs([](ModelConfig& c) { c.rope_scaling.factor = 2; }));
  EXPECT_TRUE(differs([](ModelConfig& c) { c.windows[1] += 1; }));
  EXPECT_TRUE(differs([](ModelConfig& c) { c.qk_norm = !c.qk_norm; }));
  EXPECT_TRUE(differs([](ModelConfig& c) { c.norm = c.norm == Norm::kRms ? Norm::kLayer : Norm::kRms; }));
  EXPECT_TRUE(differs(
      [](ModelConfig& c) { c.positions = c.positions == Positions::kRotary ? Positions::kLearned : Positions::kRotary; }));
  EXPECT_TRUE(differs(
      [](ModelConfig& c) { c.activation = c.activation == Activation::kRelu ? Activation::kSwiGlu : Activation::kRelu; }));
  EXPECT_TRUE(differs([](ModelConfig& c) { c.experts += 1; }));
  EXPECT_TRUE(differs([](ModelConfig& c) { c.experts_per_token += 1; }));
  EXPECT_TRUE(differs([](ModelConfig& c) { c.expert_intermediate_size += 1; }));
  EXPECT_TRUE(differs([](ModelConfig& c) { c.normalise_expert_weights = !c.normalise_expert_weights; }));
  EXPECT_TRUE(differs([](ModelConfig& c) { c.mlp_bias = !c.mlp_bias; }));
  EXPECT_TRUE(differs([](ModelConfig& c) { c.hidden_size += 2; }));
  EXPECT_FALSE(differs([](ModelConfig& c) { c.max_context_tokens += 1; })) << "each worker has a limit of its own";
  ModelConfig mixture = config;
  mixture.experts = 2;
  mixture.dense_mlp = {false, true};
  const ChainModel some = chain_model(mixture, 1);
  mixture.dense_mlp = {true, false};
  EXPECT_NE(chain_model(mixture, 1), some);
}

// Given a reservation as text; expects the same reservation back, and for an invalid text an error that names the field.
TEST(ChainWire, ReservationsAsText) {
  const ChainReservation reservation{
      {0x0123456789ABCDEFULL, 8, 64, 300}, 4, 77, {session_of(1), session_of(2)}, {"a:1", "b:2"}};
  const auto back = reservation_from_json(to_json(reservation));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->model, reservation.model);
  EXPECT_EQ(back->block, 4);
  EXPECT_EQ(back->tokens, 77);
  EXPECT_EQ(back->sessions, reservation.sessions);
  EXPECT_EQ(back->next_hops, reservation.next_hops);
  const std::string good = to_json(reservation);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const auto parsed = reservation_from_json(text);
    return parsed.ok() ? "" : parsed.error().message;
  };
  EXPECT_THAT(with("\"block\":4", "\"block\":0"), HasSubstr("block: must be a whole number from 1 to 1048576 (got 0)"));
  EXPECT_THAT(with("\"block\":4", "\"blocks\":4"), HasSubstr("block: must be a whole number from 1"));
  EXPECT_THAT(with("\"tokens\":77", "\"tokens\":18446744073709551615"), HasSubstr("(got 18446744073709551615)"));
  EXPECT_THAT(with("\"tokens\":77", "\"tokens\":7.5"), HasSubstr("(got 7.5)"));
  EXPECT_THAT(with("0123456789abcdef", "0123456789abcdeg"), HasSubstr("model: must be 16 hexadecimal digits"));
  EXPECT_THAT(with("0123456789abcdef", "123456789abcdef"), HasSubstr("model: must be 16 hexadecimal digits"));
  EXPECT_THAT(with("\"a:1\"", "\"a\""), HasSubstr("nextHops: must be"));
  EXPECT_THAT(with(session_of(2), "x"), HasSubstr("sessions: must be"));
  EXPECT_THAT(with(session_of(2), session_of(1)), HasSubstr("sessions: must be different (got one twice)"));
  for (const char* text : {"", "[]", "7", "{}", "{\"model\":7}"}) EXPECT_FALSE(reservation_from_json(text).ok()) << text;
}

// Given a step as bytes; expects the same step back, and for thousands of damaged ones an error or a step within its bounds.
TEST(ChainWire, StepsAsBytes) {
  const std::vector<ChainChunk> chunks = {
      {session_of(1), 5, 2, true}, {session_of(2), 0, 3, false}, {session_of(3), 9, 1, true, {40, 1.25F}, true}};
  const std::string head = step_head(chunks);
  const std::string bytes = head + std::string(6 * 4 * sizeof(float), 'x');
  const auto step = step_from(bytes, 4);
  ASSERT_TRUE(step.ok()) << step.error().message;
  EXPECT_EQ(step->tokens, 6);
  EXPECT_EQ(step->head_bytes, head.size());
  ASSERT_EQ(step->chunks.size(), 3U);
  EXPECT_EQ(step->chunks[0].session, session_of(1));
  EXPECT_EQ(step->chunks[0].start, 5);
  EXPECT_TRUE(step->chunks[2].wants_logits);
  EXPECT_EQ(step->chunks[0].need.likeliest, 0);
  EXPECT_FALSE(step->chunks[0].keeps_row);
  EXPECT_EQ(step->chunks[2].need.likeliest, 40);
  EXPECT_EQ(step->chunks[2].need.steepness, 1.25F);
  EXPECT_TRUE(step->chunks[2].keeps_row);
  EXPECT_FALSE(step_from(bytes, 5).ok());
  EXPECT_FALSE(step_from(step_head(std::vector<ChainChunk>{chunks[0], chunks[0]}) + std::string(4 * 4 * 4, 'x'), 4).ok());
  Rng rng(5, "damage");
  for (int i = 0; i < effort(500, 5000); ++i) {
    std::string damaged = bytes;
    const auto most = static_cast<std::int64_t>(damaged.size()) - 1;
    if (rng.uniform() < 0.5) damaged.resize(static_cast<std::size_t>(rng.integer(0, most)));
    for (std::int64_t n = rng.integer(1, 4); n > 0 && !damaged.empty(); --n) {
      const auto at = rng.integer(
          0, std::min<std::int64_t>(static_cast<std::int64_t>(head.size()), static_cast<std::int64_t>(damaged.size())) - 1);
      damaged[static_cast<std::size_t>(at)] = static_cast<char>(rng.integer(0, 255));
    }
    const auto found = step_from(damaged, 4);
    if (!found.ok()) continue;
    EXPECT_EQ(found->head_bytes + static_cast<std::size_t>(found->tokens) * 4 * sizeof(float), damaged.size());
    for (const ChainChunk& chunk : found->chunks) {
      EXPECT_LE(chunk.need.likeliest, kMaxLikeliest);
      EXPECT_TRUE(std::isfinite(chunk.need.steepness));
    }
  }
}

// Given summaries of random rows, some with fewer finite logits than requested; expects the same back, from as many bytes as
// the answer reserves for them, and for thousands of damaged ones an error or a summary within its bounds.
TEST(ChainWire, SummariesAsBytes) {
  Rng rng(12, "summaries");
  for (int i = 0; i < effort(300, 3000); ++i) {
    const std::int64_t vocab = rng.integer(1, 200);
    const auto logits = testing::random_logits(rng, vocab);
    const RowNeed need{static_cast<std::int32_t>(rng.integer(1, kMaxLikeliest)), 0.7F};
    const LogitSummary summary = testing::summary_of(logits, need);
    std::string bytes(logit_bytes({{}, 0, 1, true, need}, vocab), 'x');
    write_summary(summary, need, bytes.data());
    const auto back = summary_from(bytes, need, vocab);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(std::memcmp(&*back, &summary, sizeof(summary)), 0);
    EXPECT_FALSE(summary_from(bytes + "x", need, vocab).ok());
    EXPECT_FALSE(summary_from(bytes.substr(1), need, vocab).ok());
    for (std::int64_t n = rng.integer(1, 4); n > 0; --n)
      bytes[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(bytes.size()) - 1))] =
          static_cast<char>(rng.integer(0, 255));
    const auto damaged = summary_from(bytes, need, vocab);
    if (!damaged.ok()) continue;
    ASSERT_LE(damaged->count, need.likeliest);
    for (int t = 0; t < damaged->count; ++t) {
      EXPECT_TRUE(damaged->ids[t] >= 0 && damaged->ids[t] < vocab && std::isfinite(damaged->logits[t]));
    }
    EXPECT_TRUE(std::isfinite(damaged->total) && std::isfinite(damaged->tempered));
  }
}

// Given lists of workers; expects their addresses, or an error for an invalid list.
TEST(ChainWire, Hops) {
  EXPECT_THAT(*hops_from("a:1,[::1]:2,c.d:3"), ::testing::ElementsAre("a:1", "[::1]:2", "c.d:3"));
  for (const char* text : {"", "a", "a:1,", ",a:1", "a:1 b:2", "a:1,b:0", "http://a:1"})
    EXPECT_FALSE(hops_from(text).ok()) << text;
}

}  // namespace
}  // namespace windlass::worker
