// Tests Aladdin's plan, its worker configuration and its worker count by simulation with its placement, against brute force and
// the simulator.
#include "planner/strategies/aladdin/aladdin.h"

#include <algorithm>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/console/thread_executor.h"
#include "planner/strategies/aladdin/aladdin_demand.h"
#include "planner/strategies/core/trial.h"
#include "tests/unit/planner/strategies/core/fixtures.h"

namespace windlass::search {
namespace {

using testing::HasSubstr;

// Short trials, because these are small problems.
AladdinOptions quick_aladdin() {
  AladdinOptions options;
  options.search.seeds = 1;
  options.search.trial_s = 20;
  return options;
}

Offer planned(const Problem& problem, const AladdinOptions& options = quick_aladdin(), const Effort& effort = {}) {
  auto plan = aladdin_plan(problem, effort, options);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  return plan.ok() ? *plan : Offer{};
}

// Given kinds of two accelerators; expects Eq. 6's best kind of each to match an exhaustive search over every batch of every
// kind.
TEST(AladdinKinds, MatchExhaustiveSearch) {
  const OwnedProblem owned = make_problem();
  const Problem& problem = owned.problem;
  const planner::Objective objective{0.5, 0.03, 95};
  const auto kinds = aladdin_kinds(problem, objective);
  ASSERT_EQ(kinds.size(), problem.kinds.size());
  const double in = problem.requests->mean_input_tokens(), out = problem.requests->mean_output_tokens();
  for (int accelerator = 0; accelerator < 2; ++accelerator) {
    double most = 0;
    int best = -1;
    for (int k = 0; k < static_cast<int>(problem.kinds.size()); ++k) {
      const WorkerKind& kind = problem.kinds[static_cast<std::size_t>(k)];
      if (kind.accelerator != accelerator) continue;
      const double prefill_s = kind.model->iteration_s(planner::prefill_batch(1, in));
      double here = 0;
      for (int batch = 1; batch <= 256; ++batch) {
        const double decode_s = kind.model->iteration_s(planner::decode_batch(batch, in + 0.5 * out));
        const double tpot_s = decode_s + (batch - 1) * prefill_s / (out - 1);
        if (tpot_s > 0.9 * 0.03 || batch * (in + out + 16) > kind.kv_capacity_tokens) break;
        here = batch / (kind.gpus() * tpot_s);
      }
      if (here > most) {
        most = here;
        best = k;
      }
    }
    const auto first = std::find_if(kinds.begin(), kinds.end(), [&](const KindThroughput& found) {
      return problem.kinds[static_cast<std::size_t>(found.kind)].accelerator == accelerator;
    });
    ASSERT_NE(first, kinds.end());
    EXPECT_EQ(first->kind, best);
    EXPECT_NEAR(first->tokens_per_s_per_gpu, most, 0.05 * most) << "at the TPOT limit an iteration counts as its objective";
  }
}

// Given a problem; expects a plan that behaves in the simulator as predicted, with Aladdin's dispatch, and that one worker
// fewer is infeasible.
TEST(AladdinPlan, HoldsInTheSimulatorAndIsTheLeast) {
  ProblemSpec spec;
  spec.requests_per_s = 160;
  const OwnedProblem owned = make_problem(spec);
  const Offer plan = planned(owned.problem);
  ASSERT_TRUE(plan.holds);
  EXPECT_EQ(plan.strategy, "aladdin");
  EXPECT_EQ(plan.deployment.dispatch.policy, dispatch::PolicyKind::kAladdin);
  EXPECT_GE(plan.predicted.attainment, 0.95);
  EXPECT_GE(plan.predicted.capacity_requests_per_s, 160);
  const Trial trial{160, 3200, owned.problem.seed};  // twenty seconds, like the plan's trials
  const auto run = try_out(owned.problem, plan.deployment, trial);
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(judge(owned.problem, *run).holds);
  EXPECT_GE(run->attainment, plan.predicted.attainment_low);
  // Other requests of the same kind: within the prediction, given the noise of hundreds of requests.
  const auto other = try_out(owned.problem, plan.deployment, {160, 3200, 77});
  ASSERT_TRUE(other.ok());
  EXPECT_GE(other->attainment, plan.predicted.attainment_low - 0.02);
  Deployment fewer = plan.deployment;
  ASSERT_GT(fewer.pools[0].workers, 1);
  --fewer.pools[0].workers;
  EXPECT_FALSE(judge(owned.problem, *try_out(owned.problem, fewer, trial)).holds);
  EXPECT_THAT(plan.reasons, testing::Contains(HasSubstr("Eq. 6")));
  EXPECT_THAT(plan.reasons, testing::Contains(HasSubstr("Eq. 7")));
}

// Given every number of workers of each accelerator's best kind, tried one by one; expects the plan to be the cheapest feasible
// one.
TEST(AladdinPlan, MatchesExhaustiveSearch) {
  ProblemSpec spec;
  spec.requests_per_s = 12;
  const OwnedProblem owned = make_problem(spec);
  const Offer plan = planned(owned.problem);
  ASSERT_TRUE(plan.holds);
  double cheapest = std::numeric_limits<double>::infinity();
  int last = -1;
  for (const KindThroughput& kind : aladdin_kinds(owned.problem, {0.5, 0.03, 95})) {
    const int accelerator = owned.problem.kinds[static_cast<std::size_t>(kind.kind)].accelerator;
    if (std::exchange(last, accelerator) == accelerator) continue;
    for (int workers = 1; workers <= 40; ++workers) {
      Deployment deployment = plan.deployment;
      deployment.pools = {owned.problem.pool(kind.kind, dispatch::Role::kUnified, workers)};
      if (!judge(owned.problem, *try_out(owned.problem, deployment, {12, 500, owned.problem.seed})).holds) continue;
      cheapest = std::min(cheapest, cost_per_hour(owned.problem, deployment));
      break;
    }
  }
  EXPECT_DOUBLE_EQ(plan.cost_per_hour, cheapest);
}

// Given looser objectives and lower rates; expects plans that cost no more, within 2 %.
TEST(AladdinPlan, CostsNoMoreWhenLessIsRequired) {
  std::vector<double> costs;
  for (const double tpot_s : {0.02, 0.03, 0.05, 0.08}) {
    ProblemSpec spec;
    spec.requests_per_s = 20;
    spec.tpot_s = tpot_s;
    const OwnedProblem owned = make_problem(spec);
    costs.push_back(planned(owned.problem).cost_per_hour);
  }
  for (std::size_t i = 1; i < costs.size(); ++i) EXPECT_LE(costs[i], 1.02 * costs[i - 1]) << i;
  costs.clear();
  for (const double rate : {40.0, 20.0, 10.0, 5.0}) {
    ProblemSpec spec;
    spec.requests_per_s = rate;
    const OwnedProblem owned = make_problem(spec);
    costs.push_back(planned(owned.problem).cost_per_hour);
  }
  for (std::size_t i = 1; i < costs.size(); ++i) EXPECT_LE(costs[i], 1.02 * costs[i - 1]) << i;
}

// Given split phases; expects prefill and decode workers that meet the objectives in the simulator.
TEST(AladdinPlan, SplitsPhases) {
  const OwnedProblem owned = make_problem();
  AladdinOptions options = quick_aladdin();
  options.setting = PlanSetting::kSplitPhase;
  const Offer plan = planned(owned.problem, options);
  ASSERT_TRUE(plan.holds);
  ASSERT_EQ(plan.deployment.pools.size(), 2U);
  EXPECT_EQ(plan.deployment.pools[0].role, dispatch::Role::kPrefill);
  EXPECT_EQ(plan.deployment.pools[1].role, dispatch::Role::kDecode);
  EXPECT_TRUE(judge(owned.problem, *try_out(owned.problem, plan.deployment, {8, 500, owned.problem.seed})).holds);
}

// Given executors of one and three threads; expects identical plans.
TEST(AladdinPlan, IsTheSameOnAnyNumberOfCores) {
  const OwnedProblem owned = make_problem();
  cli::ThreadExecutor one(1), three(3);
  Effort effort;
  effort.executor = &one;
  const Offer a = planned(owned.problem, quick_aladdin(), effort);
  effort.executor = &three;
  const Offer b = planned(owned.problem, quick_aladdin(), effort);
  EXPECT_EQ(describe(a.deployment), describe(b.deployment));
  EXPECT_EQ(a.predicted.attainment, b.predicted.attainment);
  EXPECT_EQ(a.predicted.capacity_requests_per_s, b.predicted.capacity_requests_per_s);
  EXPECT_EQ(a.trials, b.trials);
  EXPECT_EQ(a.iterations, b.iterations);
  EXPECT_EQ(a.reasons, b.reasons);
}

// Given objectives that no worker meets; expects a message with what is missing. Given a stop; expects Cancelled. Given an
// empty step budget; expects Cancelled or a plan marked as stopped.
TEST(AladdinPlan, SaysWhatIsMissing) {
  ProblemSpec spec;
  spec.tpot_s = 1e-4;
  const OwnedProblem tight = make_problem(spec);
  const auto none = aladdin_plan(tight.problem, {}, quick_aladdin());
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(none.error().message, HasSubstr("one request alone takes"));
  const OwnedProblem owned = make_problem();
  Effort effort;
  effort.stop = [] { return true; };
  const auto stopped = aladdin_plan(owned.problem, effort, quick_aladdin());
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}

// Given invalid options and problems; expects the field, the value and the rule.
TEST(AladdinPlan, RefusesWhatIsWrong) {
  OwnedProblem owned = make_problem();
  const auto message = [&](const AladdinOptions& options) {
    const auto plan = aladdin_plan(owned.problem, {}, options);
    return plan.ok() ? std::string() : plan.error().message;
  };
  AladdinOptions options = quick_aladdin();
  options.placement.theta = 0;
  EXPECT_EQ(message(options), "test: aladdin: theta: must be above 0 and at most 1 (got 0)");
  options = quick_aladdin();
  options.placement.gamma = 1.5;
  EXPECT_EQ(message(options), "test: aladdin: gamma: must be from 0 to 1 (got 1.5)");
  options = quick_aladdin();
  options.heartbeat_s = 0;
  EXPECT_EQ(message(options), "test: aladdin: heartbeat: must be above 0 (got 0)");
  options = quick_aladdin();
  options.search.seeds = 0;
  EXPECT_EQ(message(options), "test: aladdin: seeds: must be at least 1 (got 0)");
  owned.problem.objectives.both.reset();
  owned.problem.objectives.limits = {{Metric::kTtft, 90, 0.5}};
  EXPECT_EQ(message(quick_aladdin()), "test: aladdin: objectives: must include TTFT and TPOT (got none for TPOT)");
  owned.problem.objectives.limits.push_back({Metric::kTpot, 90, 0.03});
  EXPECT_EQ(message(quick_aladdin()), "");
}

// Given points on a line; expects Eq. 7's coefficients, and R as computed by hand: a coefficient of variation of 1.5 is within
// 10 % from 225 requests.
TEST(AladdinDemand, FitsTheLineAndItsValidity) {
  const LengthSpread spread{100, 150, 200, 100};
  EXPECT_EQ(least_requests(spread, 0.1), 225);
  EXPECT_NEAR(relative_error_of_mean(spread, 225), 0.1, 1e-12);
  const std::vector<WorkersAtRate> points = {{10, 6}, {20, 11}, {40, 21}};
  const auto line = fit_worker_line(points, spread, 15, 0.1);
  ASSERT_TRUE(line.ok());
  EXPECT_NEAR(line->workers_per_rate, 0.5, 1e-12);
  EXPECT_NEAR(line->constant, 1, 1e-9);
  EXPECT_DOUBLE_EQ(line->valid_above_per_s, 15);
  EXPECT_EQ(line->workers(15), std::nullopt);
  EXPECT_EQ(line->workers(30), 16);
  EXPECT_EQ(line->workers(31), 17);
  EXPECT_FALSE(fit_worker_line(std::vector<WorkersAtRate>{{10, 6}, {10, 7}}, spread, 15).ok());
  EXPECT_FALSE(fit_worker_line(points, spread, 0).ok());
  EXPECT_FALSE(fit_worker_line(std::vector<WorkersAtRate>{{0, 6}, {10, 7}}, spread, 15).ok());
}

// Given pairs of lengths; expects their means and deviations, and the mean of many samples of n to deviate by the standard
// error.
TEST(AladdinDemand, ErrorOfTheMeanIsThatOfSamples) {
  const auto spread = spread_of(std::vector<std::pair<int, int>>{{1, 10}, {3, 10}});
  EXPECT_DOUBLE_EQ(spread.input_mean, 2);
  EXPECT_NEAR(spread.input_deviation, std::sqrt(2.0), 1e-12);
  EXPECT_EQ(spread.output_deviation, 0);
  Rng rng(3, "samples");
  constexpr int kSamples = 4000, kRequests = 50;
  double squares = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    double mean = 0;
    for (int i = 0; i < kRequests; ++i) mean += rng.exponential(1) / kRequests;
    squares += (mean - 1) * (mean - 1) / kSamples;
  }
  EXPECT_NEAR(std::sqrt(squares), relative_error_of_mean({1, 1, 1, 1}, kRequests), 0.05 * std::sqrt(squares));
}

}  // namespace
}  // namespace windlass::search
