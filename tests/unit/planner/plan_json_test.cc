// Snapshot and Plan as JSON: mistakes by their path, and one snapshot whose plan is kept in a file.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/policy/json.h"
#include "planner/policy/make_plan.h"
#include "tests/unit/planner/fixtures.h"

namespace windlass::planner {
namespace {

using ::testing::HasSubstr;

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Snapshot example() {
  Snapshot snapshot;
  snapshot.now_s = 5000;
  snapshot.accelerators = {testing::with_gpus(testing::h100(), 4), testing::with_gpus(testing::l4(), 8)};
  Service service = testing::chat_service();
  service.accelerators.push_back({"l4", 6});
  service.workers.push_back(testing::ready_worker("h100-1", "h100", 1, 0, 5000, 12));
  testing::observe(service, 5000, 3.5, 2);
  snapshot.services = {service};
  return snapshot;
}

// Given one mistake each, expect its path, what was found and what is allowed.
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
      {with("\"snapshotFormat\":1", "\"snapshotFormat\":2"), "snapshotFormat: found 2, must be an integer from 1 to 1"},
      {with("\"ttftS\":1.0", "\"ttftS\":0"), "services[0].slo.ttftS: found 0.0, must be greater than 0"},
      {with("\"percentile\":95.0", "\"percentile\":100"), "services[0].slo.percentile: found 100.0, must be between 0 and 100"},
      {with("\"mode\":\"Observed\"", "\"mode\":\"Seen\""),
       "accelerators[0].mode: found \"Seen\", must be one of Observed, Elastic"},
      {with("\"state\":\"Ready\"", "\"state\":\"Busy\""),
       "services[0].workers[0].state: found \"Busy\", must be one of Starting, Ready"},
      {with("\"minWorkers\":1", "\"minWorkers\":-1"), "services[0].scaling.minWorkers: found -1, must be an integer from 0"},
      {with("\"kvHeads\":8", "\"kvHeads\":7"), "services[0].shape: num_key_value_heads: found 7, must divide"},
      {with("\"bfloat16\":", "\"bfloat17\":"), "accelerators[0].spec.peakFlops.bfloat17: found \"bfloat17\", must be float32"},
      {with("\"gpusPerNode\":8", "\"gpusPerNode\":0"), "accelerators[0].spec: accelerator h100: GPUs per node: found 0"},
      {with("\"queued\":{\"value\":2.0", "\"queued\":{\"valeu\":2.0"), "services[0].demand.queued.value: missing"},
      {with("\"priority\":0", "\"priority\":0,\"colour\":\"red\""), "services[0].colour: unknown field"}};
  for (const auto& [text, message] : mistakes) {
    const auto result = snapshot_from_json(text);
    ASSERT_FALSE(result.ok()) << message;
    EXPECT_THAT(result.error().message, HasSubstr(message));
  }
}

// Given a plan with a number that JSON lacks, expect it back.
TEST(PlanJson, KeepsInfinities) {
  Plan plan = make_plan(example());
  plan.services[0].predicted.ttft_s = std::numeric_limits<double>::infinity();
  EXPECT_EQ(plan_from_json(to_json(plan)).value(), plan);
  EXPECT_THAT(plan_from_json("{\"atS\": 1}").error().message, HasSubstr("plan: services: missing"));
}

// Given the snapshot of tests/golden (two services that want more than the GPUs there are), expect the plan that is kept beside
// it. After a deliberate change of the policy the file is written anew with WINDLASS_UPDATE_GOLDEN=1; its difference belongs
// into the review.
TEST(PlanJson, GoldenPlan) {
  const std::string folder = std::string(WINDLASS_SOURCE_DIR) + "/tests/golden/";
  const auto snapshot = snapshot_from_json(read(folder + "two_services.snapshot.json"));
  ASSERT_TRUE(snapshot.ok()) << snapshot.error().message;
  const std::string plan = to_json(make_plan(*snapshot), true) + "\n";
  if (std::getenv("WINDLASS_UPDATE_GOLDEN") != nullptr) std::ofstream(folder + "two_services.plan.json") << plan;
  EXPECT_EQ(plan, read(folder + "two_services.plan.json"));
}

}  // namespace
}  // namespace windlass::planner
