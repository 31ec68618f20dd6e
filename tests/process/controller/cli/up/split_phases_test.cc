// Changes a service's strategy to Disaggregated and back under load: real controller, strategies, gateway and workers.
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

constexpr int kChains = 7;

double sum_of(const std::vector<metrics::Exposition>& pages, const std::string& name,
              const std::map<std::string, std::string>& labels = {}) {
  double sum = 0;
  for (const auto& page : pages) sum += page.sum(name, labels).value_or(0);
  return sum;
}

// Given two ready workers, and a change to split phases and later back to whole workers, all under load; expects
// workers of both phases to start, prompts' keys and values to pass between them, the others to go, and the same in reverse.
// Every request is answered, with the same text for the same prompt throughout.
TEST(SplitPhases, ToDisaggregatedAndBackUnderLoad) {
  LocalRun run(2);
  ASSERT_TRUE(eventually(90, [&] { return run.at_rest(2); })) << run.logs();
  std::atomic<bool> done{false};
  std::atomic<int> finished{0};
  std::vector<std::string> wrong;
  std::map<int, std::set<std::string>> answers;  // by prompt
  std::thread client([&] {
    kube::CurlTransport transport(kube::CurlOptions{.max_parallel = 8});
    while (!done) {
      std::vector<kube::HttpRequest> batch;
      for (int i = 0; i < 8; ++i) {
        const int prompt = (finished + i) % kChains;
        batch.push_back(run.chat(
            fmt::format("Haul chain {} {}", prompt, std::string(static_cast<std::size_t>(9 * prompt), 'x')), 12, false));
      }
      const auto responses = transport.send_all(batch);
      for (std::size_t i = 0; i < responses.size(); ++i) {
        const int prompt = (finished + static_cast<int>(i)) % kChains;
        if (!responses[i].ok() || responses[i]->status != 200) {
          wrong.push_back(responses[i].ok() ? fmt::format("status {}: {}", responses[i]->status, responses[i]->body)
                                            : responses[i].error().message);
          continue;
        }
        answers[prompt].insert(nlohmann::json::parse(responses[i]->body)["choices"][0]["message"]["content"]);
      }
      finished += 8;
    }
  });

  std::string trouble;
  const auto reach = [&](const std::string& what, const std::function<bool()>& reached) {
    if (trouble.empty() && !eventually(90, reached)) trouble = "not reached: " + what;
  };
  reach("requests", [&] { return finished >= 40; });
  run.scale_to(4, "Disaggregated");
  reach("only workers of both phases", [&] {
    return run.at_rest(4) && !run.worker_metrics("prefill").empty() && !run.worker_metrics("decode").empty() &&
           run.worker_metrics("unified").empty();
  });
  const int split_at = finished;
  reach("requests in two steps", [&] { return finished >= split_at + 80; });
  const double taken = sum_of(run.worker_metrics("decode"), "windlass_worker_kv_transfers_total", {{"outcome", "received"}});
  const double handed =
      sum_of(run.worker_metrics("prefill"), "windlass_worker_requests_finished_total", {{"reason", "prefilled"}});
  run.scale_to(2, "Replicated");
  reach("only whole workers",
        [&] { return run.at_rest(2) && run.worker_metrics("prefill").empty() && run.worker_metrics("decode").empty(); });
  const int back_at = finished;
  reach("requests after that", [&] { return finished >= back_at + 40; });
  done = true;
  client.join();

  ASSERT_EQ(trouble, "") << run.logs();
  EXPECT_TRUE(wrong.empty()) << wrong.size() << " of " << finished << ", the first: " << (wrong.empty() ? "" : wrong[0])
                             << run.logs();
  EXPECT_GE(taken, 40) << handed;
  EXPECT_GE(handed, 40);
  for (const auto& [prompt, texts] : answers) EXPECT_EQ(texts.size(), 1U) << "prompt " << prompt << " was answered differently";
}

}  // namespace
}  // namespace windlass::cli
