// Malformed and hostile requests to each of the programs: all respond in the same way, none crashes, and valid requests are
// answered meanwhile.
#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/http_connection.h"
#include "tests/process/controller/cli/local/local_run.h"

namespace windlass::cli {
namespace {

using test_client::ask;
using test_client::Connection;
using test_client::get;
using test_client::post;
using test_client::read_message;

constexpr double kStartS = 180;

class Abuse : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(eventually(kStartS, [&] { return run_.at_rest(1); })) << run_.logs();
    ports_ = run_.ports();
    ASSERT_EQ(ports_.size(), 4u);
    before_ = alive();
  }
  void TearDown() override {
    expect_honest_answers("at the end");
    EXPECT_EQ(alive(), before_) << run_.logs();
  }

  std::set<int> alive() {
    const auto now = run_.processes();
    return {now.begin(), now.end()};
  }

  // Each program on its own connection, and a request through the whole system.
  void expect_honest_answers(const std::string& when) {
    for (const auto& [name, port] : ports_) {
      const std::string path = name == "gateway" ? "/v1/models" : "/metrics";
      const auto answer = ask(port, get(path));
      ASSERT_TRUE(answer) << name << " " << when << run_.logs();
      EXPECT_EQ(answer->status(), 200) << name << " " << when;
    }
    const auto chat = ask(ports_[0].second, post("/v1/chat/completions", kChat));
    ASSERT_TRUE(chat) << when << run_.logs();
    EXPECT_EQ(chat->status(), 200) << when << chat->body;
  }

  static constexpr const char* kChat = R"({"model":"tiny","max_tokens":2,"messages":[{"role":"user","content":"hi"}]})";

  LocalRun run_{1};
  std::vector<std::pair<std::string, int>> ports_;
  std::set<int> before_;
};

// Given requests that are invalid by RFC 9112 or too large; expects every program to respond with the same status and to close.
TEST_F(Abuse, WhatIsNoRequest) {
  const std::string host = "Host: a\r\n";
  const std::string chunked = "POST /v1/completions HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n";
  const std::vector<std::pair<std::string, int>> cases = {
      {chunked + "-1\r\n", 400},
      {chunked + "ffffffffffffffff\r\n", 413},
      {chunked + "40000000\r\n", 413},
      {chunked + "1;" + std::string(1U << 20U, 'e'), 400},
      {chunked + "0\r\nX: " + std::string(1U << 20U, 't'), 400},
      {"GET / HTTP/1.1\r\n" + host + "X: " + std::string(1U << 20U, 'h'), 431},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1073741824\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "X: a\r\n b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: a\n\n", 400},
      {"GET / HTTP/2.0\r\n" + host + "\r\n", 505},
      {std::string("\x16\x03\x01\x00\xa5", 5), 400},
  };
  for (const auto& [name, port] : ports_) {
    for (const auto& [request, status] : cases) {
      auto client = Connection::connect(port);
      ASSERT_TRUE(client) << name << run_.logs();
      client->write(request);
      const auto answer = read_message(*client);
      ASSERT_TRUE(answer) << name << ": " << request.substr(0, 120);
      EXPECT_EQ(answer->status(), status) << name << ": " << request.substr(0, 120) << answer->body;
      client->finish_writing();
      EXPECT_TRUE(client->peer_closes()) << name << ": " << request.substr(0, 120);
    }
  }
}

// Given more connections that send nothing, half a head or half a body than any program has threads; expects valid requests to
// be answered.
TEST_F(Abuse, WhoWaits) {
  constexpr int kEach = 60;  // of each kind; fits within 1024 open files
  std::vector<Connection> held;
  for (const auto& [name, port] : ports_) {
    for (int i = 0; i < kEach; ++i) {
      for (const char* begins : {"", "GET / HTTP/1.1\r\nHo", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf"}) {
        auto client = Connection::connect(port);
        ASSERT_TRUE(client && client->write(begins)) << name;
        held.push_back(std::move(*client));
      }
    }
  }
  expect_honest_answers("with connections that wait");
}

// Given chat requests that used to crash every worker; expects each to be answered by the same worker process.
TEST_F(Abuse, ChatRequestsThatEndedWorkers) {
  const auto chat_with = [](const std::string& member) {
    return R"({"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":"hi"}],)" + member + "}";
  };
  std::string items = "1";
  for (int i = 0; i < 500'000; ++i) items += ",1";
  const std::string flat = chat_with(R"("chat_template_kwargs":{"a":[)" + items + "]}");
  const std::string nested = chat_with(R"("chat_template_kwargs":{"a":)" + std::string(60, '[') + std::string(60, ']') + "}");
  for (int round = 0; round < 3; ++round) {
    for (const std::string& body : {flat, nested}) {
      const auto answer = ask(ports_[0].second, post("/v1/chat/completions", body));
      ASSERT_TRUE(answer) << run_.logs();
      EXPECT_TRUE(answer->status() == 200 || answer->status() == 400) << answer->start_line << answer->body.substr(0, 200);
    }
  }
}

}  // namespace
}  // namespace windlass::cli
