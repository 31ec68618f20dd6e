// Tests what a simulation reports during and after the run: the observer agrees with the result, and the report's JSON is
// complete.
#include <set>

#include <gmock/gmock.h>

#include "planner/whatif/serving_json.h"
#include "tests/unit/planner/whatif/scenario_text.h"

namespace windlass::sim {
namespace {

class Kept final : public ServingObserver {
 public:
  void on_request(const ServedRequest& request) override { requests.push_back(request); }
  void on_sample(const WorkerSample& sample) override { samples.push_back(sample); }

  std::vector<ServedRequest> requests;
  std::vector<WorkerSample> samples;
};

ServingResult observed(const PreparedScenario& scenario, std::uint64_t seed, Kept& kept, double interval_s) {
  ClusterOptions options = scenario.options(seed);
  options.observer = &kept;
  options.sample_interval_s = interval_s;
  const auto source = scenario.source(seed);
  auto results = simulate_cluster(*source, options);
  EXPECT_TRUE(results.ok());
  return std::move(results->front());
}

// Given a scenario by data sheets, and the runs at both ends of its interval; expects every figure within its ends, times in
// proportion to the iterations, the data sheet named, and all of it in the JSON. Given extrapolated iterations of a fit;
// expects that named.
TEST(ScenarioReport, IntervalsHoldTheFigures) {
  const auto scenario = prepared(std::string(kSmall));
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const auto run_at = [&](planner::End end) {
    const auto source = scenario->source(9);
    auto results = simulate_cluster(*source, scenario->options(9, end));
    EXPECT_TRUE(results.ok());
    return std::move(results->front());
  };
  const ServingResult expected = run_at(planner::End::kExpected);
  ServingReport report = report_of(std::vector{expected}, 9, 95, 0);
  const auto shorter = run_at(planner::End::kShort), longer = run_at(planner::End::kLong);
  add_intervals(report, expected, shorter, longer, scenario->provenance(0));
  ASSERT_TRUE(report.intervals);
  const auto holds = [](const planner::Interval& ends, double value) {
    EXPECT_LT(ends.low, value);
    EXPECT_GT(ends.high, value);
  };
  holds(report.intervals->ttft.p95, report.ttft.p95.mean);
  holds(report.intervals->tpot.p50, report.tpot.p50.mean);
  holds(report.intervals->e2e.p50, report.e2e.p50.mean);
  EXPECT_DOUBLE_EQ(report.intervals->tpot.p50.high, longer.tpot.p50_s);
  EXPECT_EQ(report.intervals->from, planner::Provenance::kDataSheet);
  EXPECT_EQ(to_json(report).at("intervals").at("tpotSeconds").at("p50").at(1), report.intervals->tpot.p50.high);

  add_intervals(report, expected, shorter, longer, planner::Provenance::kInterpolated);
  EXPECT_EQ(report.intervals->from, planner::Provenance::kExtrapolated) << "a data sheet's iterations count as extrapolated";
}

// Given a run with and without an observer; expects the same result. The observer sees every request once, its means equal the
// result's, and samples come from every worker at every interval, with shares from 0 to 1.
TEST(ScenarioReport, TheObserverSeesWhatTheResultSays) {
  const std::string yaml =
      with(with(kSmall, "  - {accelerator: a100-80gb, gpusPerWorker: 1, workers: 2}",
                "  - {role: prefill, accelerator: a100-80gb, workers: 2}\n  - {role: decode, accelerator: l40s}"),
           "source: linear", "source: linear, kvCapacityTokens: 3000");
  for (const std::string& text : {std::string(kSmall), yaml}) {
    const auto scenario = prepared(text);
    ASSERT_TRUE(scenario.ok()) << scenario.error().message;
    const ServingResult plain = run(*scenario, 9);
    Kept kept;
    const ServingResult result = observed(*scenario, 9, kept, 0.25);
    EXPECT_EQ(to_json(report_of(std::vector{plain}, 9, 95, 0)), to_json(report_of(std::vector{result}, 9, 95, 0)));
    ASSERT_EQ(static_cast<std::int64_t>(kept.requests.size()), result.requests);
    std::set<std::int64_t> numbers;
    double ttft_s = 0, e2e_s = 0, delay_s = 0;
    for (const ServedRequest& request : kept.requests) {
      numbers.insert(request.number);
      ttft_s += request.ttft_s / static_cast<double>(result.requests);
      e2e_s += request.e2e_s / static_cast<double>(result.requests);
      delay_s += request.scheduling_delay_s / static_cast<double>(result.requests);
      EXPECT_LE(request.scheduling_delay_s, request.ttft_s);
      EXPECT_NEAR(request.ttft_s + 19 * request.tbt_s, request.e2e_s, 1e-6);
      EXPECT_GE(request.prefill_worker, 0);
    }
    EXPECT_EQ(*numbers.begin(), 0);
    EXPECT_EQ(*numbers.rbegin(), result.requests - 1);
    EXPECT_EQ(static_cast<std::int64_t>(numbers.size()), result.requests);
    EXPECT_NEAR(ttft_s, result.ttft.mean_s, 1e-9);
    EXPECT_NEAR(e2e_s, result.e2e.mean_s, 1e-9);
    EXPECT_NEAR(delay_s, result.scheduling_delay.mean_s, 1e-9);
    const auto workers = text == yaml ? 3u : 2u;
    const auto moments = static_cast<std::size_t>(result.simulated_s / 0.25) + 1;
    EXPECT_EQ(kept.samples.size(), workers * moments);
    double most = 0;
    for (const WorkerSample& sample : kept.samples) {
      EXPECT_GE(sample.kv_in_use, 0);
      EXPECT_LE(sample.kv_in_use, 1);
      EXPECT_TRUE(!sample.busy || sample.running > 0);
      most = std::max(most, sample.kv_in_use);
    }
    EXPECT_GT(most, 0);
  }
}

// Given requests longer than the cache; expects them reported as refused, without measurements.
TEST(ScenarioReport, RefusedRequestsAreReported) {
  const auto scenario = prepared(with(kSmall, "source: linear", "source: linear, kvCapacityTokens: 160"));
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  Kept kept;
  const ServingResult result = observed(*scenario, 1, kept, 0);
  EXPECT_EQ(result.refused, result.requests);
  ASSERT_EQ(static_cast<std::int64_t>(kept.requests.size()), result.requests);
  for (const ServedRequest& request : kept.requests) EXPECT_TRUE(request.refused);
  EXPECT_TRUE(kept.samples.empty());
  EXPECT_EQ(result.attainment, 0);
}

// Given three replications; expects sums of counts, means of the replications' figures (except the largest), half-widths, and
// every documented name in the JSON.
TEST(ScenarioReport, TakesReplicationsTogether) {
  const auto scenario = prepared(std::string(kSmall) + "slowdownReference: {accelerator: a100-80gb, gpusPerWorker: 1}\n");
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  std::vector<ServingResult> results;
  for (std::uint64_t seed = 3; seed < 6; ++seed) results.push_back(run(*scenario, seed));
  const ServingReport report = report_of(results, 3, 95, 1.5);
  EXPECT_EQ(report.requests, results[0].requests + results[1].requests + results[2].requests);
  EXPECT_DOUBLE_EQ(report.ttft.p90.mean, (results[0].ttft.p90_s + results[1].ttft.p90_s + results[2].ttft.p90_s) / 3);
  EXPECT_EQ(report.e2e.max, std::max({results[0].e2e.max_s, results[1].e2e.max_s, results[2].e2e.max_s}));
  EXPECT_GT(*report.ttft.mean.half_width, 0);
  EXPECT_DOUBLE_EQ(report.gpu_hours.mean, (results[0].gpu_hours + results[1].gpu_hours + results[2].gpu_hours) / 3);
  const auto json = to_json(report);
  for (const char* times : {"ttftSeconds", "tbtSeconds", "tpotSeconds", "e2eSeconds"}) {
    for (const char* figure : {"mean", "p50", "p90", "p95", "p99", "max"})
      EXPECT_TRUE(json.at(times).contains(figure)) << times;
    EXPECT_LE(json.at(times).at("p50"), json.at(times).at("p90"));
    EXPECT_LE(json.at(times).at("p90"), json.at(times).at("p99"));
  }
  for (const char* name : {"requests", "completed", "sloAttainment", "gpuHours", "cost", "wallSeconds", "iterations"}) {
    EXPECT_TRUE(json.at(name).is_number()) << name;
  }
  for (const char* ratio : {"ttft", "tbt", "e2e"}) {
    for (const char* figure : {"p50", "p90", "p99"})
      EXPECT_GE(json.at("slowdown").at(ratio).at(figure).get<double>(), 0.99) << ratio;
  }
  EXPECT_EQ(json.at("wallSeconds"), 1.5);
  EXPECT_EQ(json.at("extrapolated"), true);
  EXPECT_GT(json.at("halfWidths").at("ttftSeconds").at("mean").get<double>(), 0);
  const auto one = to_json(report_of(std::vector{results[0]}, 3, std::nullopt, 0));
  EXPECT_FALSE(one.contains("halfWidths"));
  EXPECT_TRUE(one.at("sloAttainment").is_null());
}

}  // namespace
}  // namespace windlass::sim
