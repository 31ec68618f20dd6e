// Sends 1,000 requests through three scale-downs: none is lost, none is answered twice.
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/controller/cli/local/local_run.h"

namespace windlass::cli {
namespace {

constexpr int kRequests = 1000;
constexpr int kMaxTokens = 24;
constexpr int kPrompts = 10;

// The joined content of a stream's chunks. Adds to `wrong` whatever does not belong in a single complete response.
std::string content_of(const std::string& body, std::vector<std::string>& wrong) {
  std::string content;
  int finishes = 0;
  std::set<std::string> ids;
  for (std::size_t at = 0; at < body.size();) {
    const auto end = std::min(body.find('\n', at), body.size());
    const std::string line = body.substr(at, end - at);
    at = end + 1;
    if (line.rfind("data: {", 0) != 0) continue;
    const auto chunk = nlohmann::json::parse(line.substr(6), nullptr, false);
    if (chunk.is_discarded() || chunk.contains("error")) {
      wrong.push_back("a chunk that is not JSON, or an error: " + line);
      continue;
    }
    ids.insert(chunk.value("id", ""));
    for (const auto& choice : chunk.value("choices", nlohmann::json::array())) {
      if (choice.contains("delta")) content += choice["delta"].value("content", "");
      if (choice.contains("finish_reason") && choice["finish_reason"].is_string()) ++finishes;
    }
  }
  if (finishes != 1) wrong.push_back(fmt::format("{} finish reasons in one answer", finishes));
  if (ids.size() != 1) wrong.push_back(fmt::format("{} answer ids in one answer", ids.size()));
  if (count_of(body, "data: [DONE]") != 1) wrong.push_back("not exactly one [DONE]");
  return content;
}

// Given four workers under a steady stream of requests, and a person who removes one worker three times; expects every request
// to get status 200 and one complete response, the same for a prompt on every worker, and the gateway to count each once.
TEST(ScaleDown, ThousandRequestsNoneLostNoneTwice) {
  LocalRun run(4);
  ASSERT_TRUE(eventually(90, [&] { return run.at_rest(4); })) << run.logs();

  std::atomic<bool> scaled_down{false};
  std::atomic<int> finished{0};
  std::vector<Result<kube::HttpResponse>> responses;
  std::thread client([&] {
    kube::CurlTransport transport(kube::CurlOptions{.max_parallel = 32});
    while (finished < kRequests || !scaled_down) {
      std::vector<kube::HttpRequest> batch;
      for (int i = 0; i < 50; ++i) {
        batch.push_back(run.chat(fmt::format("Prompt number {}", (finished + i) % kPrompts), kMaxTokens, true));
      }
      for (auto& response : transport.send_all(batch)) responses.push_back(std::move(response));
      finished += 50;
    }
  });

  // Each step starts during the load and is over before the next.
  std::string trouble;
  int drains_seen = 0;
  for (int step = 0; step < 3 && trouble.empty(); ++step) {
    if (!eventually(60, [&] { return finished >= 100 + 250 * step; }))
      trouble = fmt::format("the load made no progress before step {}", step);
    run.scale_to(3 - step);
    bool drained = false;
    const bool reached = eventually(60, [&] {
      const auto row = run.row();
      drained = drained || (row && row->draining > 0);
      return run.at_rest(3 - step);
    });
    drains_seen += drained ? 1 : 0;
    if (!reached) trouble = fmt::format("step {} did not reach {} workers", step, 3 - step);
  }
  scaled_down = true;
  client.join();
  ASSERT_EQ(trouble, "") << run.logs();
  EXPECT_GE(drains_seen, 1) << "no worker was ever seen draining";

  ASSERT_GE(responses.size(), static_cast<std::size_t>(kRequests));
  std::vector<std::string> wrong;
  std::set<std::string> request_ids;
  std::set<std::string> workers;
  std::map<int, std::set<std::string>> answers;  // by prompt
  for (std::size_t i = 0; i < responses.size(); ++i) {
    if (!responses[i].ok()) {
      wrong.push_back("lost: " + responses[i].error().message);
      continue;
    }
    if (responses[i]->status != 200) {
      wrong.push_back(fmt::format("status {}: {}", responses[i]->status, responses[i]->body));
      continue;
    }
    answers[static_cast<int>(i) % kPrompts].insert(content_of(responses[i]->body, wrong));
    request_ids.insert(responses[i]->headers.at("x-request-id"));
    workers.insert(responses[i]->headers.at("x-windlass-worker"));
  }
  EXPECT_TRUE(wrong.empty()) << wrong.size() << " wrong, the first: " << (wrong.empty() ? "" : wrong[0]) << run.logs();
  EXPECT_EQ(request_ids.size(), responses.size());
  EXPECT_EQ(workers.size(), 4u) << "each worker has served";
  for (const auto& [prompt, texts] : answers) EXPECT_EQ(texts.size(), 1u) << "prompt " << prompt << " was answered differently";

  const auto page = run.gateway_metrics();
  const auto total = static_cast<double>(responses.size());
  EXPECT_EQ(page.sum("windlass_gateway_requests_started_total").value_or(0), total);
  EXPECT_EQ(page.sum("windlass_gateway_requests_finished_total", {{"code", "200"}}).value_or(0), total);
}

}  // namespace
}  // namespace windlass::cli
