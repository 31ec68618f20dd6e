// 1,000 requests while the table drains chains three times and drained workers really stop.
#include <atomic>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/gateway/harness.h"

namespace windlass::gateway::testing {
namespace {

// A worker that answers with the prompt, half of the time as a stream, and records current and completed requests.
class CountingWorker {
 public:
  CountingWorker() : server_([this](Connection& connection, const Message& request) { answer(connection, request); }) {}

  [[nodiscard]] std::string address() const { return server_.address(); }
  [[nodiscard]] int in_hand() const { return in_hand_; }
  [[nodiscard]] int served() const { return served_; }
  void stop() { server_.stop(); }
  [[nodiscard]] std::multiset<std::string> prompts() const {
    const std::lock_guard lock(mutex_);
    return prompts_;
  }

 private:
  void answer(Connection& connection, const Message& request) {
    ++in_hand_;
    const auto body = nlohmann::json::parse(request.body);
    const auto prompt = body["messages"][0]["content"].get<std::string>();
    {
      const std::lock_guard lock(mutex_);
      prompts_.insert(prompt);
    }
    if (body["stream"].get<bool>()) {
      connection.write(stream_head() + chunk(token_event(prompt)));
      connection.write(chunk(token_event("!")) + chunk(usage_event(3, 2)) + chunk(kDoneEvent) + kLastChunk);
    } else {
      connection.write(json_response(200, completion(prompt)));
    }
    ++served_;
    --in_hand_;
  }

  mutable std::mutex mutex_;
  std::multiset<std::string> prompts_;
  std::atomic<int> in_hand_ = 0, served_ = 0;
  FakeServer server_;
};

// Given 16 clients that send 1,000 requests over kept connections while the table drains chains three times (each drained
// worker is stopped when the gateway obeys and it holds nothing, and a new one replaces it); expects exactly one answer with
// the right text for every request, and no request executed twice.
TEST(GatewayScaleDown, ThousandRequestsNoneLostNoneTwice) {
  constexpr int kRequests = 1000, kClients = 16, kFlips = 3, kPart = kRequests / (kFlips + 1);
  FakeController controller;
  std::vector<std::unique_ptr<CountingWorker>> all;
  std::vector<std::pair<std::string, CountingWorker*>> serving;
  const auto add_worker = [&] {
    all.push_back(std::make_unique<CountingWorker>());
    serving.emplace_back("w" + std::to_string(all.size()), all.back().get());
  };
  for (int i = 0; i < 3; ++i) add_worker();
  std::int64_t counter = 0;
  const auto publish = [&](std::size_t draining) {
    std::vector<dispatch::Chain> chains;
    for (std::size_t i = 0; i < serving.size(); ++i) {
      chains.push_back(chain(serving[i].first, serving[i].second->address(), 1.0 + static_cast<double>(i), 3, i < draining));
    }
    controller.set_table(table(++counter, std::move(chains), 1000));
  };
  publish(0);
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, counter}));

  // Clients may send requests below `allowed`. It rises step by step, so that each change of the table has traffic before,
  // during and after it.
  std::atomic<int> next = 0, answered = 0, allowed = kPart;
  std::mutex mutex;
  std::map<int, int> good;  // request -> good answers
  std::vector<std::string> problems;
  std::vector<std::thread> clients;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&] {
      auto connection = Connection::connect(gateway.port());
      for (int i = next++; i < kRequests; i = next++) {
        EXPECT_TRUE(wait_until([&] { return i < allowed; }));
        const std::string prompt = "request-" + std::to_string(i);
        const bool stream = i % 2 == 0;
        std::optional<Message> answer;
        if (connection && connection->write(post("/v1/chat/completions", chat("tiny", prompt, stream))))
          answer = read_message(*connection);
        const std::string wanted = stream ? token_event(prompt) + token_event("!") + kDoneEvent : completion(prompt);
        const std::lock_guard lock(mutex);
        if (answer && answer->status() == 200 && answer->body == wanted) {
          ++good[i];
        } else {
          problems.push_back(prompt + ": " + (answer ? answer->start_line + " " + answer->body : "no answer"));
        }
        ++answered;
      }
    });
  }
  for (int flip = 0; flip < kFlips; ++flip) {
    EXPECT_TRUE(wait_until([&] { return answered >= flip * kPart + kPart / 2; }));
    allowed = (flip + 2) * kPart;
    publish(2);
    EXPECT_TRUE(wait_until([&] { return controller.acknowledged() == dispatch::TableVersion{1, counter}; }));
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(wait_until([&] {
        return serving[i].second->in_hand() == 0 &&
               gateway.metric("windlass_gateway_requests_in_flight", {{"chain", serving[i].first}}) == 0;
      }));
      serving[i].second->stop();
    }
    serving.erase(serving.begin(), serving.begin() + 2);
    add_worker();
    add_worker();
    publish(0);
  }
  for (auto& client : clients) client.join();

  EXPECT_TRUE(problems.empty()) << problems.size() << " problems, the first: " << problems.front();
  EXPECT_EQ(good.size(), static_cast<std::size_t>(kRequests));
  std::multiset<std::string> done;
  int workers_used = 0;
  for (const auto& worker : all) {
    done.merge(worker->prompts());
    workers_used += worker->served() > 0 ? 1 : 0;
  }
  EXPECT_EQ(done.size(), static_cast<std::size_t>(kRequests)) << "a request was done twice, or not at all";
  EXPECT_EQ((std::set<std::string>(done.begin(), done.end()).size()), static_cast<std::size_t>(kRequests));
  EXPECT_GE(workers_used, 6);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_finished_total", {{"code", "200"}}), kRequests);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_started_total", {{"model", "tiny"}}), kRequests);
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_measured_total"), kRequests);
}

}  // namespace
}  // namespace windlass::gateway::testing
