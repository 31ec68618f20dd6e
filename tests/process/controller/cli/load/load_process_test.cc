// The load generator against correct and faulty servers, and through the real gateway.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>

#include "controller/cli/load/generator/load_generator.h"
#include "metrics/counter_tracker.h"
#include "metrics/latency_bins.h"
#include "tests/process/gateway/harness.h"
#include "tests/unit/controller/cli/run.h"

namespace windlass::gateway::testing {
namespace {

using ::testing::HasSubstr;

load::LoadOptions options_for(int port, double rate_per_s, double seconds) {
  load::LoadOptions options;
  options.url = "http://127.0.0.1:" + std::to_string(port);
  options.model = "tiny";
  options.phases = {{rate_per_s, seconds}};
  options.arrivals = load::Arrivals::kConstant;
  options.max_tokens = 3;
  options.ttft_slo_s = 5;
  options.tpot_slo_s = 1;
  return options;
}

const std::string kGoodStream = stream_head() + chunk(token_event("a")) + chunk(token_event("b")) + chunk(usage_event(9, 2)) +
                                chunk(kDoneEvent) + kLastChunk;

// Given a load through the real gateway to two workers; expects all requests to complete, each with its own prompt, and tokens,
// times and workers to match those of the workers.
TEST(Load, ThroughTheGateway) {
  std::mutex mutex;
  std::set<std::string> prompts;
  const auto work = [&](Connection& connection, const Message& request) {
    const auto body = nlohmann::json::parse(request.body);
    {
      const std::lock_guard lock(mutex);
      prompts.insert(body["messages"][0]["content"].get<std::string>());
    }
    connection.write(kGoodStream);
  };
  FakeServer worker_a(work), worker_b(work);
  FakeController controller;
  controller.set_table(table(1, {chain("a", worker_a.address()), chain("b", worker_b.address())}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  int reports = 0;
  load::LoadProgress last;
  const auto result = load::run_load(options_for(gateway.port(), 100, 1), [&](const load::LoadProgress& progress) {
    ++reports;
    last = progress;
  });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->sent, 100U);
  EXPECT_EQ(result->completed, 100U) << to_text(*result);
  EXPECT_EQ(result->lost + result->rejected + result->duplicated, 0U);
  EXPECT_EQ(prompts.size(), 100U);
  EXPECT_EQ(result->tokens_mean, 2);
  EXPECT_EQ(result->prompt_tokens_mean, 9);
  ASSERT_TRUE(result->ttft_s && result->tpot_s);
  EXPECT_LT(result->ttft_s->p95, result->latency_s->max);
  EXPECT_EQ(result->attainment, 1.0);
  EXPECT_EQ(result->completed_by_chain.at(id_of("a")) +
                (result->completed_by_chain.contains(id_of("b")) ? result->completed_by_chain.at(id_of("b")) : 0),
            100U);
  EXPECT_GE(reports, 2);
  EXPECT_EQ(last.completed, 100U);
  EXPECT_EQ(last.in_flight, 0U);
}

// Given an engine with 1.7 ms between tokens, and one slower request in five; expects P50 and P95 of TTFT and TPOT on the
// gateway's latencies page to match the client's measurements of the same requests within 5 %. On a busy machine the way to the
// gateway takes time that only the client sees: then they must lie between the client's and the engine's.
TEST(Load, GatewayPercentilesMatchTheClients) {
  using Clock = std::chrono::steady_clock;
  constexpr int kTokens = 400, kEvents = 41;  // as the usage reports; an event holds several tokens
  std::mutex mutex;
  std::vector<double> engine_ttft, engine_tpot;
  FakeServer worker([&](Connection& connection, const Message&) {
    const auto began = Clock::now();
    const auto seconds_since = [](Clock::time_point then) {
      return std::chrono::duration<double>(Clock::now() - then).count();
    };
    Gate nobody_opens;
    const auto wait_until_s = [&](Clock::time_point then, double seconds) {
      static_cast<void>(nobody_opens.wait(seconds - seconds_since(then)));
    };
    std::size_t turn = 0;
    {
      const std::lock_guard lock(mutex);
      turn = engine_ttft.size();
      engine_ttft.push_back(0);
    }
    const bool slow = turn % 5 == 0;
    wait_until_s(began, slow ? 2 : 1);
    const double ttft_s = seconds_since(began);
    const auto first = Clock::now();
    connection.write(stream_head() + chunk(token_event("a")));
    for (int i = 1; i < kEvents; ++i) {
      wait_until_s(first, i * (slow ? 0.005 : 0.0017) * (kTokens - 1) / (kEvents - 1));
      connection.write(chunk(token_event("b")));
    }
    const std::lock_guard lock(mutex);
    engine_ttft[turn] = ttft_s;
    engine_tpot.push_back(seconds_since(first) / (kTokens - 1));
    connection.write(chunk(usage_event(9, kTokens)) + chunk(kDoneEvent) + kLastChunk);
  });
  FakeController controller;
  controller.set_table(table(1, {chain("a", worker.address(), 1, 100)}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  metrics::LatencyTracker ttft, tpot;
  const auto look = [&](double now_s) {
    const metrics::Exposition page = gateway.metrics();
    const auto start_s = page.sum("process_start_time_seconds");
    ttft.take(now_s, metrics::read_latencies(page, metrics::kGatewayTtft, {{"model", "tiny"}}), start_s);
    tpot.take(now_s, metrics::read_latencies(page, metrics::kGatewayTpot, {{"model", "tiny"}}), start_s);
  };
  look(1);
  const auto result = load::run_load(options_for(gateway.port(), 20, 2));
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->completed, 40U) << to_text(*result);
  ASSERT_TRUE(result->ttft_s && result->tpot_s);
  // A request is counted a moment after its last byte was sent.
  ASSERT_TRUE(wait_until([&] { return gateway.metric(metrics::kGatewayTpot.bins) == 40; }));
  look(2);
  const auto expect_same = [](const metrics::LatencyTracker& tracker, const load::Percentiles& client,
                              const load::Percentiles& engine, const char* what) {
    const auto window = tracker.increase(2, 60);
    ASSERT_TRUE(window);
    ASSERT_EQ(window->total(), 40);
    for (const auto& [percent, client_s, engine_s] :
         {std::tuple{50.0, client.p50, engine.p50}, {95.0, client.p95, engine.p95}}) {
      SCOPED_TRACE(fmt::format("{} P{}: client {}, engine {}", what, percent, client_s, engine_s));
      const auto found = window->percentile(percent);
      ASSERT_TRUE(found);
      EXPECT_EQ(found->bound, Bound::kNone);
      EXPECT_GE(found->seconds, 0.95 * std::min(client_s, engine_s));
      EXPECT_LE(found->seconds, 1.05 * std::max(client_s, engine_s));
    }
  };
  const std::lock_guard lock(mutex);
  ASSERT_EQ(engine_tpot.size(), 40U);
  expect_same(ttft, *result->ttft_s, *load::percentiles(engine_ttft), "TTFT");
  expect_same(tpot, *result->tpot_s, *load::percentiles(engine_tpot), "TPOT");
}

// Given a server with one fault after the other: [DONE] twice, a second response after the first, another request's id, a
// stream cut off, one without [DONE], one that ends with an error, an error status; expects each to be reported as what it is.
TEST(Load, ReportsLostAndDuplicateAnswers) {
  std::atomic<int> turn = 0;
  FakeServer server([&](Connection& connection, const Message&) {
    switch (turn++) {
      case 0:
        connection.write(stream_head() + chunk(token_event("a")) + chunk(kDoneEvent) + chunk(kDoneEvent) + kLastChunk);
        break;
      case 1: connection.write(kGoodStream + kGoodStream); break;
      case 2:
        connection.write("HTTP/1.1 200 OK\r\nX-Request-Id: another\r\n" + kGoodStream.substr(kGoodStream.find("\r\n") + 2));
        break;
      case 3: connection.write(stream_head() + chunk(token_event("a"))); break;
      case 4: connection.write(stream_head() + chunk(token_event("a")) + kLastChunk); break;
      case 5: connection.write(stream_head() + chunk("data: {\"error\":{\"message\":\"x\"}}\n\n") + kLastChunk); break;
      case 6: connection.write(json_response(400, "{\"error\":{\"message\":\"no such thing\"}}")); break;
      default: connection.write(kGoodStream); break;
    }
    connection.shut_down();
  });
  // One at a time, so that faults and requests match: each load sends a single request.
  std::vector<load::RequestResult> results;
  for (int i = 0; i < 8; ++i) {
    const auto result = load::run_load(options_for(server.port(), 1, 1));
    ASSERT_TRUE(result.ok());
    ASSERT_EQ(result->requests.size(), 1U);
    results.push_back(result->requests.front());
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(results[i].duplicated) << i;
  for (int i = 3; i < 8; ++i) EXPECT_FALSE(results[i].duplicated) << i;
  for (int i = 3; i < 6; ++i) EXPECT_EQ(results[i].outcome, load::Outcome::kLost) << i;
  EXPECT_THAT(results[3].problem, HasSubstr("broke off"));
  EXPECT_THAT(results[4].problem, HasSubstr("without [DONE]"));
  EXPECT_THAT(results[5].problem, HasSubstr("ended with an error"));
  EXPECT_EQ(results[6].outcome, load::Outcome::kRejected);
  EXPECT_EQ(results[6].problem, "status 400: no such thing");
  EXPECT_EQ(results[7].outcome, load::Outcome::kCompleted);
}

// Given a server that first responds with 429 and Retry-After: 1; expects --retry to send the request again after that time and
// to complete it, with TTFT counted from the first try. Without --retry it is rejected.
TEST(Load, RetryAfter) {
  std::atomic<int> calls = 0;
  FakeServer server([&](Connection& connection, const Message&) {
    connection.write(calls++ % 2 == 0 ? json_response(429, "{}", "Retry-After: 1\r\n") : kGoodStream);
    connection.shut_down();
  });
  auto options = options_for(server.port(), 1, 1);
  options.retry = true;
  const auto retried = load::run_load(options);
  ASSERT_TRUE(retried.ok());
  EXPECT_EQ(retried->completed, 1U);
  EXPECT_EQ(retried->retried, 1U);
  EXPECT_GE(retried->ttft_s->max, 1);
  options.retry = false;
  const auto rejected = load::run_load(options);
  ASSERT_TRUE(rejected.ok());
  EXPECT_EQ(rejected->rejected_by_status.at(429), 1U);
}

// Given a server that never responds; expects a stop request to end the load soon, and requests in flight to count as lost.
TEST(Load, Stop) {
  FakeServer server([](Connection& connection, const Message&) { connection.peer_closes(); });
  std::stop_source stop;
  const auto result = load::run_load(
      options_for(server.port(), 10, 600),
      [&](const load::LoadProgress& progress) {
        if (progress.sent > 3) stop.request_stop();
      },
      stop.get_token());
  ASSERT_TRUE(result.ok());
  EXPECT_GT(result->sent, 3U);
  EXPECT_LT(result->sent, 6000U);
  EXPECT_EQ(result->lost, result->sent);
  EXPECT_EQ(result->problems.begin()->first, "not answered before the load was stopped");
}

// Given an endpoint that knows only OpenAI's oldest options, reports no usage, thinks before it answers, and has neither
// metrics nor any other feature of our worker; expects `windlass profile` to measure it, to count words and events, and to
// write a profile.
TEST(Load, ProfilesAMinimalEndpoint) {
  std::mutex mutex;
  std::vector<nlohmann::json> answered;
  FakeServer endpoint([&](Connection& connection, const Message& request) {
    if (request.target() == "/v1/models") {
      connection.write(json_response(200, R"({"data":[{"id":"plain"}]})"));
      return;
    }
    if (request.target() != "/v1/chat/completions") {
      connection.write(json_response(404, "{}"));
      return;
    }
    const auto body = nlohmann::json::parse(request.body);
    for (const auto& [field, value] : body.items()) {
      if (field == "model" || field == "messages" || field == "max_tokens" || field == "stream") continue;
      connection.write(json_response(400, R"({"error":{"message":"unknown field )" + field + "\"}}"));
      return;
    }
    {
      const std::lock_guard lock(mutex);
      answered.push_back(body);
    }
    connection.write(stream_head());
    for (int i = 0; i < body["max_tokens"]; ++i) {
      ::poll(nullptr, 0, 1);  // an engine's time between tokens
      connection.write(chunk(i < 3 ? R"(data: {"choices":[{"delta":{"reasoning_content":"hm"}}]})"
                                     "\n\n"
                                   : token_event("a")));
    }
    connection.write(chunk(kDoneEvent) + kLastChunk);
    connection.close();  // as the client asks: it checks whether more data follows
  });
  endpoint.handle_probes();  // a client asks the same
  const auto outcome =
      cli::run({"profile", "--worker", "http://" + endpoint.address(), "--accelerator", "theirs", "--prompts", "4,8,16,32",
                "--batches", "1", "--repeats", "2", "--max-tokens", "8", "--max-error", "100000%"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("kind: PerformanceProfile"));
  EXPECT_THAT(outcome.out, HasSubstr("name: plain"));
  EXPECT_THAT(outcome.err, HasSubstr("the endpoint reports no usage; prompts are counted in words, answers in events"));
  EXPECT_THAT(outcome.err, HasSubstr("the worker does not report the size of its KV cache"));
  EXPECT_GE(answered.size(), 2U + 4 * 2);
}

}  // namespace
}  // namespace windlass::gateway::testing
