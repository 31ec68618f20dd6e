// Tests trials: verdicts, and capacity by bisection.
#include "planner/strategies/core/trial.h"

#include <array>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/strategies/core/fewest_workers.h"
#include "tests/unit/planner/strategies/core/fixtures.h"

namespace windlass::search {
namespace {

using testing::HasSubstr;

Deployment one_pool(const Problem& problem, int kind, int workers) { return unified(problem, kind, problem.engine, workers); }

// Given one worker far below and far above its capacity; expects it to meet and to miss the objectives, with a text that names
// the objective.
TEST(Trial, HoldsUntilItIsOverloaded) {
  const OwnedProblem owned = make_problem();
  const Deployment deployment = one_pool(owned.problem, 3, 1);
  const auto light = try_out(owned.problem, deployment, {0.5, 300, 1});
  ASSERT_TRUE(light.ok()) << light.error().message;
  EXPECT_TRUE(judge(owned.problem, *light).holds);
  const auto heavy = try_out(owned.problem, deployment, {500, 300, 1});
  ASSERT_TRUE(heavy.ok());
  const Verdict verdict = judge(owned.problem, *heavy);
  EXPECT_FALSE(verdict.holds);
  EXPECT_GT(verdict.worst, 1);
  EXPECT_THAT(verdict.broken, HasSubstr("of the requests meet the objectives, 95% are required"));
}

// Given a limit that is exceeded while joint objectives are met; expects the text to name the limit.
TEST(Trial, LimitsCount) {
  OwnedProblem owned = make_problem();
  owned.problem.objectives.limits = {{Metric::kTtft, 50, 1e-6}};
  const auto run = try_out(owned.problem, one_pool(owned.problem, 3, 1), {0.5, 300, 1});
  ASSERT_TRUE(run.ok());
  const Verdict verdict = judge(owned.problem, *run);
  EXPECT_FALSE(verdict.holds);
  EXPECT_THAT(verdict.broken, HasSubstr("TTFT P50"));
}

// Given light and heavy rates, joint objectives and limits on every figure, tight and loose, unified and split workers; expects
// a run that ends once its verdict is certain to give the verdict of the whole run, and most runs to end early.
TEST(Trial, EarlyVerdictsAreThoseOfWholeRuns) {
  OwnedProblem owned = make_problem();
  Problem& problem = owned.problem;
  problem.slowdown_reference = problem.kinds.front().model;
  Deployment split;
  split.pools = {problem.pool(3, dispatch::Role::kPrefill), problem.pool(4, dispatch::Role::kDecode)};
  constexpr double kLoose[] = {0.5, 0.03, 4, 0.4, 8, 2, 2};  // by Metric
  Rng rng(7, "early verdicts");
  int early = 0, holding = 0;
  constexpr int kCases = 200;
  for (int i = 0; i < kCases; ++i) {
    problem.objectives = {};
    problem.objectives.attainment = rng.uniform(0.5, 0.99);
    if (rng.uniform() < 0.5) {
      problem.objectives.both = sim::ServingObjectives{0.5 * std::exp(rng.uniform(-2, 1)), 0.03 * std::exp(rng.uniform(-1, 1))};
    }
    const int limits = static_cast<int>(rng.uniform(0, 3)) + (problem.objectives.both ? 0 : 1);
    for (int limit = 0; limit < limits; ++limit) {
      const auto metric = static_cast<Metric>(static_cast<int>(rng.uniform(0, 7)));
      const double percentile = std::array{50.0, 90.0, 95.0, 99.0}[static_cast<std::size_t>(rng.uniform(0, 4))];
      problem.objectives.limits.push_back(
          {metric, percentile, kLoose[static_cast<int>(metric)] * std::exp(rng.uniform(-1.5, 0.5))});
    }
    const Deployment deployment = i % 2 == 0 ? one_pool(owned.problem, 3, 1) : split;
    Trial trial{std::exp(rng.uniform(1, 5)), static_cast<std::int64_t>(rng.uniform(1, 200)), static_cast<std::uint64_t>(i)};
    const auto whole = try_out(problem, deployment, trial);
    trial.verdict_only = true;
    const auto cut = try_out(problem, deployment, trial);
    ASSERT_TRUE(whole.ok() && cut.ok());
    const bool holds = judge(problem, *whole).holds;
    EXPECT_EQ(judge(problem, *cut).holds, holds) << "case " << i << ": " << judge(problem, *whole).broken;
    EXPECT_LE(cut->iterations, whole->iterations);
    if (cut->early != sim::EarlyVerdict::kNone) {
      EXPECT_EQ(cut->early == sim::EarlyVerdict::kHolds, holds) << "case " << i;
    }
    early += cut->early != sim::EarlyVerdict::kNone ? 1 : 0;
    holding += holds ? 1 : 0;
  }
  EXPECT_GT(early, kCases / 2);
  EXPECT_GT(holding, kCases / 10);
  EXPECT_LT(holding, kCases * 9 / 10);
}

// Given a deployment; expects its capacity to be feasible, a rate above the tolerance not to be, and the guess to change only
// the number of trials.
TEST(Capacity, IsTheEdge) {
  const OwnedProblem owned = make_problem();
  const Deployment deployment = one_pool(owned.problem, 3, 1);
  CapacitySearch search;
  search.requests = 400;
  search.tolerance = 0.01;
  const auto found = capacity_of(owned.problem, deployment, search);
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_GT(found->requests_per_s, 0);
  EXPECT_TRUE(judge(owned.problem, *try_out(owned.problem, deployment, {found->requests_per_s, 400, 0})).holds);
  EXPECT_FALSE(judge(owned.problem, *try_out(owned.problem, deployment, {1.02 * found->requests_per_s, 400, 0})).holds);
  search.first_guess_per_s = 300;
  const auto again = capacity_of(owned.problem, deployment, search);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->requests_per_s, found->requests_per_s);
  EXPECT_LT(again->trials, 25);
  search.first_guess_per_s = found->requests_per_s;
  EXPECT_LT(capacity_of(owned.problem, deployment, search)->trials, found->trials);
}

// Given a rate that the capacity must exceed; expects the same capacity from just below it, and 0 from itself at the price of
// one trial.
TEST(Capacity, OnlyAboveAnother) {
  const OwnedProblem owned = make_problem();
  const Deployment deployment = one_pool(owned.problem, 3, 1);
  CapacitySearch search;
  search.requests = 200;
  const double capacity = capacity_of(owned.problem, deployment, search)->requests_per_s;
  search.only_above_per_s = 0.99 * capacity;
  EXPECT_EQ(capacity_of(owned.problem, deployment, search)->requests_per_s, capacity);
  search.only_above_per_s = 1.001 * capacity;
  const auto none = capacity_of(owned.problem, deployment, search);
  EXPECT_EQ(none->requests_per_s, 0);
  EXPECT_EQ(none->trials, 1);
}

// Given an objective that not even a single request meets; expects a capacity of 0. Given a stop; expects Cancelled.
TEST(Capacity, MayBeNone) {
  ProblemSpec spec;
  spec.tpot_s = 1e-5;
  const OwnedProblem owned = make_problem(spec);
  CapacitySearch search;
  search.requests = 50;
  const auto found = capacity_of(owned.problem, one_pool(owned.problem, 3, 1), search);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->requests_per_s, 0);
  search.stop = [] { return true; };
  const auto stopped = capacity_of(owned.problem, one_pool(owned.problem, 3, 1), search);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}

// Wilson's interval: 10 of 10 give 0.7225 (1 / (1 + z^2 / n)), none gives 0, and more trials come closer to the share.
TEST(Trial, WilsonsLowerEnd) {
  EXPECT_NEAR(wilson_low(10, 10), 0.72247, 1e-4);
  EXPECT_EQ(wilson_low(0, 10), 0);
  EXPECT_EQ(wilson_low(0, 0), 0);
  EXPECT_GT(wilson_low(990, 1000), wilson_low(99, 100));
}

}  // namespace
}  // namespace windlass::search
