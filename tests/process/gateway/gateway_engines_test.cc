// Other engines behind the real gateway: their recorded answers from tests/golden/engine_streams, over real sockets.
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/process/gateway/harness.h"

namespace windlass::gateway::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// One file of tests/golden/engine_streams.
std::string engine_answer(const std::string& file) {
  std::ifstream in(source_path("/tests/golden/engine_streams/" + file));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Count in the upstream errors with this reason.
double errors_of(const GatewayProcess& gateway, const std::string& reason) {
  return gateway.metric("windlass_gateway_upstream_errors_total", {{"reason", reason}});
}

double finished_with(const GatewayProcess& gateway, const std::string& code) {
  return gateway.metric("windlass_gateway_requests_finished_total", {{"code", code}});
}

// A worker that streams one token and ends normally.
void answer_well(Connection& connection) {
  connection.write(stream_head() + chunk(token_event("fine")) + chunk(kDoneEvent) + kLastChunk);
}

// Given an engine of each kind, faster than a second worker, that answers as its file says; expects a good stream to pass
// completely. If the engine fails or refuses before its first token, expects the other worker's answer. The metrics must agree.
TEST(GatewayEngines, AnErrorBeforeATokenMovesTheRequest) {
  for (const auto& wanted : nlohmann::json::parse(engine_answer("index.json"))) {
    const std::string file = wanted["file"], verdict = wanted["verdict"], text = engine_answer(file);
    if (verdict != "complete" && wanted["content_events"] != 0) continue;  // its token may already have been sent
    const int status = wanted["status"];
    FakeServer engine([&](Connection& connection, const Message&) {
      connection.write(status == 200 ? stream_head() + chunk(text) + kLastChunk : json_response(status, text));
    });
    FakeServer other([](Connection& connection, const Message&) { answer_well(connection); });
    FakeController controller;
    controller.set_table(table(1, {chain("engine", engine.address(), 9), chain("other", other.address(), 1)}));
    GatewayProcess gateway({controller.url()});
    ASSERT_TRUE(gateway.obeys({1, 1}));
    const auto answer = ask(gateway.port(), post("/v1/chat/completions", chat("tiny", "hi", true)));
    ASSERT_TRUE(answer) << file;
    EXPECT_EQ(answer->status(), 200) << file;
    EXPECT_THAT(answer->body, HasSubstr("data: [DONE]")) << file;
    const bool good = verdict == "complete";
    EXPECT_EQ(answer->header("x-windlass-worker"), id_of(good ? "engine" : "other")) << file;
    if (!good) {
      EXPECT_EQ(answer->body, token_event("fine") + kDoneEvent) << file;
    }
    EXPECT_EQ(errors_of(gateway, "engine_error"), verdict == "failed" ? 1 : 0) << file;
    EXPECT_EQ(errors_of(gateway, "full"), verdict == "refused" ? 1 : 0) << file;
    EXPECT_TRUE(wait_until([&] { return finished_with(gateway, "200") == 1; })) << file;
    EXPECT_EQ(gateway.metric("windlass_gateway_requests_attained_total"), 1) << file;
  }
}

// Given the same engines' streams that fail after a token, which the client reads before the rest is sent; expects the engine's
// error at the client and no [DONE], no second worker, and one error and one miss counted.
TEST(GatewayEngines, AnErrorAfterATokenIsPassedOn) {
  for (const auto& wanted : nlohmann::json::parse(engine_answer("index.json"))) {
    const std::string file = wanted["file"], verdict = wanted["verdict"], text = engine_answer(file);
    if (wanted["content_events"] == 0 || verdict == "complete") continue;
    const auto token = text.find("\"content\":\"H");
    ASSERT_NE(token, std::string::npos) << file;
    const auto cut = text.find("\n\n", token) + 2;
    Gate read;
    FakeServer engine([&](Connection& connection, const Message&) {
      connection.write(stream_head() + chunk(text.substr(0, cut)));
      if (!read.wait()) return;
      connection.write((cut < text.size() ? chunk(text.substr(cut)) : "") + kLastChunk);
    });
    std::atomic<int> elsewhere = 0;
    FakeServer other([&](Connection& connection, const Message&) {
      ++elsewhere;
      answer_well(connection);
    });
    FakeController controller;
    controller.set_table(table(1, {chain("engine", engine.address(), 9), chain("other", other.address(), 1)}));
    GatewayProcess gateway({controller.url()});
    ASSERT_TRUE(gateway.obeys({1, 1}));
    auto client = Connection::connect(gateway.port());
    ASSERT_TRUE(client && client->write(post("/v1/chat/completions", chat("tiny", "hi", true))));
    ASSERT_TRUE(read_head(*client)) << file;
    std::string body = read_chunk(*client).value_or("");
    EXPECT_EQ(body, text.substr(0, cut)) << file;
    read.open();
    for (auto bytes = read_chunk(*client); bytes && !bytes->empty(); bytes = read_chunk(*client)) body += *bytes;
    EXPECT_THAT(body, Not(HasSubstr("data: [DONE]"))) << file;
    if (verdict == "failed") {
      const auto error = text.find("\n\n", cut) + 2;
      EXPECT_EQ(body, text.substr(0, error)) << file;
    } else {
      EXPECT_THAT(body, HasSubstr("data: {\"error\":{")) << file;
    }
    EXPECT_EQ(elsewhere, 0) << file;
    EXPECT_TRUE(wait_until([&] { return finished_with(gateway, "502") == 1; })) << file;
    EXPECT_EQ(errors_of(gateway, verdict == "failed" ? "engine_error" : "truncated"), 1) << file;
    EXPECT_EQ(gateway.metric("windlass_gateway_requests_judged_total"), 1) << file;
    EXPECT_EQ(gateway.metric("windlass_gateway_requests_attained_total"), 0) << file;
  }
}

// Given two engines that both send an error event and [DONE] before a token; expects one 502 with the engine's message, and no
// third try.
TEST(GatewayEngines, TwoFailedEnginesAreAnError) {
  std::atomic<int> calls = 0;
  const std::string text = engine_answer("vllm_error_after_role.txt");
  const auto failing = [&](Connection& connection, const Message&) {
    ++calls;
    connection.write(stream_head() + chunk(text) + kLastChunk);
  };
  FakeServer one(failing), two(failing);
  FakeController controller;
  controller.set_table(table(1, {chain("one", one.address(), 9), chain("two", two.address(), 1)}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  const auto answer = ask(gateway.port(), post("/v1/chat/completions", chat("tiny", "hi", true)));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status(), 502);
  EXPECT_THAT(answer->body, HasSubstr("EngineCore encountered an issue"));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(errors_of(gateway, "engine_error"), 2);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_attained_total"), 0);
}

}  // namespace
}  // namespace windlass::gateway::testing
