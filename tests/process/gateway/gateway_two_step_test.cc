// Requests through a prefill and a decode worker, with the real gateway (docs/decisions/2026-11-22-kv-is-pulled.md).
#include <atomic>
#include <csignal>
#include <map>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/gateway/harness.h"

namespace windlass::gateway::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPath = "/v1/chat/completions";

dispatch::Chain prefill(const std::string& id, const std::string& address, double rate = 1, int capacity = 4) {
  return in_role(dispatch::Role::kPrefill, chain(id, address, rate, capacity));
}

dispatch::Chain decode(const std::string& id, const std::string& address, double rate = 1, int capacity = 4) {
  return in_role(dispatch::Role::kDecode, chain(id, address, rate, capacity));
}

std::string served_by(const std::optional<Message>& answer) { return answer ? answer->header("x-windlass-worker") : ""; }

// Passes the last request that a server's thread saw to the test's thread.
class LastRequest {
 public:
  void keep(const Message& request) {
    const std::lock_guard lock(mutex_);
    request_ = request;
  }
  [[nodiscard]] Message get() const {
    const std::lock_guard lock(mutex_);
    return request_;
  }

 private:
  mutable std::mutex mutex_;
  Message request_;
};

// The real gateway and a controller whose table has these chains.
class TwoStepGateway {
 public:
  explicit TwoStepGateway(std::vector<dispatch::Chain> chains) {
    controller_.set_table(table(1, std::move(chains)));
    process_ = std::make_unique<GatewayProcess>(std::vector<std::string>{controller_.url()});
    ready_ = process_->obeys({1, 1});
  }

  [[nodiscard]] bool ready() const { return ready_; }
  [[nodiscard]] const GatewayProcess& operator*() const { return *process_; }
  [[nodiscard]] std::optional<Message> ask_for(const std::string& prompt, bool stream = false) const {
    return ask(process_->port(), post(kPath, chat("tiny", prompt, stream)));
  }
  [[nodiscard]] std::optional<Connection> begin(const std::string& prompt, bool stream) const {
    auto client = Connection::connect(process_->port());
    if (!client || !client->write(post(kPath, chat("tiny", prompt, stream)))) return std::nullopt;
    return client;
  }
  [[nodiscard]] bool comes_to_hold(const std::string& chain, int count) const {
    return wait_until([&] { return process_->metric("windlass_gateway_requests_in_flight", {{"chain", chain}}) == count; });
  }
  [[nodiscard]] bool comes_to_wait(const std::string& gauge, int count) const {
    return wait_until([&] { return process_->metric(gauge, {{"model", "tiny"}}) == count; });
  }
  [[nodiscard]] double errors(const std::string& reason) const {
    return process_->metric("windlass_gateway_upstream_errors_total", {{"reason", reason}});
  }

 private:
  FakeController controller_;
  std::unique_ptr<GatewayProcess> process_;
  bool ready_ = false;
};

// Given a prefill and a decode worker; expects a whole and a streamed answer from the decode worker, made from what the prefill
// worker computed, and nothing held afterwards.
TEST(GatewayTwoStep, AnswersPassThroughTwoWorkers) {
  WorkerProcess p("p"), d("d");
  TwoStepGateway gateway({prefill("p", p.address()), decode("d", d.address())});
  ASSERT_TRUE(gateway.ready());
  const auto whole = gateway.ask_for("hi");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->status(), 200);
  EXPECT_EQ(served_by(whole), id_of("d"));
  EXPECT_THAT(whole->body, HasSubstr("d after p-1"));
  const auto streamed = gateway.ask_for("hi", true);
  ASSERT_TRUE(streamed);
  EXPECT_THAT(streamed->body, HasSubstr(token_event("d after p-2")));
  EXPECT_THAT(streamed->body, HasSubstr(kDoneEvent));
  EXPECT_TRUE(gateway.comes_to_hold("p", 0));
  EXPECT_TRUE(gateway.comes_to_hold("d", 0));
  EXPECT_EQ((*gateway).metric("windlass_gateway_upstream_errors_total"), 0);
  EXPECT_EQ((*gateway).metric("windlass_gateway_requests_finished_total", {{"code", "200"}}), 2);
}

// Given two prefill workers with different weights, and a decode worker that is faster than the others but has no weight;
// expects each decode worker to answer its share of both prefill workers' requests, sent one by one and all at once, and the
// fastest to answer none.
TEST(GatewayTwoStep, SecondStepsFollowTheTablesWeights) {
  WorkerProcess p("p"), q("q"), d("d"), e("e"), fast("fast");
  std::vector<dispatch::Chain> chains = {prefill("p", p.address(), 1, 64), prefill("q", q.address(), 1, 64),
                                         decode("d", d.address(), 1, 64), decode("e", e.address(), 1, 64),
                                         decode("fast", fast.address(), 9, 64)};
  chains[0].decode_weights = {{2, 0.75}, {3, 0.25}};
  chains[1].decode_weights = {{3, 1}};
  TwoStepGateway gateway(chains);
  ASSERT_TRUE(gateway.ready());
  std::vector<Connection> clients;
  for (int i = 0; i < 40; ++i) {
    auto client = gateway.begin("hi", false);
    ASSERT_TRUE(client);
    clients.push_back(std::move(*client));
  }
  std::map<std::string, int> pairs;
  for (Connection& client : clients) {
    const auto answer = read_message(client);
    ASSERT_TRUE(answer);
    const auto says = answer->body.find(" after ");
    ASSERT_NE(says, std::string::npos) << answer->body;
    ++pairs[served_by(answer) + answer->body.substr(says, std::string(" after p").size())];
  }
  const int of_p = pairs[id_of("d") + " after p"] + pairs[id_of("e") + " after p"];
  EXPECT_GT(of_p, 8);
  EXPECT_NEAR(pairs[id_of("d") + " after p"], 0.75 * of_p, 2);
  EXPECT_GT(pairs[id_of("e") + " after q"], 8);
  EXPECT_EQ(of_p + pairs[id_of("e") + " after q"], 40);
}

// Given a client that sends headers reserved for gateway and workers; expects each worker to see only the headers of its step,
// the same body and the client's other headers, and a unified worker to see none of the reserved ones.
TEST(GatewayTwoStep, ClientsCannotSetStepHeaders) {
  LastRequest at_p, at_d, at_u;
  FakeServer p([&](Connection& connection, const Message& request) {
    at_p.keep(request);
    connection.write(prefill_head("there") + kLastChunk);
  });
  FakeServer d([&](Connection& connection, const Message& request) {
    at_d.keep(request);
    connection.write(json_response(200, completion("ok")));
  });
  FakeServer u([&](Connection& connection, const Message& request) {
    at_u.keep(request);
    connection.write(json_response(200, completion("ok")));
  });
  const std::string spoofed =
      "X-Windlass-Phase: decode\r\nX-Windlass-Prefilled: mine\r\nX-Windlass-Prefill-Address: 10.0.0.1:1\r\n"
      "x-windlass-other: x\r\nX-Other: x\r\nTraceparent: passes\r\n";
  const std::string request = post(kPath, chat("tiny", "hi", false), spoofed);
  TwoStepGateway two({prefill("p", p.address()), decode("d", d.address())});
  TwoStepGateway one({chain("u", u.address())});
  ASSERT_TRUE(two.ready() && one.ready());
  ASSERT_EQ(served_by(ask((*two).port(), request)), id_of("d"));
  ASSERT_EQ(served_by(ask((*one).port(), request)), id_of("u"));
  const Message first = at_p.get(), second = at_d.get(), whole = at_u.get();
  EXPECT_EQ(first.header("x-windlass-phase"), "prefill");
  EXPECT_EQ(first.header("x-windlass-prefilled") + first.header("x-windlass-prefill-address"), "");
  EXPECT_EQ(second.header("x-windlass-phase"), "");
  EXPECT_EQ(second.header("x-windlass-prefilled"), "there");
  EXPECT_EQ(second.header("x-windlass-prefill-address"), p.address());
  EXPECT_EQ(first.body, second.body);
  for (const Message* seen : {&first, &second, &whole}) {
    EXPECT_EQ(seen->header("x-windlass-other"), "");
    EXPECT_EQ(seen->header("x-other"), "");
    EXPECT_EQ(seen->header("traceparent"), "passes");
  }
  for (const auto& [name, value] : whole.headers) EXPECT_THAT(name, Not(HasSubstr("x-windlass-")));
}

// Given a chain of three workers; expects the first to get the request with the addresses of the others, whatever the client
// sends.
TEST(GatewayTwoStep, AChainsFirstWorkerGetsTheOthersAddresses) {
  LastRequest at_first;
  FakeServer first([&](Connection& connection, const Message& request) {
    at_first.keep(request);
    connection.write(json_response(200, completion("ok")));
  });
  dispatch::Chain three = chain("f", first.address());
  three.hops.insert(three.hops.end(), {"10.0.0.2:8000", "10.0.0.3:8000"});
  TwoStepGateway gateway({three});
  ASSERT_TRUE(gateway.ready());
  const std::string request = post(kPath, chat("tiny", "hi", false), "X-Windlass-Chain: 10.0.0.9:1\r\n");
  ASSERT_EQ(served_by(ask((*gateway).port(), request)), id_of("f"));
  EXPECT_EQ(at_first.get().header("x-windlass-chain"), "10.0.0.2:8000,10.0.0.3:8000");
}

// Given a prefill worker with one slot that keeps its body open while the decode worker answers; expects a second request to
// wait for that slot until the body ends.
TEST(GatewayTwoStep, APrefillSlotIsFreeWhenItsBodyEnds) {
  Gate taken, finish;
  std::atomic<int> first_steps = 0;
  FakeServer p([&](Connection& connection, const Message&) {
    if (first_steps++ == 0) {
      connection.write(prefill_head("a") + chunk(" "));
      if (!taken.wait()) return;
      connection.write(chunk(" "));
    } else {
      connection.write(prefill_head("b"));
    }
    connection.write(kLastChunk);
  });
  FakeServer d([&](Connection& connection, const Message&) {
    connection.write(stream_head() + chunk(token_event("one")));
    if (finish.wait()) connection.write(chunk(usage_event(1, 1)) + chunk(kDoneEvent) + kLastChunk);
  });
  TwoStepGateway gateway({prefill("p", p.address(), 1, 1), decode("d", d.address())});
  ASSERT_TRUE(gateway.ready());
  auto early = gateway.begin("hi", true);
  ASSERT_TRUE(early);
  ASSERT_EQ(read_head(*early)->status(), 200);
  ASSERT_EQ(read_chunk(*early), token_event("one"));
  auto late = gateway.begin("hi", true);
  ASSERT_TRUE(late);
  ASSERT_TRUE(gateway.comes_to_wait("windlass_gateway_queue_length", 1));
  EXPECT_EQ((*gateway).metric("windlass_gateway_requests_in_flight", {{"chain", "p"}}), 1);
  EXPECT_EQ(first_steps, 1);
  taken.open();
  ASSERT_EQ(read_head(*late)->status(), 200);
  ASSERT_EQ(read_chunk(*late), token_event("one"));
  EXPECT_EQ(first_steps, 2);
  EXPECT_TRUE(gateway.comes_to_hold("p", 0));
  EXPECT_EQ((*gateway).metric("windlass_gateway_requests_in_flight", {{"chain", "d"}}), 2);
  finish.open();
  EXPECT_EQ(read_chunk(*early), kDoneEvent);
  EXPECT_EQ(read_chunk(*late), kDoneEvent);
}

// Given a decode worker with its only slot busy, and a second request that waits for it in its prefill slot. When the second
// client leaves, expects its prefill connection to close and no error counted. When the first client leaves, expects both its
// connections to close.
TEST(GatewayTwoStep, AClientThatLeavesEndsBothSteps) {
  std::atomic<int> first_steps_broken_off = 0;
  Gate second_step_broken_off;
  FakeServer p([&](Connection& connection, const Message&) {
    connection.write(prefill_head("a"));
    if (connection.peer_closes()) ++first_steps_broken_off;
  });
  FakeServer d([&](Connection& connection, const Message&) {
    connection.write(stream_head() + chunk(token_event("one")));
    if (connection.peer_closes()) second_step_broken_off.open();
  });
  TwoStepGateway gateway({prefill("p", p.address()), decode("d", d.address(), 1, 1)});
  ASSERT_TRUE(gateway.ready());
  auto answered = gateway.begin("hi", true);
  ASSERT_TRUE(answered);
  ASSERT_EQ(read_head(*answered)->status(), 200);
  auto between = gateway.begin("hi", true);
  ASSERT_TRUE(between);
  ASSERT_TRUE(gateway.comes_to_wait("windlass_gateway_decode_queue_length", 1));
  EXPECT_EQ((*gateway).metric("windlass_gateway_queue_length", {{"model", "tiny"}}), 0);
  EXPECT_EQ((*gateway).metric("windlass_gateway_requests_in_flight", {{"chain", "p"}}), 2);
  between->close();
  ASSERT_TRUE(wait_until([&] { return first_steps_broken_off == 1; }));
  EXPECT_TRUE(gateway.comes_to_wait("windlass_gateway_decode_queue_length", 0));
  EXPECT_TRUE(gateway.comes_to_hold("p", 1));
  answered->close();
  EXPECT_TRUE(second_step_broken_off.wait());
  EXPECT_TRUE(wait_until([&] { return first_steps_broken_off == 2; }));
  EXPECT_TRUE(gateway.comes_to_hold("p", 0));
  EXPECT_TRUE(gateway.comes_to_hold("d", 0));
  EXPECT_EQ((*gateway).metric("windlass_gateway_upstream_errors_total"), 0);
  EXPECT_EQ((*gateway).metric("windlass_gateway_requests_finished_total", {{"code", "499"}}), 2);
}

// Given the faster of two prefill workers, killed before its response head; expects the request to start over at the other one.
TEST(GatewayTwoStep, APrefillWorkerDiesBeforeItsHead) {
  WorkerProcess fast("fast"), slow("slow"), d("d");
  TwoStepGateway gateway({prefill("fast", fast.address(), 9), prefill("slow", slow.address(), 1), decode("d", d.address())});
  ASSERT_TRUE(gateway.ready());
  auto client = gateway.begin("hang at fast", false);
  ASSERT_TRUE(client && gateway.comes_to_hold("fast", 1));
  fast.signal(SIGKILL);
  const auto answer = read_message(*client);
  ASSERT_TRUE(answer);
  EXPECT_THAT(answer->body, HasSubstr("d after slow-1"));
  EXPECT_EQ(gateway.errors("broken"), 1);
  EXPECT_TRUE(gateway.comes_to_hold("fast", 0));
}

// Given the faster of two decode workers, killed before the first byte of its answer; expects the other one to get the request
// with the result of the same first step.
TEST(GatewayTwoStep, ADecodeWorkerDiesBeforeItsAnswer) {
  WorkerProcess p("p"), fast("fast"), slow("slow");
  TwoStepGateway gateway({prefill("p", p.address()), decode("fast", fast.address(), 9), decode("slow", slow.address(), 1)});
  ASSERT_TRUE(gateway.ready());
  auto client = gateway.begin("hang at fast", false);
  ASSERT_TRUE(client && gateway.comes_to_hold("fast", 1));
  EXPECT_EQ((*gateway).metric("windlass_gateway_requests_in_flight", {{"chain", "p"}}), 1) << "nobody has taken it";
  fast.signal(SIGKILL);
  const auto answer = read_message(*client);
  ASSERT_TRUE(answer);
  EXPECT_EQ(served_by(answer), id_of("slow"));
  EXPECT_THAT(answer->body, HasSubstr("slow after p-1"));
  EXPECT_EQ(gateway.errors("broken"), 1);
}

// Given a prefill worker that breaks off after its head; expects only its slot to be affected, and an error counted.
TEST(GatewayTwoStep, APrefillWorkerBreaksOffAfterItsHead) {
  Gate decode_may_answer;
  FakeServer p([&](Connection& connection, const Message&) {
    connection.write(prefill_head("a") + chunk(" "));
    connection.shut_down();
  });
  FakeServer d([&](Connection& connection, const Message&) {
    if (decode_may_answer.wait()) connection.write(json_response(200, completion("ok")));
  });
  TwoStepGateway gateway({prefill("p", p.address()), decode("d", d.address())});
  ASSERT_TRUE(gateway.ready());
  auto client = gateway.begin("hi", false);
  ASSERT_TRUE(client && gateway.comes_to_hold("d", 1) && gateway.comes_to_hold("p", 0));
  EXPECT_EQ(gateway.errors("prefill_broken"), 1);
  decode_may_answer.open();
  EXPECT_EQ(read_message(*client)->status(), 200);
}

// Given a prefill worker with an endless body; expects it to be cut off, and the answer to be unaffected.
TEST(GatewayTwoStep, ABodyWithoutEndIsCutOff) {
  Gate cut_off;
  FakeServer p([&](Connection& connection, const Message&) {
    connection.write(prefill_head("a"));
    while (connection.write(chunk(std::string(65536, ' ')))) continue;
    cut_off.open();
  });
  FakeServer d([&](Connection& connection, const Message&) {
    if (cut_off.wait()) connection.write(json_response(200, completion("ok")));
  });
  TwoStepGateway gateway({prefill("p", p.address()), decode("d", d.address())});
  ASSERT_TRUE(gateway.ready());
  const auto answer = gateway.ask_for("hi");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status(), 200);
  EXPECT_EQ(gateway.errors("prefill_broken"), 1);
}

// Given prefill workers that answer 200 without the location of their keys and values, or with one that is too long; expects
// them to count as broken, and another worker to get the request. A location of the maximum length passes.
TEST(GatewayTwoStep, AFirstStepsAnswerWithoutAValueIsBroken) {
  const std::string longest(8192, 'v');
  LastRequest at_d;
  FakeServer good([&](Connection& connection, const Message&) { connection.write(prefill_head(longest) + kLastChunk); });
  FakeServer d([&](Connection& connection, const Message& request) {
    at_d.keep(request);
    connection.write(json_response(200, completion("ok")));
  });
  for (const auto& head : {json_response(200, completion("an answer, and of the wrong worker")), prefill_head(longest + "v"),
                           std::string("HTTP/1.1 204 No Content\r\n\r\n")}) {
    SCOPED_TRACE(head.substr(0, 60));
    FakeServer bad([head](Connection& connection, const Message&) { connection.write(head); });
    TwoStepGateway gateway({prefill("bad", bad.address(), 9), prefill("good", good.address(), 1), decode("d", d.address())});
    ASSERT_TRUE(gateway.ready());
    at_d.keep({});
    const auto answer = gateway.ask_for("hi");
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status(), 200);
    EXPECT_EQ(at_d.get().header("x-windlass-prefilled"), longest);
    EXPECT_EQ(gateway.errors("broken"), 1);
  }
}

// Given a prefill worker that is full and another that answers 400; expects the request to move from the first to the second,
// whose answer goes to the client, and no decode worker to see it.
TEST(GatewayTwoStep, ARefusedFirstStepGoesToAnotherWorker) {
  std::atomic<int> second_steps = 0;
  FakeServer full([](Connection& connection, const Message&) {
    connection.write(json_response(503, "{}", "X-Windlass-Rejected: full\r\n"));
  });
  FakeServer strict([](Connection& connection, const Message&) { connection.write(json_response(400, R"({"error":"why"})")); });
  FakeServer d([&](Connection&, const Message&) { ++second_steps; });
  TwoStepGateway gateway(
      {prefill("full", full.address(), 9), prefill("strict", strict.address(), 1), decode("d", d.address())});
  ASSERT_TRUE(gateway.ready());
  const auto answer = gateway.ask_for("hi");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status(), 400);
  EXPECT_EQ(answer->body, R"({"error":"why"})");
  EXPECT_EQ(gateway.errors("full"), 1);
  EXPECT_EQ(second_steps, 0);
  EXPECT_TRUE(gateway.comes_to_hold("strict", 0));
}

}  // namespace
}  // namespace windlass::gateway::testing
