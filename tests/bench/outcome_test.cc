// The outcome experiment at a small scale: every rule runs, the relations between rules hold, table and chart are complete.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/bench/outcome/report.h"
#include "tests/bench/outcome/run.h"

namespace windlass::bench {
namespace {

// Five minutes at 8 requests/s, five at 16 and five at 8.
OutcomeWorkload small_step() {
  OutcomeWorkload workload;
  workload.name = "small";
  workload.title = "a small step";
  Rng rng(1, "small");
  for (double at_s = rng.exponential(8); at_s < 900; at_s += rng.exponential(at_s > 300 && at_s < 600 ? 16 : 8))
    workload.requests.push_back({at_s, 1, static_cast<int>(rng.integer(500, 1500)), static_cast<int>(rng.integer(100, 300))});
  workload.end_s = workload.requests.back().arrival_s;
  workload.lengths = {1000, 200};
  return workload;
}

// Given a small step; expects each rule to end and to count every request, "fixed" and "clairvoyant" to attain the objective,
// the clairvoyant to cost no more than "fixed" and no less than the work itself, and repeated runs of a rule to be equal.
TEST(Outcome, RulesKeepTheirRelations) {
  const OutcomeWorkload workload = small_step();
  const auto setting = OutcomeSetting::make(workload);
  ASSERT_TRUE(setting.ok()) << setting.error().message;
  OutcomeRow row{&workload, &*setting, {}};
  for (const std::string& rule : outcome_rules()) {
    auto run = run_rule(rule, workload, *setting);
    ASSERT_TRUE(run.ok()) << rule;
    EXPECT_EQ(run->rule, rule);
    EXPECT_GT(run->attainment, 0.1) << rule;
    EXPECT_LE(run->max_workers, 2 * setting->max_workers) << rule;  // draining workers in addition to starting ones
    int arrived = 0;
    for (const OutcomeMinute& minute : run->minutes) arrived += minute.arrived;
    EXPECT_EQ(arrived, static_cast<int>(workload.requests.size())) << rule;
    row.runs.push_back(std::move(*run));
  }
  const OutcomeRun& windlass = row.runs.front();
  const OutcomeRun& fixed = row.runs[1];
  const OutcomeRun& clairvoyant = row.runs.back();
  EXPECT_GE(fixed.attainment, kAttainment);
  EXPECT_GE(clairvoyant.attainment, kAttainment);
  EXPECT_LE(clairvoyant.gpu_hours, fixed.gpu_hours);
  const double floor_s =
      sim::work_floor_s(workload.requests, setting->coefficients, setting->pool.spec.engine.max_sequences, kAttainment);
  EXPECT_GE(clairvoyant.gpu_hours, setting->pool.spec.gpus() * floor_s / 3600);
  EXPECT_FALSE(windlass.decisions.empty());
  const auto again = run_rule("windlass", workload, *setting);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->gpu_hours, windlass.gpu_hours);
  EXPECT_EQ(again->attainment, windlass.attainment);

  const std::string table = outcome_table({row});
  for (const std::string& rule : outcome_rules()) EXPECT_NE(table.find(title_of(rule)), std::string::npos) << rule;
  EXPECT_NE(table.find("bound: the work itself"), std::string::npos);
  const std::string chart = outcome_chart({row}, "small");
  EXPECT_EQ(chart.rfind("<svg", 0), 0u);
  EXPECT_NE(chart.find("workers that hold GPUs"), std::string::npos);
}

// Given missing data, and an unknown rule; expects errors that name them.
TEST(Outcome, NamesWhatIsMissing) {
  const auto workloads = outcome_workloads("/nowhere");
  ASSERT_FALSE(workloads.ok());
  EXPECT_NE(workloads.error().message.find("/nowhere/traces"), std::string::npos);
  const OutcomeWorkload workload = small_step();
  const auto setting = OutcomeSetting::make(workload);
  ASSERT_TRUE(setting.ok());
  const auto run = run_rule("tarot", workload, *setting);
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.error().message.find("tarot"), std::string::npos);
}

}  // namespace
}  // namespace windlass::bench
