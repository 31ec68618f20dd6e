// Replays minutes of a real trace on 200 simulated nodes while the API server, etcd and the leading controller are killed, and
// checks the fake workers' responses.
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cluster/kwok/trace_run.h"
#include "tests/paths.h"

namespace windlass::testing {
namespace {

const std::string kTrace = source_path("/../shared/data/traces/AzureLLMInferenceTrace_conv.csv");

// Given eight minutes of Azure's conversation trace at six times its speed, for fifty services on 200 nodes, and SIGKILL of the
// API server, etcd and the leader in turn; expects every request to be answered completely, no violation, and a leader again
// within 90 s after each kill.
TEST(KwokTest, NoRequestIsLostWhileComponentsAreKilled) {
  if (const auto tools = KwokCluster::available(); !tools.ok()) {
    if (std::getenv("WINDLASS_REQUIRE_CLUSTER") == nullptr || std::getenv("KUBEBUILDER_ASSETS") != nullptr) {
      GTEST_SKIP() << tools.error().message;
    }
    FAIL() << tools.error().message;
  }
  if (!std::filesystem::exists(kTrace)) GTEST_SKIP() << kTrace << " does not exist";
  TraceRunOptions options;
  options.trace_path = kTrace;
  options.acceleration = 6;
  options.trace_from_s = 600;
  options.trace_s = 480;
  options.kills = {{"kube-apiserver", 15}, {"etcd", 35}, {"leader", 55}};
  options.say = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
  const auto report = run_trace(options);
  ASSERT_TRUE(report.ok()) << report.error().message;
  fmt::print("{}", report->table());
  for (const auto& [failure, count] : report->load.failures) fmt::print("{} x {}\n", count, failure);
  for (const SlowAnswer& slow : report->load.slowest) {
    fmt::print("first token after {:.1f} s: {}, sent at {:.1f} s\n", slow.ttft_s, slow.model, slow.sent_at_s);
  }
  EXPECT_EQ(report->load.sent, report->load.planned);
  EXPECT_EQ(report->load.answered, report->load.planned);
  EXPECT_EQ(report->load.lost, 0);
  EXPECT_EQ(report->load.refused, 0);
  EXPECT_TRUE(report->violations.empty());
  EXPECT_EQ(report->recoveries.size(), 3u);
  for (const Recovery& one : report->recoveries) EXPECT_LT(one.recovered_s, 90) << one.what;
  EXPECT_GE(report->pods_created, options.services);
}

}  // namespace
}  // namespace windlass::testing
