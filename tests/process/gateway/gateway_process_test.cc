// The real gateway: routing, refusals, limits, and a controller that restarts.
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/free_port.h"
#include "tests/process/gateway/harness.h"

namespace windlass::gateway::testing {
namespace {

using ::testing::HasSubstr;

const std::string kRequest = post("/v1/chat/completions", chat("tiny", "hi", false));

// A worker that answers every request with its own name.
FakeServer::Handler named(const std::string& name) {
  return [name](Connection& connection, const Message&) { connection.write(json_response(200, completion(name))); };
}

std::string text_of(const Message& answer) {
  return nlohmann::json::parse(answer.body)["choices"][0]["message"]["content"].get<std::string>();
}

// Given a dead worker (connection refused) and one that rejects as full or draining; expects the request to go to the next
// worker each time, one good answer for the client, and the refusals counted (the dead worker's possibly by a probe, if that is
// faster).
TEST(Gateway, ARefusedRequestGoesToAnotherWorker) {
  const int dead_port = free_port();
  std::atomic<int> full_calls = 0, draining_calls = 0;
  FakeServer full([&](Connection& connection, const Message&) {
    ++full_calls;
    connection.write(json_response(503, "{}", "X-Windlass-Rejected: full\r\n"));
  });
  FakeServer draining([&](Connection& connection, const Message&) {
    ++draining_calls;
    connection.write(json_response(503, "{}", "X-Windlass-Rejected: draining\r\n"));
  });
  FakeServer good(named("good"));
  FakeController controller;
  controller.set_table(
      table(1, {chain("dead", "127.0.0.1:" + std::to_string(dead_port), 9), chain("draining", draining.address(), 8),
                chain("full", full.address(), 7), chain("good", good.address(), 1)}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  const auto answer = ask(gateway.port(), kRequest);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status(), 200);
  EXPECT_EQ(answer->header("x-windlass-worker"), id_of("good"));
  EXPECT_EQ(text_of(*answer), "good");
  EXPECT_EQ(full_calls, 1);
  EXPECT_EQ(draining_calls, 1);
  // Between a probe's first failure and its second the worker is in neither state.
  EXPECT_TRUE(wait_until([&] {
    return gateway.metric("windlass_gateway_upstream_errors_total", {{"reason", "connect"}}) == 1 ||
           gateway.metric("windlass_gateway_silent_workers", {{"model", "tiny"}}) == 1;
  }));
  for (const char* reason : {"full", "draining"}) {
    EXPECT_EQ(gateway.metric("windlass_gateway_upstream_errors_total", {{"reason", reason}}), 1) << reason;
  }
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_finished_total", {{"code", "200"}}), 1);
}

// Given an engine of another project that is ending and answers 503 without a word of ours, and a second worker; expects the
// second worker's answer. Given only the first; expects the request to wait for a worker, and none of it to reach the client.
TEST(Gateway, AnEndingEnginesRefusalReachesNoClient) {
  std::atomic<int> refused = 0;
  FakeServer ending([&](Connection& connection, const Message&) {
    ++refused;
    connection.write(json_response(503, R"({"error":{"message":"The server is shutting down","code":503}})"));
  });
  FakeServer good(named("good"));
  FakeController controller;
  controller.set_table(table(1, {chain("ending", ending.address(), 9)}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto client = Connection::connect(gateway.port());
  ASSERT_TRUE(client && client->write(kRequest));
  ASSERT_TRUE(wait_until([&] { return refused >= 2; }));
  controller.set_table(table(2, {chain("ending", ending.address(), 9), chain("good", good.address(), 1)}));
  const auto answer = read_message(*client);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status(), 200);
  EXPECT_EQ(text_of(*answer), "good");
}

// Given an engine whose /health generates a token, as SGLang's does, that works on a request for longer than several probes;
// expects no probe to ask /health, and the engine to be reachable all the time.
TEST(Gateway, ProbesGenerateNoTokens) {
  std::atomic<int> generated = 0;
  FakeServer* self = nullptr;
  FakeServer engine([&](Connection& connection, const Message& request) {
    if (request.start_line.starts_with("GET ")) {
      ++generated;
    } else if (const int before = self->probes(); wait_until([&] { return self->probes() >= before + 3; })) {
      named("engine")(connection, request);
    }
  });
  self = &engine;
  FakeController controller;
  controller.set_table(table(1, {chain("engine", engine.address())}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  const auto answer = ask(gateway.port(), kRequest);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status(), 200);
  EXPECT_EQ(generated, 0);
}

// Given workers that fail without refusing. If a worker breaks off (no answer, half an answer, not HTTP), expects one try at
// another worker, then 502. Expects a worker's own answer to pass, unless it says that the worker is full.
TEST(Gateway, ABrokenAnswerIsTriedOnceMore) {
  std::atomic<int> calls = 0;
  const auto failing = [&](Connection& connection, const Message& request) {
    ++calls;
    if (request.body.find("nothing") != std::string::npos) connection.shut_down();
    if (request.body.find("half") != std::string::npos) {
      connection.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"a\":");
      connection.shut_down();
    }
    if (request.body.find("garbage") != std::string::npos) {
      connection.write("SMTP what\r\n\r\n");
      connection.shut_down();
    }
    if (request.body.find("bug") != std::string::npos) connection.write(json_response(500, "{\"own\":2}"));
    if (request.body.find("wrong") != std::string::npos) connection.write(json_response(400, "{\"own\":3}"));
  };
  FakeServer worker_a(failing), worker_b(failing);
  FakeController controller;
  controller.set_table(table(1, {chain("a", worker_a.address()), chain("b", worker_b.address())}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  int sent = 0;
  for (const auto& [what, status] : std::vector<std::pair<std::string, int>>{
           {"nothing", 502}, {"half", 502}, {"garbage", 502}, {"bug", 500}, {"wrong", 400}}) {
    const auto answer = ask(gateway.port(), post("/v1/chat/completions", chat("tiny", what, false)));
    ASSERT_TRUE(answer) << what;
    EXPECT_EQ(answer->status(), status) << what;
    sent += status == 502 ? 2 : 1;
    EXPECT_EQ(calls, sent) << what;
    if (status == 502) {
      EXPECT_TRUE(nlohmann::json::parse(answer->body)["error"]["message"].is_string()) << what;
    }
  }
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_judged_total"), 4);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_attained_total"), 0);
}

// Given a worker that closed a kept connection just after the gateway checked it; expects the request to be sent again on a new
// connection and answered once.
TEST(Gateway, AStaleConnectionIsReplaced) {
  std::atomic<int> answered = 0;
  FakeServer worker([&](Connection& connection, const Message& request) {
    // The second request on each connection gets no answer: to the gateway this looks like a connection closed while idle.
    if (request.header("x-request-id") == "second" && answered == 1) {
      ++answered;
      connection.shut_down();
      return;
    }
    ++answered;
    connection.write(json_response(200, completion("x")));
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  for (const char* id : {"first", "second"}) {
    const auto answer = ask(
        gateway.port(), post("/v1/chat/completions", chat("tiny", "hi", false), std::string("X-Request-Id: ") + id + "\r\n"));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status(), 200) << id;
  }
  EXPECT_EQ(answered, 3);
  EXPECT_EQ(gateway.metric("windlass_gateway_upstream_errors_total", {{"reason", "stale"}}), 1);
}

// Given a worker that dies while the gateway keeps a connection to it, with its listener closing last; expects the second try
// at that address not to count as a second worker, and the request to move to another.
TEST(Gateway, AWorkerThatDiesBehindAKeptConnection) {
  std::atomic<int> broken = 0;
  FakeServer dying([&](Connection& connection, const Message& request) {
    if (request.header("x-request-id") == "first") {
      connection.write(json_response(200, completion("x")));
    } else {
      ++broken;
      connection.shut_down();
    }
  });
  FakeServer other([](Connection& connection, const Message&) { connection.write(json_response(200, completion("y"))); });
  FakeController controller;
  controller.set_table(table(1, {chain("dying", dying.address(), 9), chain("other", other.address(), 0.1)}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  for (const char* id : {"first", "second"}) {
    const auto answer = ask(
        gateway.port(), post("/v1/chat/completions", chat("tiny", "hi", false), std::string("X-Request-Id: ") + id + "\r\n"));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status(), 200) << id;
  }
  EXPECT_EQ(broken, 2);
}

// Given a worker that hangs; expects 504 after the timeout, its connection closed, and a miss.
TEST(Gateway, AWorkerThatHangs) {
  Gate closed;
  FakeServer worker([&](Connection& connection, const Message&) {
    if (connection.peer_closes()) closed.open();
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()}, {"--request-timeout", "300ms"});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  const auto answer = ask(gateway.port(), kRequest);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status(), 504);
  EXPECT_TRUE(closed.wait());
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_judged_total"), 1);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_attained_total"), 0);
}

// Given one slot and room for one waiting request; expects 429 with Retry-After for the third request, and the other two served
// in order.
TEST(Gateway, QueueFull) {
  Gate go_on;
  FakeServer worker([&](Connection& connection, const Message&) {
    if (!go_on.wait()) return;
    connection.write(json_response(200, completion("x")));
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address(), 0.5, 1)}, 1));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto first = Connection::connect(gateway.port());
  ASSERT_TRUE(first && first->write(kRequest));
  ASSERT_TRUE(wait_until([&] { return gateway.metric("windlass_gateway_requests_in_flight", {{"chain", "w"}}) == 1; }));
  auto second = Connection::connect(gateway.port());
  ASSERT_TRUE(second && second->write(kRequest));
  ASSERT_TRUE(wait_until([&] { return gateway.metric("windlass_gateway_queue_length", {{"model", "tiny"}}) == 1; }));
  const auto third = ask(gateway.port(), kRequest);
  ASSERT_TRUE(third);
  EXPECT_EQ(third->status(), 429);
  EXPECT_GT(std::atoi(third->header("retry-after").c_str()), 0);
  EXPECT_EQ(nlohmann::json::parse(third->body)["error"]["type"], "rate_limit_error");
  go_on.open();
  EXPECT_EQ(read_message(*first)->status(), 200);
  EXPECT_EQ(read_message(*second)->status(), 200);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_started_total", {{"model", "tiny"}}), 3);
}

// Given one busy slot, a waiting request that can no longer meet timeToFirstToken, and a later one that still can; expects the
// later one to go first and the earlier one after it. With --queue-order arrival, expects the earlier one first.
TEST(Gateway, LateRequestsWaitBehind) {
  for (const bool by_arrival : {false, true}) {
    Gate go_on;
    std::mutex mutex;
    std::vector<std::string> served;
    FakeServer worker([&](Connection& connection, const Message& request) {
      const std::string prompt = nlohmann::json::parse(request.body)["messages"][0]["content"];
      {
        const std::lock_guard lock(mutex);
        served.push_back(prompt);
      }
      if (prompt == "first" && !go_on.wait()) return;
      connection.write(json_response(200, completion("x")));
    });
    FakeController controller;
    // A request keeps the objective that its model had when it arrived.
    const auto with_objective = [&](std::int64_t counter, double ttft_s) {
      auto next = table(counter, {chain("w", worker.address(), 0.5, 1)});
      next.models.front().ttft_slo_s = ttft_s;
      return next;
    };
    controller.set_table(with_objective(1, 1e-6));
    GatewayProcess gateway({controller.url()},
                           by_arrival ? std::vector<std::string>{"--queue-order", "arrival"} : std::vector<std::string>{});
    ASSERT_TRUE(gateway.obeys({1, 1}));
    const auto ask_for = [&](const std::string& prompt, int waiting) {
      auto client = Connection::connect(gateway.port());
      EXPECT_TRUE(client && client->write(post("/v1/chat/completions", chat("tiny", prompt, false))));
      EXPECT_TRUE(wait_until([&] {
        return gateway.metric("windlass_gateway_requests_in_flight", {{"chain", "w"}}) == 1 &&
               gateway.metric("windlass_gateway_queue_length", {{"model", "tiny"}}) == waiting;
      }));
      return client;
    };
    auto first = ask_for("first", 0);
    auto late = ask_for("late", 1);
    controller.set_table(with_objective(2, 3600));
    ASSERT_TRUE(gateway.obeys({1, 2}));
    auto in_time = ask_for("in time", 2);
    go_on.open();
    for (auto* client : {&first, &late, &in_time}) EXPECT_EQ(read_message(**client)->status(), 200);
    const std::lock_guard lock(mutex);
    const std::vector<std::string> expected = by_arrival ? std::vector<std::string>{"first", "late", "in time"}
                                                         : std::vector<std::string>{"first", "in time", "late"};
    EXPECT_EQ(served, expected);
  }
}

// Given a model without a worker; expects a request to wait and be served when the table adds a worker. Expects 503 for one
// that waits too long (the start timeout, not the queue's), with the rest of the expected start as Retry-After.
TEST(Gateway, ARequestWaitsForTheFirstWorker) {
  FakeServer worker(named("late"));
  FakeController controller;
  controller.set_table(table(1, {}));
  GatewayProcess gateway({controller.url()}, {"--queue-timeout", "1s", "--start-timeout", "3s"});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto client = Connection::connect(gateway.port());
  ASSERT_TRUE(client && client->write(kRequest));
  ASSERT_TRUE(wait_until([&] { return gateway.metric("windlass_gateway_queue_length", {{"model", "tiny"}}) == 1; }));
  auto streaming = Connection::connect(gateway.port());  // stays connected while it waits
  ASSERT_TRUE(streaming && streaming->write(post("/v1/chat/completions", chat("tiny", "hi", true))));
  ASSERT_TRUE(wait_until([&] { return gateway.metric("windlass_gateway_queue_length", {{"model", "tiny"}}) == 2; }));
  controller.set_table(table(2, {chain("w", worker.address())}));
  const auto answer = read_message(*client);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status(), 200);
  EXPECT_EQ(text_of(*answer), "late");
  EXPECT_EQ(read_message(*streaming)->status(), 200);
  auto starting = table(3, {});
  starting.models[0].expected_start_s = 90;
  controller.set_table(starting);
  ASSERT_TRUE(gateway.obeys({1, 3}));
  const auto timed_out = ask(gateway.port(), kRequest);
  ASSERT_TRUE(timed_out);
  EXPECT_EQ(timed_out->status(), 503);
  EXPECT_THAT(std::atoi(timed_out->header("retry-after").c_str()), ::testing::AllOf(::testing::Gt(30), ::testing::Le(87)));
  EXPECT_THAT(timed_out->body, HasSubstr("No worker is ready"));
}

// Given a controller that goes away; expects the last table to stay in use. When it returns, expects an older table to be
// ignored, and a higher term with a lower counter to be accepted. A table that does not parse changes nothing.
TEST(Gateway, TheControllerComesAndGoes) {
  FakeServer worker_a(named("a")), worker_b(named("b"));
  auto controller = std::make_unique<FakeController>();
  controller->set_table(table(7, {chain("a", worker_a.address())}));
  FakeController other;
  other.answer_with(503);
  GatewayProcess gateway({other.url(), controller->url()});
  ASSERT_TRUE(gateway.started());
  ASSERT_TRUE(gateway.obeys({1, 7}));
  ASSERT_TRUE(wait_until([&] { return controller->acknowledged() == dispatch::TableVersion{1, 7}; }));
  EXPECT_THAT(controller->targets().back(), HasSubstr("gateway=gw&admin=127.0.0.1:" + std::to_string(gateway.admin_port())));
  const int port = controller->port();
  controller->stop();
  EXPECT_EQ(text_of(*ask(gateway.port(), kRequest)), "a");

  controller = std::make_unique<FakeController>(port);
  controller->set_table(table(3, {chain("b", worker_b.address())}));
  ASSERT_TRUE(wait_until([&] { return controller->targets().size() >= 3; }));
  EXPECT_EQ(text_of(*ask(gateway.port(), kRequest)), "a");
  EXPECT_EQ(gateway.metric("windlass_gateway_routing_table_revision"), 7);

  controller->answer_with(200);  // with the body "{}", which is not a table
  const auto polls = controller->targets().size();
  ASSERT_TRUE(wait_until([&] { return controller->targets().size() > polls + 1; }));
  EXPECT_EQ(text_of(*ask(gateway.port(), kRequest)), "a");

  controller->answer_with(503);
  other.set_table(table(1, {chain("b", worker_b.address())}, 100, 2));
  other.answer_with(0);
  ASSERT_TRUE(gateway.obeys({2, 1}));
  EXPECT_EQ(text_of(*ask(gateway.port(), kRequest)), "b");
}

// Given no controller; expects the gateway to be alive but not ready, and an immediate 503 with Retry-After for requests.
TEST(Gateway, WithoutAController) {
  GatewayProcess gateway({"http://127.0.0.1:" + std::to_string(free_port())});
  ASSERT_TRUE(gateway.started());
  EXPECT_EQ(ask(gateway.admin_port(), get("/health"))->status(), 200);
  EXPECT_FALSE(gateway.ready());
  const auto answer = ask(gateway.port(), kRequest);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status(), 503);
  EXPECT_NE(answer->header("retry-after"), "");
}

// Given bad requests; expects the right status and an OpenAI error body with the rule and the value found.
TEST(Gateway, BadRequestsGetAnOpenAiError) {
  FakeServer worker(named("w"));
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  EXPECT_TRUE(gateway.ready());
  const std::string long_header = "X-Long: " + std::string(20000, 'x') + "\r\n";
  const std::vector<std::tuple<std::string, int, std::string>> cases = {
      {get("/nowhere"), 404, "got path /nowhere"},
      {get("/v1/chat/completions"), 405, "method must be POST"},
      {post("/v1/models", "{}"), 405, "method must be GET"},
      {get("/v1/models/huge"), 404, "The model 'huge' does not exist"},
      {post("/v1/chat/completions", chat("huge", "hi", true)), 404, "The model 'huge' does not exist"},
      {post("/v1/chat/completions", "{"), 400, "must be JSON"},
      {post("/v1/completions", "{\"model\":7}"), 400, "'model': must be the name of a model (got a number)"},
      {post("/v1/chat/completions", "{}", long_header), 431, "must be at most 16384"},
      {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", 413, "must be at most 16777216"},
      {"NONSENSE\r\n\r\n", 400, "not HTTP/1.1"},
      {"GET / HTTP/1.1\r\nbad header\r\n\r\n", 400, "not HTTP/1.1"},
  };
  for (const auto& [request, status, message] : cases) {
    const auto answer = ask(gateway.port(), request);
    ASSERT_TRUE(answer) << request.substr(0, 60);
    EXPECT_EQ(answer->status(), status) << request.substr(0, 60);
    const auto body = nlohmann::json::parse(answer->body, nullptr, false);
    ASSERT_TRUE(body.is_object()) << answer->body;
    EXPECT_THAT(body["error"]["message"].get<std::string>(), HasSubstr(message));
    EXPECT_TRUE(body["error"].contains("type") && body["error"].contains("param") && body["error"].contains("code"));
  }
  // None of these count as demand, and text from clients is no metric label.
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_started_total"), 0);
  EXPECT_TRUE(gateway.metrics().find("windlass_gateway_requests_finished_total", {{"model", "huge"}}).empty());
  const auto models = ask(gateway.port(), get("/v1/models"));
  EXPECT_EQ(nlohmann::json::parse(models->body)["data"][0]["id"], "tiny");
  // A chunked body that becomes too long is cut off as well.
  auto endless = Connection::connect(gateway.port());
  ASSERT_TRUE(endless && endless->write("POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"));
  const std::string megabyte = chunk(std::string(1U << 20U, 'x'));
  for (int i = 0; i < 17 && endless->write(megabyte); ++i) continue;
  EXPECT_EQ(read_message(*endless)->status(), 413);
}

// Given a worker that sends a second, unrequested answer after the first; expects the next request to get its own answer.
TEST(Gateway, AnswersNobodyAskedForReachNobody) {
  std::atomic<int> calls = 0;
  FakeServer worker([&](Connection& connection, const Message&) {
    if (++calls == 1) {
      connection.write(json_response(200, completion("first")) + json_response(200, completion("left over")));
    } else {
      connection.write(json_response(200, completion("second")));
    }
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  EXPECT_THAT(ask(gateway.port(), post("/v1/chat/completions", chat("tiny", "hi", false)))->body, HasSubstr("first"));
  EXPECT_THAT(ask(gateway.port(), post("/v1/chat/completions", chat("tiny", "hi", false)))->body, HasSubstr("second"));
}

// Given memory for only one of two large bodies, and the first at a worker; expects 503 with Retry-After for the second before
// it was read completely, an answer for a small one, and an answer for a large one when the first has ended.
TEST(Gateway, BodiesAreBounded) {
  Gate go_on;
  FakeServer worker([&](Connection& connection, const Message& request) {
    if (request.body.size() > (2U << 20U) && !go_on.wait()) return;
    connection.write(json_response(200, completion("ok")));
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()}, {"--max-body-memory", "20MiB"});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  const std::string large = post("/v1/chat/completions", chat("tiny", std::string(12U << 20U, 'x'), false));
  auto first = Connection::connect(gateway.port());
  ASSERT_TRUE(first && first->write(large));
  ASSERT_TRUE(wait_until([&] { return gateway.metric("windlass_gateway_requests_in_flight") == 1; }));
  auto second = Connection::connect(gateway.port());  // stays open: a refused request holds no memory even if its client stays
  ASSERT_TRUE(second && second->write(large));
  const auto refusal = read_message(*second);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->status(), 503);
  EXPECT_EQ(refusal->header("retry-after"), "1");
  EXPECT_THAT(refusal->body, HasSubstr("of at most 20971520"));
  EXPECT_EQ(ask(gateway.port(), post("/v1/chat/completions", chat("tiny", std::string(1U << 20U, 'x'), false)))->status(), 200);
  go_on.open();
  EXPECT_EQ(read_message(*first)->status(), 200);
  EXPECT_EQ(ask(gateway.port(), large)->status(), 200);
}

// Given an answer sent as a whole that exceeds the memory for bodies and answers; expects an error that says so, and the memory
// free again.
TEST(Gateway, AnswersAreBounded) {
  FakeServer worker([](Connection& connection, const Message& request) {
    const bool large = request.body.find("large") != std::string::npos;
    connection.write(json_response(200, completion(std::string(large ? 24U << 20U : 12U << 20U, 'x'))));
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()}, {"--max-body-memory", "20MiB"});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  for (int i = 0; i < 2; ++i) {
    const auto refused = ask(gateway.port(), post("/v1/chat/completions", chat("tiny", "large", false)));
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->status(), 502);
    EXPECT_THAT(refused->body, HasSubstr("--max-body-memory"));
    EXPECT_EQ(ask(gateway.port(), post("/v1/chat/completions", chat("tiny", "hi", false)))->status(), 200);
  }
}

// Given pipelined requests on one connection, split at arbitrary bytes; expects answers in order.
TEST(Gateway, Pipelining) {
  FakeServer worker([](Connection& connection, const Message& request) {
    const auto body = nlohmann::json::parse(request.body);
    connection.write(json_response(200, completion(body["messages"][0]["content"].get<std::string>())));
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto client = Connection::connect(gateway.port());
  ASSERT_TRUE(client);
  std::string all;
  for (int i = 0; i < 20; ++i)
    all += post("/v1/chat/completions", chat("tiny", "p" + std::to_string(i), false)) + get("/v1/models");
  for (std::size_t at = 0; at < all.size(); at += 97) ASSERT_TRUE(client->write(std::string_view(all).substr(at, 97)));
  for (int i = 0; i < 20; ++i) {
    const auto answer = read_message(*client);
    ASSERT_TRUE(answer);
    EXPECT_EQ(text_of(*answer), "p" + std::to_string(i));
    const auto models = read_message(*client);
    ASSERT_TRUE(models);
    EXPECT_THAT(models->body, HasSubstr("\"list\""));
  }
}

// Given Expect: 100-continue, HTTP/1.0 and a request that closes its connection; expects each served as its protocol requires.
TEST(Gateway, ProtocolVariants) {
  FakeServer worker([](Connection& connection, const Message& request) {
    if (request.body.find("true") == std::string::npos) {
      connection.write(json_response(200, completion("x")));
      return;
    }
    connection.write(stream_head() + chunk(token_event("one")) + chunk(kDoneEvent) + kLastChunk);
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  const std::string body = chat("tiny", "hi", false);
  auto client = Connection::connect(gateway.port());
  ASSERT_TRUE(client &&
              client->write("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: " +
                            std::to_string(body.size()) + "\r\n\r\n"));
  EXPECT_EQ(read_head(*client)->status(), 100);
  ASSERT_TRUE(client->write(body));
  EXPECT_EQ(read_message(*client)->status(), 200);

  const std::string streamed = chat("tiny", "hi", true);
  auto old = Connection::connect(gateway.port());
  ASSERT_TRUE(old && old->write("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(streamed.size()) +
                                "\r\n\r\n" + streamed));
  const auto head = read_head(*old);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->header("transfer-encoding"), "");
  const std::string wanted = token_event("one") + kDoneEvent;
  EXPECT_EQ(old->read_exact(wanted.size()), wanted);
  EXPECT_TRUE(old->peer_closes());

  auto closing = Connection::connect(gateway.port());
  ASSERT_TRUE(closing && closing->write(post("/v1/chat/completions", body, "Connection: close\r\n")));
  EXPECT_EQ(read_message(*closing)->status(), 200);
  EXPECT_TRUE(closing->peer_closes());
}

// Given bad flags and a port that is taken; expects one line on stderr, and exit codes 2 and 1. --help and --version work.
TEST(Gateway, CommandLine) {
  const auto bad = run_program({"--controller", "ftp://x"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("--controller: must be http://HOST:PORT"));
  EXPECT_EQ(std::count(bad.err.begin(), bad.err.end(), '\n'), 1);
  const auto help = run_program({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--admin-listen"));
  EXPECT_EQ(run_program({"--version"}).exit_code, 0);
  FakeServer taken(named("x"));
  const auto busy =
      run_program({"--controller", "http://127.0.0.1:1", "--listen", taken.address(), "--admin-listen", "127.0.0.1:0"});
  EXPECT_EQ(busy.exit_code, 1);
  EXPECT_THAT(busy.err, HasSubstr("cannot listen on " + taken.address()));
}

}  // namespace
}  // namespace windlass::gateway::testing
