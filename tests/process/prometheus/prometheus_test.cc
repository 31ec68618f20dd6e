// The real Prometheus scrapes a controller, a gateway and a worker that served a known number of requests; the tests check what
// it recorded.
#include <cmath>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cluster/harness/process.h"
#include "tests/process/prometheus/prometheus_fixture.h"

namespace windlass::testing {
namespace {

// Given the three programs; expects Prometheus to scrape each without an error.
TEST_F(PrometheusTest, EveryProgramIsUp) {
  for (const char* job : {"controller", "gateway", "worker"}) {
    EXPECT_EQ(ask(fmt::format("up{{job=\"{}\"}}", job)).value, 1) << job;
  }
}

// Given twenty streamed requests; expects the counters of gateway and worker to match: arrivals, ends, tokens.
TEST_F(PrometheusTest, CountersAddUp) {
  EXPECT_TRUE(becomes("sum(windlass_gateway_requests_started_total{model=\"tiny\"})", kRequests));
  EXPECT_TRUE(becomes("sum(windlass_gateway_requests_finished_total{model=\"tiny\",code=\"200\"})", kRequests));
  EXPECT_TRUE(becomes("sum(windlass_gateway_requests_judged_total{model=\"tiny\"})", kRequests));
  EXPECT_TRUE(becomes("sum(windlass_worker_requests_finished_total{model=\"tiny\"})", kRequests));
  const Sample tokens = ask("sum(windlass_worker_generation_tokens_total{model=\"tiny\"})");
  EXPECT_GT(tokens.value, 0);
  EXPECT_LE(tokens.value, kRequests * kTokens);
  EXPECT_GT(ask("sum(windlass_worker_prompt_tokens_total{model=\"tiny\"})").value, 0);
}

// Given the same requests; expects the histograms to give quantiles as a dashboard queries them, and the worker's times not to
// exceed the gateway's, which include them.
TEST_F(PrometheusTest, HistogramsGiveQuantiles) {
  ASSERT_TRUE(becomes("sum(windlass_worker_time_to_first_token_seconds_count{model=\"tiny\"})", kRequests));
  ASSERT_TRUE(becomes("sum(windlass_gateway_time_to_first_token_seconds_count{model=\"tiny\"})", kRequests));
  for (const char* name : {"windlass_worker_time_to_first_token_seconds", "windlass_worker_time_per_output_token_seconds",
                           "windlass_worker_e2e_request_latency_seconds", "windlass_gateway_time_to_first_token_seconds"}) {
    const Sample quantile =
        ask(fmt::format("histogram_quantile(0.95, sum by (le) (rate({}_bucket{{model=\"tiny\"}}[1h])))", name));
    EXPECT_TRUE(quantile.found) << name;
    EXPECT_TRUE(std::isfinite(quantile.value) && quantile.value > 0) << name << ": " << quantile.value;
  }
  EXPECT_LE(ask("sum(windlass_worker_time_to_first_token_seconds_sum)").value,
            ask("sum(windlass_gateway_time_to_first_token_seconds_sum)").value);
}

// Given a controller that has planned; expects its gauges to report the wanted and existing workers.
TEST_F(PrometheusTest, ControllerReportsItsPlan) {
  EXPECT_TRUE(becomes("sum(windlass_controller_desired_workers{namespace=\"default\",name=\"tiny\"})", 1));
  EXPECT_TRUE(becomes("sum(windlass_controller_ready_workers{namespace=\"default\",name=\"tiny\"})", 1));
  EXPECT_EQ(ask("windlass_controller_leader").value, 1);
  EXPECT_GT(ask("sum(windlass_controller_reconcile_duration_seconds_count)").value, 0);
}

// Given each program's metrics page; expects `promtool check metrics` to find no problem.
TEST_F(PrometheusTest, PromtoolAcceptsTheExposition) {
  for (const std::string& target : {system().controller(), system().gateway_admin(), worker()}) {
    const HttpAnswer exposed = http_get("http://" + target + "/metrics");
    ASSERT_EQ(exposed.status, 200) << target;
    ASSERT_NE(exposed.body.find("windlass_"), std::string::npos) << target;
    const CommandResult checked = run_command({"promtool", "check", "metrics"}, exposed.body);
    EXPECT_TRUE(checked.ok()) << target << ": " << checked.describe();
  }
}

}  // namespace
}  // namespace windlass::testing
