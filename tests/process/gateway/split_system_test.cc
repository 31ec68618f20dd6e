// The real gateway before real workers that share requests: some compute prompts, others answer
// (docs/decisions/2026-11-22-kv-is-pulled.md).
#include <csignal>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/gateway/harness.h"
#include "tests/process/worker/worker_process.h"

namespace windlass::gateway::testing {
namespace {

using nlohmann::json;
constexpr const char* kCompletions = "/v1/completions";
constexpr int kRequests = 24;

// The third one in three is streamed; prompts of several lengths, some longer than an iteration takes.
json request_of(int i) {
  std::string prompt;
  for (int word = 0; word < 4 + 12 * (i % 5); ++word) prompt += "anchor " + std::to_string(i * 7 + word) + " ";
  return {{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 10 + i % 4}, {"temperature", 0}, {"stream", i % 3 == 2}};
}

std::string text_of(const std::string& body) {
  const json whole = json::parse(body, nullptr, false);
  return whole.is_discarded() ? worker::testing::parse_stream(body).text : whole["choices"][0]["text"].get<std::string>();
}

class SplitSystem : public worker::testing::Worker {
 protected:
  void SetUp() override {
    Worker::SetUp();
    make_model();
    const int alone = worker::testing::free_port();
    const auto reference = start_at(alone);
    for (int i = 0; i < kRequests; ++i) {
      expected_.push_back(text_of(worker::testing::ask(alone, "POST", kCompletions, request_of(i).dump()).body));
    }
    std::vector<dispatch::Chain> chains;
    for (const char* role : {"prefill", "decode"}) {
      for (int i = 0; i < 2; ++i) {
        const int port = worker::testing::free_port();
        workers_.push_back(start_at(port, {"--role", role}));
        ports_.push_back(port);
        const dispatch::Role is = role == std::string("prefill") ? dispatch::Role::kPrefill : dispatch::Role::kDecode;
        chains.push_back(in_role(is, chain(role + std::to_string(i), "127.0.0.1:" + std::to_string(port), 1 + i, 4)));
      }
    }
    controller_.set_table(table(1, std::move(chains)));
    gateway_ = std::make_unique<GatewayProcess>(std::vector<std::string>{controller_.url()});
    ASSERT_TRUE(gateway_->obeys({1, 1}));
  }

  // All requests at once, through the gateway; `meanwhile` when all are on their way.
  void ask_all(const std::function<void()>& meanwhile) {
    std::vector<std::future<std::optional<Message>>> answers;
    for (int i = 0; i < kRequests; ++i) {
      answers.push_back(std::async(std::launch::async,
                                   [this, i] { return ask(gateway_->port(), post(kCompletions, request_of(i).dump())); }));
    }
    meanwhile();
    int different = 0;
    for (int i = 0; i < kRequests; ++i) {
      const auto answer = answers[static_cast<std::size_t>(i)].get();
      ASSERT_TRUE(answer) << i;
      EXPECT_EQ(answer->status(), 200) << i << ": " << answer->body;
      different += text_of(answer->body) == expected_[static_cast<std::size_t>(i)] ? 0 : 1;
    }
    EXPECT_LE(different, 1) << "sums round differently in other company, so that a near tie may go another way";
    for (const char* name : {"prefill0", "prefill1", "decode0", "decode1"}) {
      EXPECT_TRUE(wait_until([&] { return gateway_->metric("windlass_gateway_requests_in_flight", {{"chain", name}}) <= 0; }));
    }
  }
  // Summed over the workers that answer.
  [[nodiscard]] double sum_of(const std::string& series) const {
    double sum = 0;
    for (const int port : ports_) {
      sum += std::max(0.0, worker::testing::metric(worker::testing::ask(port, "GET", "/metrics").body, series));
    }
    return sum;
  }

  std::vector<std::string> expected_;
  std::vector<std::unique_ptr<worker::testing::Process>> workers_;
  std::vector<int> ports_;
  FakeController controller_;
  std::unique_ptr<GatewayProcess> gateway_;
};

// Given more requests than there are slots, all have the texts of a lone worker, each prompt is computed once and received
// once, every worker has taken part, and nothing is held when they are over.
TEST_F(SplitSystem, ManyRequestsShareFourWorkers) {
  ask_all([] {});
  EXPECT_EQ(sum_of("windlass_worker_requests_finished_total{model=\"tiny\",reason=\"prefilled\"}"), kRequests);
  EXPECT_EQ(sum_of("windlass_worker_kv_transfers_total{model=\"tiny\",outcome=\"received\"}"), kRequests);
  EXPECT_EQ(sum_of("windlass_worker_kv_cache_blocks_used"), 0);
  for (const int port : ports_) {
    EXPECT_GT(
        worker::testing::metric(worker::testing::ask(port, "GET", "/metrics").body, "windlass_worker_iteration_seconds_count"),
        0);
  }
}

// Given a prefill worker that dies while requests pass through it, every client still gets its answer.
TEST_F(SplitSystem, APrefillWorkerDiesUnderLoad) {
  ask_all([&] {
    EXPECT_TRUE(
        wait_until([&] { return sum_of("windlass_worker_kv_transfers_total{model=\"tiny\",outcome=\"received\"}") >= 2; }));
    workers_[1]->signal(SIGKILL);
  });
  EXPECT_EQ(sum_of("windlass_worker_kv_cache_blocks_used"), 0);
}

}  // namespace
}  // namespace windlass::gateway::testing
