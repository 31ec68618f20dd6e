// Tests the rows of `windlass top`, from a snapshot, a plan and a gateway's metrics.
#include "controller/cli/live/live_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/console/text_table.h"
#include "metrics/latency_bins.h"

namespace windlass::cli {
namespace {

using planner::WorkerState;
using testing::HasSubstr;

planner::Worker worker(WorkerState state) {
  planner::Worker out;
  out.state = state;
  return out;
}

planner::Snapshot snapshot() {
  planner::Service service;
  service.id = {"default", "tiny", "uid"};
  service.served_name = "tiny-model";
  service.slo = {2, 0.1, 95, 60};
  service.workers = {worker(WorkerState::kReady),         worker(WorkerState::kReady),    worker(WorkerState::kStarting),
                     worker(WorkerState::kUnschedulable), worker(WorkerState::kDraining), worker(WorkerState::kFailed)};
  service.demand.arrivals_per_s = planner::Reading{1.5, 99};
  service.demand.attainment = planner::Reading{0.97, 99};
  service.demand.ttft_s = planner::Reading{0.4, 99};
  planner::Snapshot out;
  out.now_s = 100;
  out.services = {service};
  return out;
}

planner::Plan plan(int workers) {
  planner::ServicePlan service;
  service.id = {"default", "tiny", "uid"};
  planner::Pool pool;
  pool.workers = workers;
  service.pools = {pool};
  service.predicted.cost_per_hour = 1.25;
  service.feasible = {planner::Truth::kTrue, "Fits", ""};
  planner::Plan out;
  out.services = {service};
  return out;
}

metrics::Exposition gateway_page(int started, int queued, int fast, int slow) {
  const auto histogram = [&](const std::string& name) {
    return "# TYPE " + name + " histogram\n" + name + "_bucket{model=\"tiny-model\",le=\"0.1\"} " + std::to_string(fast) +
           "\n" + name + "_bucket{model=\"tiny-model\",le=\"1\"} " + std::to_string(fast + slow) + "\n" + name +
           "_bucket{model=\"tiny-model\",le=\"+Inf\"} " + std::to_string(fast + slow) + "\n" + name +
           "_sum{model=\"tiny-model\"} 1\n" + name + "_count{model=\"tiny-model\"} " + std::to_string(fast + slow) + "\n";
  };
  const auto page = metrics::parse_exposition(
      "windlass_gateway_requests_started_total{model=\"tiny-model\"} " + std::to_string(started) +
      "\nwindlass_gateway_requests_started_total{model=\"other\"} 1000\n" +
      "windlass_gateway_queue_length{model=\"tiny-model\"} " + std::to_string(queued) + "\n" +
      histogram("windlass_gateway_time_to_first_token_seconds") + histogram("windlass_gateway_time_per_output_token_seconds"));
  EXPECT_TRUE(page.ok());
  return *page;
}

// Given workers in every state and a plan of five; expects each state counted once, and the controller's figures.
TEST(LiveView, CountsWorkersWithoutGateway) {
  LiveView view;
  view.observe(10, snapshot(), plan(5), {});
  ASSERT_EQ(view.rows().size(), 1u);
  const ServiceRow& row = view.rows()[0];
  EXPECT_EQ(row.desired, 5);
  EXPECT_EQ(row.ready, 2);
  EXPECT_EQ(row.starting, 2);
  EXPECT_EQ(row.draining, 1);
  EXPECT_EQ(row.failed, 1);
  EXPECT_DOUBLE_EQ(row.arrivals_per_s.value(), 1.5);
  EXPECT_DOUBLE_EQ(row.ttft_s.value(), 0.4);
  EXPECT_DOUBLE_EQ(row.cost_per_hour, 1.25);
  EXPECT_EQ(row.trouble_code, "");
}

// Given two readings of a gateway; expects arrivals from this model's increase between them and latencies of the window.
// Requests before the first reading do not count.
TEST(LiveView, MeasuresFromTheGateway) {
  LiveView view(15);
  view.observe(0, snapshot(), plan(1), {{"g", gateway_page(100, 0, 1000, 0)}});
  EXPECT_DOUBLE_EQ(view.rows()[0].ttft_s.value(), 0.4) << "one reading is no window: the controller's figure stands";
  view.observe(10, snapshot(), plan(1), {{"g", gateway_page(150, 7, 1000, 100)}});
  const ServiceRow& row = view.rows()[0];
  EXPECT_DOUBLE_EQ(row.arrivals_per_s.value(), 5);
  EXPECT_DOUBLE_EQ(row.queued.value(), 7);
  EXPECT_GT(row.ttft_s.value(), 0.9);
  EXPECT_LE(row.ttft_s.value(), 1.0);
}

// Given an overload as a client saw it, with TPOT 1.7 ms and TTFT up to 12.6 s, in the bins of two gateways and in the buckets
// of an older one; expects the client's figures from the bins, and only a bound from the buckets.
TEST(LiveView, ShowsTheClientsPercentiles) {
  metrics::LatencyBins ttft[2], tpot[2];
  const auto bins_page = [&](int i) {
    std::string text;
    ttft[i].write(text, metrics::kGatewayTtft, "tiny-model");
    tpot[i].write(text, metrics::kGatewayTpot, "tiny-model");
    metrics::Exposition page = gateway_page(0, 0, 0, 0);
    metrics::add_latency_bins(page, *metrics::parse_exposition(text));
    return page;
  };
  const auto pages = [&] { return std::map<std::string, metrics::Exposition>{{"a", bins_page(0)}, {"b", bins_page(1)}}; };
  LiveView view(15);
  view.observe(0, snapshot(), plan(1), pages());
  for (int i = 1; i <= 200; ++i) {  // P95 is the 190th of each
    ttft[i % 2].observe(12.6 * i / 190);
    tpot[i % 2].observe(0.0017 * i / 190);
  }
  view.observe(10, snapshot(), plan(1), pages());
  const ServiceRow& row = view.rows()[0];
  EXPECT_NEAR(row.ttft_s.value(), 12.6, 12.6 * 0.02);
  EXPECT_NEAR(row.tpot_s.value(), 0.0017, 0.0017 * 0.02);
  EXPECT_EQ(row.ttft_bound, Bound::kNone);
  EXPECT_THAT(table_text(view.rows()), HasSubstr(seconds_text(row.ttft_s) + "/2.00s"));

  LiveView older(15);
  older.observe(0, snapshot(), plan(1), {{"a", gateway_page(0, 0, 0, 0)}});
  older.observe(10, snapshot(), plan(1), {{"a", gateway_page(0, 0, 200, 0)}});
  EXPECT_EQ(older.rows()[0].tpot_bound, Bound::kBelow);
  EXPECT_THAT(table_text(older.rows()), HasSubstr("<100ms/2.00s"));
  EXPECT_THAT(line_text(older.rows()[0]), HasSubstr("TPOT p95 <100ms/100ms"));
  EXPECT_THAT(csv_line(1, older.rows()[0]), HasSubstr(",<0.1,<0.1,"));
}

// Given rows; expects the percentile in the table's header, measurement and objective in its cells, and trouble below.
TEST(LiveView, PrintsTableLineAndCsv) {
  LiveView view;
  auto troubled = plan(3);
  troubled.services[0].able_to_scale = {planner::Truth::kFalse, "QuotaExceeded", "no room for 2 workers"};
  view.observe(10, snapshot(), troubled, {});
  const std::string table = table_text(view.rows());
  EXPECT_THAT(table, HasSubstr("TTFT p95/SLO"));
  EXPECT_THAT(table, HasSubstr("400ms/2.00s"));
  EXPECT_THAT(table, HasSubstr("97.0%/95%"));
  EXPECT_THAT(table, HasSubstr("QuotaExceeded: no room for 2 workers"));
  EXPECT_THAT(line_text(view.rows()[0]),
              HasSubstr("default/tiny: 3 desired, 2 ready, 2 starting, 1 draining, 1 failed; QuotaExceeded"));
  EXPECT_EQ(csv_line(1, view.rows()[0]), "1.0,default/tiny,3,2,2,1,1,1.5000,,0.4,,0.9700,1.2500\n");
  const auto commas = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  EXPECT_EQ(commas(csv_header()), commas(csv_line(1, view.rows()[0])));
  EXPECT_EQ(table_text({}), "No ModelService yet.\n");
}

}  // namespace
}  // namespace windlass::cli
