// The real gateway before real workers of which each has a part of the model (docs/decisions/2026-11-22-chains-of-workers.md).
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

class ChainSystem : public worker::testing::Worker {
 protected:
  static constexpr int kMany = 24;

  static std::string body_of(int i) {
    std::string prompt;
    for (int word = 0; word < 4 + 12 * (i % 5); ++word) prompt += "anchor " + std::to_string(i * 7 + word) + " ";
    return json{{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 80 + i % 4}, {"temperature", 0}}.dump();
  }
  static std::string text_in(const std::string& body) {
    const json whole = json::parse(body, nullptr, false);
    return whole.is_discarded() || !whole.contains("choices") ? body : whole["choices"][0]["text"].get<std::string>();
  }

  // Two chains, 0:1 > 1:2 > 2:3 and 0:2 > 1:3: in the second a block is at both workers.
  void SetUp() override {
    Worker::SetUp();
    make_model();
    std::ofstream(folder_ / "token") << "the-token-of-this-installation\n";
    const int alone = worker::testing::free_port();
    const auto reference = start_at(alone);
    for (int i = 0; i < kMany; ++i) {
      expected_.push_back(text_in(worker::testing::ask(alone, "POST", "/v1/completions", body_of(i)).body));
    }
    std::vector<dispatch::Chain> chains;
    for (const std::vector<std::string>& parts : {std::vector<std::string>{"0:1", "1:2", "2:3"}, {"0:2", "1:3"}}) {
      dispatch::Chain made;
      for (const std::string& blocks : parts) {
        const int port = worker::testing::free_port();
        workers_.push_back(start_at(port, {"--blocks", blocks, "--token-file", (folder_ / "token").string()}));
        ports_.push_back(port);
        const std::string address = "127.0.0.1:" + std::to_string(port);
        if (made.hops.empty()) {
          made = chain("c" + std::to_string(chains.size()), address, 1 + static_cast<double>(chains.size()), 4);
        } else {
          made.hops.push_back(address);
        }
      }
      chains.push_back(std::move(made));
    }
    controller_.set_table(table(1, std::move(chains)));
    gateway_ = std::make_unique<GatewayProcess>(std::vector<std::string>{controller_.url()});
    ASSERT_TRUE(gateway_->obeys({1, 1}));
  }

  // All requests at once, through the gateway; `meanwhile` when all are on their way.
  void ask_all(const std::function<void()>& meanwhile) {
    std::vector<std::future<std::optional<Message>>> answers;
    for (int i = 0; i < kMany; ++i) {
      answers.push_back(
          std::async(std::launch::async, [this, i] { return ask(gateway_->port(), post("/v1/completions", body_of(i))); }));
    }
    meanwhile();
    int different = 0;
    for (int i = 0; i < kMany; ++i) {
      const auto answer = answers[static_cast<std::size_t>(i)].get();
      ASSERT_TRUE(answer) << i;
      EXPECT_EQ(answer->status(), 200) << i << ": " << answer->body;
      different += text_in(answer->body) == expected_[static_cast<std::size_t>(i)] ? 0 : 1;
    }
    EXPECT_LE(different, 1) << "sums round differently in other company, so that a near tie may go another way";
  }
  [[nodiscard]] double metric_at(std::size_t i, const std::string& series) const {
    return worker::testing::metric(worker::testing::ask(ports_[i], "GET", "/metrics").body, series);
  }
  void expect_nothing_held(const std::vector<std::size_t>& workers) const {
    for (const std::size_t i : workers) {
      EXPECT_TRUE(wait_until([&] { return metric_at(i, "windlass_worker_kv_cache_blocks_used") == 0; })) << i;
    }
  }

  std::vector<std::string> expected_;
  std::vector<std::unique_ptr<worker::testing::Process>> workers_;
  std::vector<int> ports_;
  FakeController controller_;
  std::unique_ptr<GatewayProcess> gateway_;
};

// Given more requests than there are slots, all have the texts of a lone worker, both chains have taken part, and nothing is
// held when they are over.
TEST_F(ChainSystem, ManyRequestsShareTwoChains) {
  ask_all([] {});
  expect_nothing_held({0, 1, 2, 3, 4});
  for (std::size_t i = 0; i < ports_.size(); ++i) EXPECT_GT(metric_at(i, "windlass_worker_iteration_seconds_count"), 0) << i;
}

// Given a later worker that dies while requests pass through it, every client still gets its answer: those requests begin anew
// at the other chain.
TEST_F(ChainSystem, ALaterWorkerDiesUnderLoad) {
  ask_all([&] {
    EXPECT_TRUE(wait_until([&] { return metric_at(2, "windlass_worker_iteration_seconds_count") > 3; }));
    workers_[2]->signal(SIGKILL);
  });
  expect_nothing_held({0, 1, 3, 4});
  const double broken = gateway_->metric("windlass_gateway_upstream_errors_total", {{"reason", "broken"}});
  EXPECT_GE(broken, 1);
}

// Given a chain whose cut goes to and fro while requests pass through it, every client gets its answer: what runs ends first,
// and what is refused meanwhile is served later, or by the other chain.
TEST_F(ChainSystem, ACutMovesUnderLoad) {
  const auto change = [&](std::size_t i, const std::string& blocks) {
    const auto answer = worker::testing::ask(ports_[i], "POST", "/blocks", json{{"blocks", blocks}}.dump(),
                                             "Authorization: Bearer the-token-of-this-installation\r\n");
    EXPECT_EQ(answer.status, 200) << answer.body;
  };
  ask_all([&] {
    EXPECT_TRUE(wait_until([&] { return metric_at(4, "windlass_worker_iteration_seconds_count") > 3; }));
    change(4, "2:3");  // after 0:2
    change(4, "1:3");
    change(3, "0:1");
    change(3, "0:2");
  });
  expect_nothing_held({0, 1, 2, 3, 4});
  ask_all([] {});
}

}  // namespace
}  // namespace windlass::gateway::testing
