// Tests Splitwise's provisioning against brute force, its designs and goals, and Fig. 12 of its paper.
#include "planner/strategies/splitwise/splitwise.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/console/thread_executor.h"
#include "planner/strategies/core/worker_models.h"
#include "tests/bench/planner/splitwise_setting.h"
#include "tests/paths.h"
#include "tests/unit/planner/strategies/core/fixtures.h"
#include "tests/unit/planner/whatif/split_trials.h"

namespace windlass::search {
namespace {

using testing::HasSubstr;

constexpr int kA100 = 0, kH100 = 1;  // kinds of single GPUs

ProblemSpec single_gpus(double requests_per_s) {
  ProblemSpec spec;
  spec.tensor_parallel = {1};
  spec.requests_per_s = requests_per_s;
  return spec;
}

SplitwiseOptions quick_splitwise() {
  SplitwiseOptions options;
  options.search.seeds = 2;
  options.search.trial_s = 20;
  return options;
}

// Given rates, objectives and seeds of small problems with two kinds of machines; expects the plan to cost the same as the
// cheapest of the whole grid of every design. (If a run were not monotone in the counts, one machine more would be acceptable;
// this does not occur.)
TEST(Splitwise, CostsAsLittleAsTheGrid) {
  constexpr int kMost = 7;
  int large = 0;
  for (const auto& [rate, ttft_s, seed] : {std::tuple(50.0, 0.6, 0), {70.0, 0.5, 1}, {85.0, 0.8, 2}, {60.0, 1.5, 3}}) {
    ProblemSpec spec = single_gpus(rate);
    spec.ttft_s = ttft_s;
    spec.input = workload::LogNormalTokens{2000, 0.5, 4096};
    spec.output = workload::LogNormalTokens{300, 0.5, 1024};
    OwnedProblem owned = make_problem(spec);
    owned.problem.seed = static_cast<std::uint64_t>(10 * seed);
    const SplitwiseOptions options = quick_splitwise();
    const auto plan = splitwise_plan(owned.problem, {}, options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    ASSERT_TRUE(plan->holds);
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [prompts, tokens] : {std::pair(kA100, kA100), {kH100, kH100}, {kH100, kA100}}) {
      const SplitDesign design = splitwise_design(owned.problem, prompts, tokens, false, options);
      for (int prefill = 1; prefill <= kMost; ++prefill) {
        for (int decode = 1; decode <= kMost; ++decode) {
          const Deployment deployment = design.deploy({prefill, decode});
          const double cost = cost_per_hour(owned.problem, deployment);
          if (cost >= least) continue;
          if (holds_in_all(owned.problem, deployment, rate, options.search)) least = cost;
        }
      }
    }
    EXPECT_NEAR(plan->cost_per_hour, least, 1e-9) << rate << " requests/s: " << describe(plan->deployment);
    RecordProperty("plan", describe(plan->deployment));
    large += plan->deployment.pools[0].workers + plan->deployment.pools[1].workers > 4 ? 1 : 0;
  }
  EXPECT_GE(large, 2);
}

// Given room for six GPUs and the goal throughput; expects the capacity of the best column of the grid, to the tolerance.
TEST(Splitwise, FillsARoomWithTheMostRequests) {
  OwnedProblem owned = make_problem(single_gpus(10));
  owned.problem.goal = Goal::kThroughput;
  owned.problem.max_gpus = 6;
  SplitwiseOptions options = quick_splitwise();
  options.machines = {kH100};
  const auto plan = splitwise_plan(owned.problem, {}, options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(plan->holds);
  EXPECT_EQ(plan->gpus, 6);
  const SplitDesign design = splitwise_design(owned.problem, kH100, kH100, false, options);
  for (int decode = 1; decode < 6; ++decode) {
    const double better = plan->predicted.capacity_requests_per_s * (1 + 2 * options.search.tolerance);
    EXPECT_FALSE(holds_in_all(owned.problem, design.deploy({6 - decode, decode}), better, options.search)) << decode;
  }
  EXPECT_TRUE(holds_in_all(owned.problem, plan->deployment, plan->predicted.capacity_requests_per_s, options.search));
  owned.problem.max_gpus = 8;
  const auto more = splitwise_plan(owned.problem, {}, options);
  ASSERT_TRUE(more.ok());
  EXPECT_GE(more->predicted.capacity_requests_per_s, plan->predicted.capacity_requests_per_s);
}

// Given increasingly loose objectives; expects plans that never cost more.
TEST(Splitwise, LooserObjectivesCostNoMore) {
  double before = std::numeric_limits<double>::infinity();
  for (const double factor : {1.0, 1.3, 2.0, 4.0}) {
    ProblemSpec spec = single_gpus(40);
    spec.ttft_s = 0.25 * factor;
    spec.tpot_s = 0.02 * factor;
    const OwnedProblem owned = make_problem(spec);
    const auto plan = splitwise_plan(owned.problem, {}, quick_splitwise());
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_TRUE(plan->holds);
    EXPECT_LE(plan->cost_per_hour, before + 1e-9) << factor;
    before = plan->cost_per_hour;
  }
}

// Given one and three threads, and a step budget that ends the search; expects identical plans.
TEST(Splitwise, IsTheSameOnAnyNumberOfCores) {
  const OwnedProblem owned = make_problem(single_gpus(40));
  for (const std::int64_t budget : {std::numeric_limits<std::int64_t>::max(), std::int64_t{60'000}}) {
    std::vector<Offer> plans;
    for (const int threads : {1, 3}) {
      cli::ThreadExecutor executor(threads);
      Effort effort;
      effort.executor = &executor;
      effort.max_iterations = budget;
      auto plan = splitwise_plan(owned.problem, effort, quick_splitwise());
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      plans.push_back(std::move(plan).value());
    }
    EXPECT_EQ(plans[0].stopped, budget == 60'000);
    EXPECT_EQ(describe(plans[0].deployment), describe(plans[1].deployment));
    EXPECT_EQ(plans[0].predicted.ttft_s, plans[1].predicted.ttft_s);
    EXPECT_EQ(plans[0].predicted.capacity_requests_per_s, plans[1].predicted.capacity_requests_per_s);
    EXPECT_EQ(plans[0].iterations, plans[1].iterations);
    EXPECT_EQ(plans[0].trials, plans[1].trials);
  }
}

// Given the plan simulated with seeds that the search has not seen; expects the predicted attainment within both intervals, and
// its figures within a fifth.
TEST(Splitwise, KeepsWhatItPromises) {
  const OwnedProblem owned = make_problem(single_gpus(40));
  const auto plan = splitwise_plan(owned.problem, {}, quick_splitwise());
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(plan->holds);
  EXPECT_GE(plan->predicted.attainment, 0.95);
  EXPECT_LT(plan->predicted.attainment_low, plan->predicted.attainment);
  EXPECT_GE(plan->predicted.capacity_requests_per_s, 40);
  double inside = 0, requests = 0, ttft_s = 0;
  constexpr int kSeeds = 5;
  for (std::uint64_t seed = 100; seed < 100 + kSeeds; ++seed) {
    const auto run = try_out(owned.problem, plan->deployment, {40, 1000, seed});
    ASSERT_TRUE(run.ok());
    inside += run->attainment * static_cast<double>(run->requests);
    requests += static_cast<double>(run->requests);
    ttft_s += run->ttft.p95_s / kSeeds;
  }
  EXPECT_GE(inside / requests, plan->predicted.attainment_low - 0.02);
  EXPECT_NEAR(ttft_s, plan->predicted.ttft_s, 0.25 * plan->predicted.ttft_s);
}

// Given the goal power; expects token machines with a power cap where that does not slow them, and their power computed with
// it; without caps none; for the goal cost none, as they cost the same.
TEST(Splitwise, CapsPowerWherePowerCounts) {
  OwnedProblem owned = make_problem(single_gpus(40));
  SplitwiseOptions options = quick_splitwise();
  options.machines = {kH100};
  const auto by_cost = splitwise_plan(owned.problem, {}, options);
  owned.problem.goal = Goal::kPower;
  const auto by_power = splitwise_plan(owned.problem, {}, options);
  options.may_cap = false;
  const auto uncapped = splitwise_plan(owned.problem, {}, options);
  ASSERT_TRUE(by_cost.ok() && by_power.ok() && uncapped.ok());
  EXPECT_EQ(by_cost->deployment.pools[1].spec.power_share, 1);
  EXPECT_EQ(uncapped->deployment.pools[1].spec.power_share, 1);
  const Pool& tokens = by_power->deployment.pools[1];
  EXPECT_EQ(tokens.spec.power_share, 0.7);
  EXPECT_LT(by_power->power_watts, uncapped->power_watts);
  EXPECT_NEAR(by_power->power_watts, 700 * (by_power->deployment.pools[0].workers + 0.7 * tokens.workers), 1e-6);
  EXPECT_THAT(describe(by_power->deployment), HasSubstr("(at 70 % of its power)"));
  // The cap slows iterations with prompts.
  const auto model = owned.problem.kinds[kH100].model, capped = model_of(owned.problem, tokens.spec);
  EXPECT_EQ(capped->iteration_s(planner::decode_batch(8, 500)), model->iteration_s(planner::decode_batch(8, 500)));
  EXPECT_EQ(capped->iteration_s(planner::prefill_batch(1, 500)), 2 * model->iteration_s(planner::prefill_batch(1, 500)));
}

// Given machines without a price; expects the goal cost to use the fewest GPUs, like the goal throughput without limited room.
TEST(Splitwise, CountsGpusWherePricesAreMissing) {
  OwnedProblem owned = make_problem(single_gpus(100));
  for (AcceleratorChoice& choice : owned.problem.accelerators) choice.spec.price_per_hour = 0;
  SplitwiseOptions options = quick_splitwise();
  options.machines = {kA100};
  const auto by_cost = splitwise_plan(owned.problem, {}, options);
  owned.problem.goal = Goal::kThroughput;
  const auto by_gpus = splitwise_plan(owned.problem, {}, options);
  ASSERT_TRUE(by_cost.ok() && by_gpus.ok());
  EXPECT_TRUE(by_cost->holds);
  EXPECT_GT(by_cost->gpus, 2);
  EXPECT_EQ(by_cost->gpus, by_gpus->gpus);
  owned.problem.max_cost_per_hour = 5;  // bounds nothing
  const auto still = splitwise_plan(owned.problem, {}, options);
  ASSERT_TRUE(still.ok());
  EXPECT_EQ(still->gpus, by_gpus->gpus);
}

// Given objectives that no request meets, too little room for the rate, and no room; expects the nearest plan with what it
// misses, and an error that says what is missing.
TEST(Splitwise, ReportsWhatIsMissing) {
  ProblemSpec spec = single_gpus(40);
  spec.tpot_s = 1e-4;
  const OwnedProblem hopeless = make_problem(spec);
  const auto nearest = splitwise_plan(hopeless.problem, {}, quick_splitwise());
  ASSERT_TRUE(nearest.ok()) << nearest.error().message;
  EXPECT_FALSE(nearest->holds);
  EXPECT_THAT(nearest->reasons, testing::Contains(HasSubstr("even a request alone misses the objectives")));
  OwnedProblem small = make_problem(single_gpus(400));
  small.problem.max_gpus = 4;
  const auto full = splitwise_plan(small.problem, {}, quick_splitwise());
  ASSERT_TRUE(full.ok()) << full.error().message;
  EXPECT_FALSE(full->holds);
  EXPECT_EQ(full->gpus, 4);
  EXPECT_THAT(full->reasons[1], HasSubstr("It misses"));
  small.problem.max_gpus = 1;
  const auto none = splitwise_plan(small.problem, {}, quick_splitwise());
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(none.error().message, HasSubstr("no room for one worker of each kind"));
}

// Given invalid input; expects it to be named. Given a stop before anything was found; expects Cancelled.
TEST(Splitwise, RefusesBadInput) {
  OwnedProblem owned = make_problem(single_gpus(10));
  SplitwiseOptions options = quick_splitwise();
  options.machines = {7};
  EXPECT_THAT(splitwise_plan(owned.problem, {}, options).error().message,
              HasSubstr("machines: must be kinds from 0 to 1 (got 7)"));
  options.machines = {};
  options.search.seeds = 0;
  EXPECT_THAT(splitwise_plan(owned.problem, {}, options).error().message, HasSubstr("seeds: must be at least 1 (got 0)"));
  Effort effort;
  effort.stop = [] { return true; };
  const auto stopped = splitwise_plan(owned.problem, effort, quick_splitwise());
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  owned.problem.requests_per_s = -1;
  EXPECT_THAT(splitwise_plan(owned.problem, {}).error().message,
              HasSubstr("requestsPerSecond: must be a number above 0 (got -1)"));
}

// Given Fig. 12's question, Azure's code service at 70 requests/s on H100 machines; expects all nine objectives of Table VI to
// be met, with at most the paper's 27 and 3 machines.
TEST(Splitwise, FigureTwelve) {
  const std::string data = source_path("/../shared/data");
  if (!std::filesystem::exists(data + "/profiles/splitwise")) {
    GTEST_SKIP() << "no ../shared/data: Splitwise's profile and Azure's trace are not part of the project";
  }
  const auto setting = bench::splitwise_setting(data, "bloom-176b", "code", 70);
  ASSERT_TRUE(setting.ok()) << setting.error().message;
  ASSERT_EQ(setting->problem.objectives.limits.size(), 9u);
  SplitwiseOptions options;
  options.machines = {bench::kH100Machine};
  const auto plan = splitwise_plan(setting->problem, {}, options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(plan->holds);
  EXPECT_LE(plan->cost_per_hour, 30 * bench::kH100Cost + 1e-9) << describe(plan->deployment);
  EXPECT_GE(plan->deployment.pools[0].workers, 24);
  EXPECT_EQ(plan->predicted.attainment, 1);
}

}  // namespace
}  // namespace windlass::search
