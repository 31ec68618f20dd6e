// The metrics pages of our own programs, read back by our own parser.
#include "metrics/registry.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "metrics/buckets.h"
#include "metrics/bundles.h"
#include "metrics/exposition_parser.h"

namespace windlass::metrics {
namespace {

// Given counters, gauges and histograms with labels that need escaping; expects the page to parse back to the same values.
TEST(Registry, ExpositionParsesBack) {
  Registry registry;
  auto requests = registry.counters("requests_total", "Requests.");
  const std::string odd = "a\"b\\c\nd";
  requests.with({{"model", odd}}).add(3);
  requests.with({{"model", odd}}).add();
  requests.with({{"model", "other"}}).add(-5);
  registry.gauges("depth", "Depth.").with({}).set(2.5);
  auto latency = registry.histograms("latency_seconds", "Latency.", {0.1, 1});
  for (double value : {0.05, 0.1, 0.5, 7.0}) latency.with({}).observe(value);

  auto page = parse_exposition(exposition(registry));
  ASSERT_TRUE(page.ok()) << page.error().message;
  EXPECT_EQ(page->sum("requests_total", {{"model", odd}}), 4);
  EXPECT_EQ(page->sum("requests_total", {{"model", "other"}}), 0);
  EXPECT_EQ(page->sum("depth"), 2.5);
  EXPECT_EQ(page->types.at("requests_total"), MetricType::kCounter);
  auto histogram = page->histogram("latency_seconds");
  ASSERT_TRUE(histogram.ok()) << histogram.error().message;
  EXPECT_EQ(histogram->counts, (std::vector<double>{2, 3, 4}));
  EXPECT_DOUBLE_EQ(histogram->sum, 7.65);
}

// Given one instrument of each kind, with odd texts and numbers; expects the page of the text format (0.0.4), byte for byte.
TEST(Registry, ThePageIsTheTextFormat) {
  Registry registry;
  auto gauges = registry.gauges("depth", "Back\\slash,\nline, \"quotes\".");
  gauges.with({{"kind", "a\"b\\c\nd"}}).set(0.1);
  EXPECT_EQ(registry.exposition(),
            "# HELP depth Back\\\\slash,\\nline, \"quotes\".\n"
            "# TYPE depth gauge\n"
            "depth{kind=\"a\\\"b\\\\c\\nd\"} 0.1\n");
  gauges.with({{"kind", "a\"b\\c\nd"}}).set(std::numeric_limits<double>::infinity());
  EXPECT_NE(registry.exposition().find("} +Inf\n"), std::string::npos);
  gauges.with({{"kind", "a\"b\\c\nd"}}).set(std::nan(""));
  EXPECT_NE(registry.exposition().find("} NaN\n"), std::string::npos);

  Registry others;
  others.counters("requests_total", "Requests.").with({}).add(1.5e20);
  EXPECT_EQ(others.exposition(), "# HELP requests_total Requests.\n# TYPE requests_total counter\nrequests_total 1.5e+20\n");

  Registry timed;
  auto latency = timed.histograms("latency_seconds", "Latency.", {0.1, 1});
  latency.with({{"model", "a"}, {"zone", "b"}}).observe(0.5);
  EXPECT_EQ(timed.exposition(),
            "# HELP latency_seconds Latency.\n"
            "# TYPE latency_seconds histogram\n"
            "latency_seconds_count{model=\"a\",zone=\"b\"} 1\n"
            "latency_seconds_sum{model=\"a\",zone=\"b\"} 0.5\n"
            "latency_seconds_bucket{model=\"a\",zone=\"b\",le=\"0.1\"} 0\n"
            "latency_seconds_bucket{model=\"a\",zone=\"b\",le=\"1\"} 1\n"
            "latency_seconds_bucket{model=\"a\",zone=\"b\",le=\"+Inf\"} 1\n");
}

// Given a gauge whose labels are removed; expects its series to leave the page and the others to stay.
TEST(Registry, RemovedSeriesLeaves) {
  Registry registry;
  auto gauges = registry.gauges("in_flight", "In flight.");
  gauges.with({{"chain", "a"}}).set(1);
  gauges.with({{"chain", "b"}}).set(2);
  gauges.remove({{"chain", "a"}});
  auto page = parse_exposition(registry.exposition());
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->label_values("in_flight", "chain"), (std::vector<std::string>{"b"}));
}

// Given each program's bundle; expects the names of the contract on its page, without labels that nobody set.
TEST(Bundles, ExposeTheContractsNames) {
  Registry worker_registry;
  WorkerMetrics worker(worker_registry, "tiny");
  worker.requests_finished("stop").add();
  worker.time_to_first_token.observe(0.03);
  auto page = parse_exposition(worker_registry.exposition());
  ASSERT_TRUE(page.ok()) << page.error().message;
  const std::map<std::string, std::string> tiny{{"model", "tiny"}};
  for (const char* name :
       {"windlass_worker_requests_running", "windlass_worker_requests_waiting", "windlass_worker_kv_cache_usage_ratio",
        "windlass_worker_prompt_tokens_total", "windlass_worker_generation_tokens_total",
        "windlass_worker_requests_finished_total", "windlass_worker_model_load_seconds",
        "windlass_worker_time_per_output_token_seconds_count", "windlass_worker_e2e_request_latency_seconds_count"}) {
    EXPECT_EQ(page->find(name, tiny).size(), 1U) << name;
  }
  auto ttft = page->histogram("windlass_worker_time_to_first_token_seconds", tiny);
  ASSERT_TRUE(ttft.ok());
  EXPECT_EQ(ttft->bounds.size(), time_to_first_token_bounds_s().size() + 1);
  EXPECT_EQ(ttft->count(), 1);
  EXPECT_GT(page->sum("process_start_time_seconds").value_or(0), 1.6e9);

  Registry gateway_registry;
  GatewayMetrics gateway(gateway_registry);
  gateway.requests_started.with(tiny).add();
  gateway.requests_finished.with({{"model", "tiny"}, {"code", "200"}}).add();
  gateway.routing_table_counter.set(7);
  page = parse_exposition(gateway_registry.exposition());
  ASSERT_TRUE(page.ok()) << page.error().message;
  EXPECT_EQ(page->sum("windlass_gateway_requests_started_total", tiny), 1);
  EXPECT_EQ(page->sum("windlass_gateway_requests_finished_total", {{"code", "200"}}), 1);
  EXPECT_EQ(page->sum("windlass_gateway_routing_table_revision"), 7);

  Registry controller_registry;
  ControllerMetrics controller(controller_registry);
  controller.desired_workers.with({{"namespace", "default"}, {"name", "tiny"}, {"role", "unified"}}).set(3);
  controller.leader.set(1);
  page = parse_exposition(controller_registry.exposition());
  ASSERT_TRUE(page.ok()) << page.error().message;
  EXPECT_EQ(page->sum("windlass_controller_desired_workers", {{"role", "unified"}}), 3);
  EXPECT_EQ(page->sum("windlass_controller_leader"), 1);
  EXPECT_EQ(page->sum("windlass_controller_reconcile_duration_seconds_count"), 0);
}

}  // namespace
}  // namespace windlass::metrics
