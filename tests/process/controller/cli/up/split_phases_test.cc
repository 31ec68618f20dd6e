// Changes a service's strategy to Disaggregated and back under load: real controller, strategies, gateway and workers.
#include <map>

#include <gtest/gtest.h>

#include "tests/process/controller/cli/local/steady_client.h"

namespace windlass::cli {
namespace {

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
  SteadyClient client(run);

  std::string trouble;
  const auto reach = [&](const std::string& what, const std::function<bool()>& reached) {
    if (trouble.empty() && !eventually(90, reached)) trouble = "not reached: " + what;
  };
  reach("requests", [&] { return client.finished() >= 40; });
  run.scale_to(4, "Disaggregated");
  reach("only workers of both phases", [&] {
    // How many prefill workers a decode worker needs depends on this machine; with 1.5, four workers are one too many or one
    // too few.
    return (run.at_rest(3) || run.at_rest(4)) && !run.worker_metrics("prefill").empty() &&
           !run.worker_metrics("decode").empty() && run.worker_metrics("unified").empty();
  });
  const int split_at = client.finished();
  reach("requests in two steps", [&] { return client.finished() >= split_at + 80; });
  const double taken = sum_of(run.worker_metrics("decode"), "windlass_worker_kv_transfers_total", {{"outcome", "received"}});
  const double handed =
      sum_of(run.worker_metrics("prefill"), "windlass_worker_requests_finished_total", {{"reason", "prefilled"}});
  run.scale_to(2, "Replicated");
  reach("only whole workers",
        [&] { return run.at_rest(2) && run.worker_metrics("prefill").empty() && run.worker_metrics("decode").empty(); });
  const int back_at = client.finished();
  reach("requests after that", [&] { return client.finished() >= back_at + 40; });
  client.stop();

  ASSERT_EQ(trouble, "") << run.logs();
  expect_no_failure(client, run);
  EXPECT_GE(taken, 40) << handed;
  EXPECT_GE(handed, 40);
}

}  // namespace
}  // namespace windlass::cli
