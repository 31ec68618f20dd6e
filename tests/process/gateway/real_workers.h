// The real gateway in front of real workers, with one client per request, all at the same time; each answer is compared with
// that of a single worker.
#pragma once

#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/gateway/harness.h"
#include "tests/process/worker/serve/worker_process.h"

namespace windlass::gateway::testing {

class RealWorkers : public worker::testing::Worker {
 protected:
  static constexpr const char* kCompletions = "/v1/completions";
  static constexpr const char* kToken = "token-of-these-workers";

  // Prompts of several lengths, some longer than one iteration takes.
  static nlohmann::json request_of(int i, int tokens) {
    std::string prompt;
    for (int word = 0; word < 4 + 12 * (i % 5); ++word) prompt += "anchor " + std::to_string(i * 7 + word) + " ";
    return {{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", tokens + i % 4}, {"temperature", 0}};
  }

  // Creates the model, and has one worker answer the requests.
  void expect_answers_to(std::vector<std::string> requests) {
    requests_ = std::move(requests);
    make_model();
    const One alone = start_one({});
    for (const std::string& each : requests_) {
      expected_.push_back(text_of(worker::testing::ask(alone.port, "POST", kCompletions, each).body));
    }
    ::setenv("WINDLASS_WORKER_TOKEN", kToken, 1);  // for workers started from here on: they and the gateway must use it
  }
  void TearDown() override {
    ::unsetenv("WINDLASS_WORKER_TOKEN");
    Worker::TearDown();
  }
  void start_gateway(std::vector<dispatch::Chain> chains,
                     const dispatch::PolicySettings& settings = {.policy = dispatch::kDefaultPolicy}) {
    set_table(1, std::move(chains), settings);
    gateway_ = std::make_unique<GatewayProcess>(std::vector<std::string>{controller_.url()});
    ASSERT_TRUE(gateway_->obeys({1, 1}));
  }
  void set_table(std::int64_t counter, std::vector<dispatch::Chain> chains, const dispatch::PolicySettings& settings) {
    for (dispatch::Chain& each : chains) each.token = kToken;
    dispatch::RoutingTable next = table(counter, std::move(chains));
    next.models.front().dispatch = settings;
    controller_.set_table(std::move(next));
  }

  using Answer = std::future<std::optional<Message>>;

  // Sends this request through the gateway.
  Answer begin(std::size_t i) {
    return std::async(std::launch::async, [this, i] { return ask(gateway_->port(), post(kCompletions, requests_[i])); });
  }
  // Waits for the answers to all requests, in order.
  void expect_texts_of_one_worker(std::vector<Answer>& answers) const {
    ASSERT_EQ(answers.size(), expected_.size());
    int different = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const auto answer = answers[i].get();
      ASSERT_TRUE(answer) << i;
      EXPECT_EQ(answer->status(), 200) << i << ": " << answer->body;
      different += text_of(answer->body) == expected_[i] ? 0 : 1;
    }
    EXPECT_LE(different, 1) << "sums round differently in other company, so that a near tie may go another way";
  }
  // Sends all requests at once through the gateway; calls `meanwhile` when all are on their way.
  void ask_all(const std::function<void()>& meanwhile) {
    std::vector<Answer> answers;
    for (std::size_t i = 0; i < requests_.size(); ++i) answers.push_back(begin(i));
    meanwhile();
    expect_texts_of_one_worker(answers);
  }
  // -1 when the worker does not answer.
  [[nodiscard]] double metric_at(std::size_t worker, const std::string& series) const {
    return metric_of(workers_[worker], series);
  }

  std::vector<One> workers_;
  FakeController controller_;
  std::unique_ptr<GatewayProcess> gateway_;

 private:
  static std::string text_of(const std::string& body) {
    const nlohmann::json whole = nlohmann::json::parse(body, nullptr, false);
    if (whole.is_discarded()) return worker::testing::parse_stream(body).text;
    return whole.contains("choices") ? whole["choices"][0]["text"].get<std::string>() : body;
  }

  std::vector<std::string> requests_;
  std::vector<std::string> expected_;  // texts
};

}  // namespace windlass::gateway::testing
