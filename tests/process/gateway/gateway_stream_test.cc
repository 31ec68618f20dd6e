// Streams through the real gateway: token by token, broken, abandoned, slow.
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/gateway/harness.h"

namespace windlass::gateway::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Given a worker that makes its second token only after the client has read the first (it waits for the test); expects the
// first token to arrive, the answer to complete, the unrequested usage chunk to be removed, and the tokens to be counted.
TEST(GatewayStream, TheFirstTokenPassesBeforeTheLastIsMade) {
  Gate first_read;
  std::string seen_body;
  FakeServer worker([&](Connection& connection, const Message& request) {
    seen_body = request.body;
    connection.write(stream_head() + chunk(token_event("one")));
    if (!first_read.wait()) return;
    connection.write(chunk(token_event("two")) + chunk(usage_event(7, 2) + kDoneEvent) + kLastChunk);
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.started());
  ASSERT_TRUE(gateway.obeys({1, 1}));

  auto client = Connection::connect(gateway.port());
  ASSERT_TRUE(client && client->write(post("/v1/chat/completions", chat("tiny", "hi", true), "X-Request-Id: r-1\r\n")));
  const auto head = read_head(*client);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->status(), 200);
  EXPECT_EQ(head->header("content-type"), "text/event-stream");
  EXPECT_EQ(head->header("x-request-id"), "r-1");
  EXPECT_EQ(head->header("x-windlass-worker"), id_of("w"));
  EXPECT_EQ(read_chunk(*client), token_event("one"));
  first_read.open();
  EXPECT_EQ(read_chunk(*client), token_event("two"));
  EXPECT_EQ(read_chunk(*client), kDoneEvent);
  EXPECT_EQ(read_chunk(*client), "");
  EXPECT_EQ(nlohmann::json::parse(seen_body)["stream_options"]["include_usage"], true);

  ASSERT_TRUE(wait_until([&] { return gateway.metric("windlass_gateway_requests_judged_total") == 1; }));
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_attained_total", {{"model", "tiny"}}), 1);
  EXPECT_EQ(gateway.metric("windlass_gateway_request_prompt_tokens_total", {{"model", "tiny"}}), 7);
  EXPECT_EQ(gateway.metric("windlass_gateway_request_generation_tokens_total"), 2);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_measured_total"), 1);
  EXPECT_EQ(gateway.metric("windlass_gateway_time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(gateway.metric("windlass_gateway_time_per_output_token_seconds_count"), 1);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_in_flight", {{"chain", "w"}}), 0);
}

// Given a client that asks for usage; expects the usage chunk to pass.
TEST(GatewayStream, UsagePassesWhenAskedFor) {
  FakeServer worker([&](Connection& connection, const Message&) {
    connection.write(stream_head() + chunk(token_event("one")) + chunk(usage_event(3, 1)) + chunk(kDoneEvent) + kLastChunk);
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto body = nlohmann::json::parse(chat("tiny", "hi", true));
  body["stream_options"] = {{"include_usage", true}};
  const auto answer = ask(gateway.port(), post("/v1/chat/completions", body.dump()));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, token_event("one") + usage_event(3, 1) + kDoneEvent);
}

// Given workers that break off after a token, by an orderly close, a reset, or an end without [DONE]; expects an error event
// and no [DONE] at the client, no request at the other worker, and the error counted.
TEST(GatewayStream, AWorkerThatBreaksOff) {
  std::atomic<int> calls = 0;
  const auto breaking = [&](Connection& connection, const Message& request) {
    ++calls;
    connection.write(stream_head() + chunk(token_event("one")));
    if (request.body.find("reset") != std::string::npos) {
      connection.reset();
    } else if (request.body.find("close") != std::string::npos) {
      connection.shut_down();
    } else {
      connection.write(kLastChunk);
    }
  };
  FakeServer worker_a(breaking), worker_b(breaking);
  FakeController controller;
  controller.set_table(table(1, {chain("a", worker_a.address()), chain("b", worker_b.address())}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  int sent = 0;
  for (const char* how : {"reset", "close", "truncate"}) {
    const auto answer = ask(gateway.port(), post("/v1/chat/completions", chat("tiny", how, true)));
    ASSERT_TRUE(answer) << how;
    EXPECT_EQ(answer->status(), 200);
    EXPECT_THAT(answer->body, Not(HasSubstr("data: [DONE]"))) << how;
    EXPECT_THAT(answer->body, HasSubstr("data: {\"error\":{")) << how;
    EXPECT_EQ(++sent, calls) << how;
  }
  EXPECT_EQ(gateway.metric("windlass_gateway_upstream_errors_total", {{"model", "tiny"}}), 3);
  EXPECT_EQ(gateway.metric("windlass_gateway_upstream_errors_total", {{"reason", "truncated"}}), 1);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_finished_total", {{"code", "502"}}), 3);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_attained_total"), 0);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_judged_total"), 3);
}

// Given a client that leaves mid-stream, and one that leaves while queued; expects the worker's connection to close
// immediately, the slot to go to the next request, and neither to count against the objective.
TEST(GatewayStream, AClientThatLeavesCancelsItsWorker) {
  Gate cancelled;
  std::atomic<int> calls = 0;
  FakeServer worker([&](Connection& connection, const Message&) {
    if (calls++ == 0) {
      connection.write(stream_head() + chunk(token_event("one")));
      if (connection.peer_closes()) cancelled.open();
      return;
    }
    connection.write(json_response(200, completion("next")));
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address(), 1, 1)}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto client = Connection::connect(gateway.port());
  ASSERT_TRUE(client && client->write(post("/v1/chat/completions", chat("tiny", "hi", true))));
  ASSERT_TRUE(read_head(*client));
  ASSERT_TRUE(read_chunk(*client));
  {
    auto waiting = Connection::connect(gateway.port());
    ASSERT_TRUE(waiting && waiting->write(post("/v1/chat/completions", chat("tiny", "queued", true))));
    ASSERT_TRUE(wait_until([&] { return gateway.metric("windlass_gateway_queue_length", {{"model", "tiny"}}) == 1; }));
  }
  ASSERT_TRUE(wait_until([&] { return gateway.metric("windlass_gateway_queue_length", {{"model", "tiny"}}) == 0; }));
  client->close();
  EXPECT_TRUE(cancelled.wait());
  const auto next = ask(gateway.port(), post("/v1/chat/completions", chat("tiny", "next", false)));
  ASSERT_TRUE(next);
  EXPECT_EQ(next->status(), 200);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_finished_total", {{"code", "499"}}), 2);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_judged_total"), 1);
}

// Given a client that reads nothing while its worker makes 64 MB; expects the gateway to stop reading from the worker (its
// memory stays bounded), to continue with the client, and to lose no byte.
TEST(GatewayStream, ASlowClientHoldsItsWorkerBack) {
  const std::string event = token_event(std::string(8000, 'x'));
  constexpr int kEvents = 8000;
  std::atomic<int> written = 0;
  FakeServer worker([&](Connection& connection, const Message&) {
    connection.write(stream_head());
    for (int i = 0; i < kEvents && connection.write(chunk(event)); ++i) ++written;
    connection.write(chunk(kDoneEvent) + std::string(kLastChunk));
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto client = Connection::connect(gateway.port());
  ASSERT_TRUE(client && client->write(post("/v1/chat/completions", chat("tiny", "hi", true))));
  ASSERT_TRUE(read_head(*client));
  // Wait until the worker is blocked: no progress over several looks, with the gateway answering requests in between.
  int last = -1, same = 0;
  ASSERT_TRUE(wait_until([&] {
    same = written == last ? same + 1 : 0;
    last = written;
    return same > 20 && gateway.ready();
  }));
  EXPECT_LT(written, kEvents);
  std::size_t total = 0;
  for (auto bytes = read_chunk(*client); bytes && !bytes->empty(); bytes = read_chunk(*client)) total += bytes->size();
  EXPECT_EQ(total, event.size() * kEvents + std::string(kDoneEvent).size());
}

// Given SIGTERM during a stream and with an idle connection; expects the stream to finish, new connections to be refused, 503
// for a new request on an open connection, and exit code 0.
TEST(GatewayStream, Drain) {
  Gate go_on;
  FakeServer worker([&](Connection& connection, const Message&) {
    connection.write(stream_head() + chunk(token_event("one")));
    if (!go_on.wait()) return;
    connection.write(chunk(token_event("two")) + chunk(kDoneEvent) + kLastChunk);
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto idle = Connection::connect(gateway.port());
  ASSERT_TRUE(idle && idle->write(get("/v1/models")));
  ASSERT_TRUE(read_message(*idle));
  auto client = Connection::connect(gateway.port());
  // The second request is pipelined, so it is read only after the drain has begun.
  ASSERT_TRUE(client && client->write(post("/v1/chat/completions", chat("tiny", "hi", true)) +
                                      post("/v1/chat/completions", chat("tiny", "late", true))));
  ASSERT_TRUE(read_head(*client));
  ASSERT_TRUE(read_chunk(*client));
  gateway.signal(SIGTERM);
  EXPECT_TRUE(idle->peer_closes());
  ASSERT_TRUE(wait_until([&] { return !Connection::connect(gateway.port()).has_value(); }));
  EXPECT_FALSE(gateway.ready());
  go_on.open();
  EXPECT_EQ(read_chunk(*client), token_event("two"));
  EXPECT_EQ(read_chunk(*client), kDoneEvent);
  EXPECT_EQ(read_chunk(*client), "");
  const auto late = read_message(*client);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->status(), 503);
  EXPECT_EQ(late->header("connection"), "close");
  EXPECT_EQ(gateway.wait_exit(), 0);
}

// Given SIGTERM and a drain delay; expects new connections to be accepted and their requests answered, each answer to close its
// connection, and the gateway not to be ready. A second SIGTERM ends it.
TEST(GatewayStream, ServesDuringTheDrainDelay) {
  FakeServer worker([&](Connection& connection, const Message& request) {
    if (request.body.find("\"stream\":true") == std::string::npos) {
      connection.write(json_response(200, completion("ok")));
    } else {
      connection.write(stream_head() + chunk(token_event("one")) + chunk(kDoneEvent) + kLastChunk);
    }
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()}, {"--drain-delay", "10m"});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto open = Connection::connect(gateway.port());
  ASSERT_TRUE(open && open->write(get("/v1/models")));
  const auto before = read_message(*open);
  ASSERT_TRUE(before);
  EXPECT_EQ(before->header("connection"), "");
  gateway.signal(SIGTERM);
  ASSERT_TRUE(wait_until([&] { return !gateway.ready(); }));
  for (const std::string& request : {post("/v1/chat/completions", chat("tiny", "hi", false)),
                                     post("/v1/chat/completions", chat("tiny", "hi", true)), get("/v1/models")}) {
    auto client = Connection::connect(gateway.port());
    ASSERT_TRUE(client && client->write(request));
    const auto answer = read_message(*client);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status(), 200);
    EXPECT_EQ(answer->header("connection"), "close");
    EXPECT_TRUE(client->peer_closes());
  }
  ASSERT_TRUE(open->write(get("/v1/models")));
  const auto last = read_message(*open);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->header("connection"), "close");
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait_exit(), 0);
}

// Given a drain that takes longer than allowed; expects an error event in the stream and exit code 0.
TEST(GatewayStream, DrainTimeout) {
  FakeServer worker([&](Connection& connection, const Message&) {
    connection.write(stream_head() + chunk(token_event("one")));
    connection.peer_closes();
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()}, {"--drain-timeout", "100ms"});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto client = Connection::connect(gateway.port());
  ASSERT_TRUE(client && client->write(post("/v1/chat/completions", chat("tiny", "hi", true))));
  ASSERT_TRUE(read_head(*client));
  ASSERT_TRUE(read_chunk(*client));
  gateway.signal(SIGTERM);
  const auto error = read_chunk(*client);
  ASSERT_TRUE(error);
  EXPECT_THAT(*error, HasSubstr("shutting down"));
  EXPECT_EQ(gateway.wait_exit(), 0);
}

}  // namespace
}  // namespace windlass::gateway::testing
