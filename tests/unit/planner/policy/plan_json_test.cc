// Tests Snapshot and Plan as JSON: errors name their path, and one snapshot's plan is compared with a golden file.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/policy/json.h"
#include "planner/policy/make_plan.h"
#include "tests/paths.h"
#include "tests/says.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Every field is set, and the forecaster has seen enough to have every part of its state: a season, both sums, pending
// forecasts.
PolicyMemory full_memory() {
  PolicyMemory memory;
  memory.history_since_s = 100;
  memory.recommendations = {{100, 1}, {4000, 2}};
  memory.desired = 2;
  memory.wanted = {{4000, 2}};
  memory.last_change = Change{4000, Direction::kDown};
  memory.panic_until_s = 5040;
  memory.queue_since_s = 4990;
  memory.slots = {{"h100-1", 96}};
  memory.sides = {{"a100-1", dispatch::Role::kPrefill, 0.75, Reading{0.5, 4900}}};
  memory.configuration = "h100-1";
  memory.configuration_since_s = 100;
  memory.counted = Reading{4700, 4995};
  memory.burstiness = 2.5;
  memory.shortfall = Shortfall{4100, 3.75, 5, 0.25};
  memory.queue_until_s = 4990;
  memory.bursts_per_s = 7.5;
  memory.arrivals = {{4985, 3.25}, {4995, 3.5}};
  workload::BestForecastOptions options;
  options.methods.holt_winters.season_s = 1000;
  options.methods.holt_winters.season_bins = 4;
  auto forecaster = workload::BestForecaster::make(options).value();
  for (int i = 0; i < 300; ++i) {
    EXPECT_TRUE(forecaster.observe({2000 + 10.0 * i, i < 200 ? 3.0 + i % 5 : 9.0 - i % 3}, 60).ok());
  }
  memory.forecast = forecaster.state();
  return memory;
}

Snapshot example() {
  Snapshot snapshot;
  snapshot.now_s = 5000;
  snapshot.accelerators = {testing::with_gpus(testing::h100(), 4), testing::with_gpus(testing::l4(), 8)};
  Service service = testing::chat_service();
  service.accelerators.push_back({"l4", 6});
  service.workers.push_back(testing::ready_worker("h100-1", "h100", 1, 0, 5000, 12));
  testing::observe(service, 5000, 3.5, 2);
  service.demand.arrivals_total = Reading{4711, 5000};
  service.demand.ttft_s = Reading{0.01, 5000, Bound::kBelow};
  service.demand.tpot_s = Reading{10, 5000, Bound::kAbove};
  service.workers[0].kv_use = Reading{0.25, 4999};
  service.workers[0].trouble = WorkerTrouble::kNodeLost;
  service.workers[0].trouble_message = "node gpu-7 does not answer";
  service.workers[0].node = "gpu-7";
  snapshot.nodes = {{"gpu-6", "h100", 4, 3, "zone-a", false}, {"gpu-7", "h100", 8, 0, "", true}};
  service.scaling.scale_up_max_per_minute = 4;
  service.scaling.scale_down_max_per_minute = 2;
  service.scaling.tolerance = 0.25;
  service.starts = StartTimes{75.5, 9};
  service.reserves_context = true;
  service.engine = EngineType::kLlamaCpp;
  service.demand.recent_attainment = Reading{0.75, 5000};
  service.demand.recently_judged = 12;
  WorkerEstimate measured;
  measured.accelerator = "h100";
  measured.gpus_per_worker = 1;
  measured.from_profile = true;
  measured.estimate.mean = {1.25, 0.75, 0.5, -0.001};
  for (std::size_t i = 0; i < measured.estimate.covariance.size(); ++i) measured.estimate.covariance[i] = 0.25 / (i + 1);
  measured.estimate.noise_variance = 0.005;
  measured.estimate.samples = 480;
  measured.estimate.outliers = 3;
  measured.estimate.changes = 1;
  measured.estimate.outlier_run = -2;
  measured.estimate.prompt_outlier_run = 1;
  measured.estimate.largest_batch = 17.5;
  measured.estimate.seen_batch = 12.25;
  measured.estimate.decode_count = 1e6;
  service.estimates = {measured};
  service.transfers = {{"l4", 2, {1.5e9, 0.002, 1024, 12}}};
  service.refused = CreationRefusal{"QuotaExceeded", "exceeded quota: gpus", 5030};
  service.memory = full_memory();
  snapshot.services = {service};
  return snapshot;
}

// Given one error each; expects its path, the value and the rule.
TEST(SnapshotJson, NamesEveryMistake) {
  const std::string good = to_json(example());
  ASSERT_EQ(snapshot_from_json(good).value(), example());
  auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  };
  const std::pair<std::string, std::string> mistakes[] = {
      {"", "snapshot: not valid JSON"},
      {"{}", "snapshot: snapshotFormat: missing"},
      {with("\"snapshotFormat\":1", "\"snapshotFormat\":2"), "snapshotFormat: must be an integer from 1 to 1*(got 2)"},
      {with("\"ttftS\":1.0", "\"ttftS\":0"), "services[0].slo.ttftS: must be greater than 0*(got 0.0)"},
      {with("\"percentile\":95.0", "\"percentile\":100"), "services[0].slo.percentile: must be between 0 and 100*(got 100.0)"},
      {with("\"mode\":\"Observed\"", "\"mode\":\"Seen\""),
       "accelerators[0].mode: must be one of Observed, Elastic*(got \"Seen\")"},
      {with("\"state\":\"Ready\"", "\"state\":\"Busy\""),
       "services[0].workers[0].state: must be one of Starting, Ready*(got \"Busy\")"},
      {with("\"minWorkers\":1", "\"minWorkers\":-1"), "services[0].scaling.minWorkers: must be an integer from 0*(got -1)"},
      {with("\"kvHeads\":8", "\"kvHeads\":7"), "services[0].shape: num_key_value_heads: must divide*(got 7)"},
      {with("\"bfloat16\":", "\"bfloat17\":"), "accelerators[0].spec.peakFlops.bfloat17: must be float32*(got \"bfloat17\")"},
      {with("\"gpusPerNode\":8", "\"gpusPerNode\":0"), "accelerators[0].spec: accelerator h100: GPUs per node: must*(got 0)"},
      {with("\"queued\":{\"value\":2.0", "\"queued\":{\"valeu\":2.0"), "services[0].demand.queued.value: missing"},
      {with("\"trouble\":\"NodeLost\"", "\"trouble\":\"Tired\""),
       "services[0].workers[0].trouble: must be one of None, Unschedulable, ImagePull*(got \"Tired\")"},
      {with("\"tolerance\":0.25", "\"tolerance\":1"),
       "services[0].scaling.tolerance: must be at least 0 and below 1*(got 1.0)"},
      {with("\"scaleUpMaxPerMinute\":4", "\"scaleUpMaxPerMinute\":0"), "services[0].scaling.scaleUpMaxPerMinute: must*(got 0)"},
      {with("\"p90S\":75.5", "\"p90\":75.5"), "services[0].starts.p90S: missing"},
      {with("\"samples\":480", "\"samples\":-1"), "services[0].estimates[0].samples: must*(got -1)"},
      {with("\"mean\":[1.25,", "\"mean\":[\"x\","), "services[0].estimates[0].mean: must be a number*(got \"x\")"},
      {with("\"mean\":[1.25,", "\"mean\":[1,1,"),
       "services[0].estimates[0].mean: must be a list of 4*(got [1,1,0.75,0.5,-0.001])"},
      {with("\"bandwidthBytesPerS\":1500000000.0", "\"bandwidthBytesPerS\":0"),
       "services[0].transfers[0].bandwidthBytesPerS: must be greater than 0*(got 0.0)"},
      {with("\"latencyS\":0.002", "\"latencyS\":-1"), "services[0].transfers[0].latencyS: must be at least 0*(got -1.0)"},
      {with("\"bytesPerToken\":1024", "\"bytesPerToken\":-1024"), "services[0].transfers[0].bytesPerToken: must*(got -1024.0)"},
      {with("\"samples\":12", "\"sample\":12"), "services[0].transfers[0].samples: missing"},
      {with("\"allocatableGpus\":4,\"usedByOthers\":3", "\"allocatableGpus\":4,\"usedByOthers\":-3"),
       "nodes[0].usedByOthers: must be an integer from 0*(got -3)"},
      {with("\"zone\":\"zone-a\"", "\"zone\":1"), "nodes[0].zone: must be a string*(got 1)"},
      {with("\"zone\":\"zone-a\"", "\"rack\":\"a\""), "nodes[0].rack: unknown field"},
      {with("\"name\":\"gpu-6\",\"accelerator\":\"h100\"", "\"name\":\"gpu-6\",\"accelerator\":\"b200\""),
       "nodes[0].accelerator: must be a class in accelerators (got 'b200')"},
      {with("\"name\":\"gpu-6\"", "\"name\":\"gpu-7\""), "nodes[1].name: must be listed once per class (got 'gpu-7' twice)"},
      {with("\"untilS\":5030", "\"until\":5030"), "services[0].refused.untilS: missing"},
      {with("\"direction\":\"Down\"", "\"direction\":\"Left\""),
       "services[0].memory.lastChange.direction: must be one of Up, Down*(got \"Left\")"},
      {with("\"best\":\"", "\"best\":\"My"), "services[0].memory.forecast.best: must*(got \"My"},
      {with("\"meansPerS\":[", "\"meansPerS\":[1.5,"), "must be a list with one number per method"},
      {with("\"EWMA\":{", "\"EWMA\":{\"colour\":1,"), "services[0].memory.forecast.EWMA.colour: unknown field"},
      {with("\"priority\":0", "\"priority\":0,\"colour\":\"red\""), "services[0].colour: unknown field"}};
  for (const auto& [text, message] : mistakes) {
    const auto result = snapshot_from_json(text);
    ASSERT_FALSE(result.ok()) << message;
    EXPECT_THAT(result.error().message, Says(message));
  }
}

// Given a plan with every field set; expects it back unchanged.
TEST(PlanJson, KeepsEveryField) {
  Plan plan = make_plan(example());
  plan.services[0].forecast = DemandForecast{"HoltWinters", 75.5, 4.25, 0.125, 32};
  plan.services[0].considered = {{{"l4", 1}, 6, 4.2, 0.09, 0.4, "90 ms a token, above 50 ms"},
                                 {{"h100", 1}, 1, 4, 0.02, 0.1, ""}};
  plan.services[0].memory = full_memory();
  EXPECT_THAT(to_json(plan), Not(HasSubstr("dispatch"))) << "the default";
  plan.services[0].dispatch = {.policy = dispatch::PolicyKind::kAladdin, .placement = {.gamma = 0.25, .ttft_s = 0.5}};
  EXPECT_EQ(plan_from_json(to_json(plan, true)).value(), plan);
}

// Given a plan with a number that JSON lacks; expects it back unchanged.
TEST(PlanJson, KeepsInfinities) {
  Plan plan = make_plan(example());
  plan.services[0].predicted.ttft_s = std::numeric_limits<double>::infinity();
  EXPECT_EQ(plan_from_json(to_json(plan)).value(), plan);
  EXPECT_THAT(plan_from_json("{\"atS\": 1}").error().message, HasSubstr("plan: services: missing"));
}

// Given the snapshot in tests/golden (two services that want more GPUs than exist); expects the golden plan next to it. After a
// deliberate change of the policy, run with WINDLASS_UPDATE_GOLDEN=1 to rewrite the file, and review the difference.
TEST(PlanJson, GoldenPlan) {
  const std::string folder = source_path() + "/tests/golden/";
  const auto snapshot = snapshot_from_json(read(folder + "two_services.snapshot.json"));
  ASSERT_TRUE(snapshot.ok()) << snapshot.error().message;
  const std::string plan = to_json(make_plan(*snapshot), true) + "\n";
  if (std::getenv("WINDLASS_UPDATE_GOLDEN") != nullptr) std::ofstream(folder + "two_services.plan.json") << plan;
  EXPECT_EQ(plan, read(folder + "two_services.plan.json"));
}

// Given offers of all kinds; expects each back from its text. Given broken ones; expects an error that names the field.
TEST(OfferJson, ComesBack) {
  for (const Offer& offer : {testing::split_offer({"h100", 2, 20}, {"a100", 1, 10, 3, 1.5}),
                             testing::whole_offer({{"h100", 1, 16, 2, 1, 0.7}, {"a100", 1, 8, 1, 0.9, 0.3}})}) {
    const auto read = offer_from_json(to_json(offer));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, offer);
  }
  const std::string good = to_json(testing::whole_offer({{"h100", 1, 16}}));
  const auto error_of = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const auto read = offer_from_json(text);
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_THAT(error_of(R"("workers":1)", R"("workers":0)"), ::testing::HasSubstr("pools[0].workers"));
  EXPECT_THAT(error_of(R"("requestsPerS":16.0)", R"("requestsPerS":0.0)"), ::testing::HasSubstr("pools[0].requestsPerS"));
  EXPECT_THAT(error_of(R"("strategy":"vidur",)", ""), ::testing::HasSubstr("strategy"));
}

}  // namespace
}  // namespace windlass::planner
