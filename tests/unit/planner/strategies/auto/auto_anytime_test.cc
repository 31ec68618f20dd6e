// Tests that `auto` is an anytime search: with more steps, or with more time, its answer never gets worse, and it is as good as
// the plan of each strategy that needs fewer steps.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/strategies/auto/auto_answers.h"
#include "planner/strategies/auto/auto_plan.h"
#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/plan_parts.h"
#include "planner/strategies/strategies.h"
#include "tests/effort.h"
#include "tests/unit/planner/strategies/core/fixtures.h"

namespace windlass::search {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMaxRequests = 4000;  // of a trial that confirms; close cases would take most of the time

OwnedProblem random_problem(std::uint64_t seed) {
  Rng rng(seed, "anytime");
  const auto one_of = [&](const auto& list) {
    return list[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(list.size()) - 1))];
  };
  ProblemSpec spec;
  spec.model = one_of(std::vector<std::string>{"llama3.1-8b", "llama2-13b"});
  spec.accelerators = one_of(std::vector<std::vector<std::string>>{
      {"a100-80gb"}, {"a100-80gb", "h100-80gb"}, {"h100-80gb", "l40s"}, {"l40s", "a100-80gb"}});
  spec.tensor_parallel = one_of(std::vector<std::vector<int>>{{1}, {1, 2}, {2, 4}});
  spec.requests_per_s = one_of(std::vector<double>{1, 4, 12, 25});
  spec.ttft_s = one_of(std::vector<double>{0.2, 0.5, 1.5});
  spec.tpot_s = one_of(std::vector<double>{0.015, 0.03, 0.06});
  spec.attainment = one_of(std::vector<double>{0.9, 0.95, 0.99});
  OwnedProblem owned = make_problem(spec);
  Problem& problem = owned.problem;
  problem.goal = one_of(std::vector<Goal>{Goal::kCost, Goal::kCost, Goal::kPower, Goal::kThroughput});
  problem.requests_per_trial = 200;
  if (problem.goal != Goal::kThroughput) problem.max_gpus = 64;  // otherwise strategies would fill the room
  problem.seed = seed;
  if (problem.goal != Goal::kThroughput && rng.integer(0, 3) == 0) problem.accelerators.front().gpus = 2;
  if (rng.integer(0, 3) == 0) {
    problem.objectives.both.reset();
    problem.objectives.limits = {{Metric::kTtft, 95, spec.ttft_s}, {Metric::kTpot, 95, spec.tpot_s}};
  }
  return owned;
}

// The order of answers: less is better.
using Rank = std::pair<int, double>;
constexpr Rank kNothing{3, 0};

Rank rank_of(const Problem& problem, const Result<Offer>& plan) {
  if (!plan.ok()) return kNothing;
  const double worth = worth_of(problem, plan->deployment);
  const auto says = [&](const char* text) {
    return std::any_of(plan->reasons.begin(), plan->reasons.end(),
                       [&](const std::string& reason) { return reason.find(text) != std::string::npos; });
  };
  if (says("without statistical confidence")) return {1, worth};
  if (says("with 95 % confidence") || says("the limits hold on")) return {0, worth};
  return {2, 0};  // holds nothing; it does not depend on the budget
}

Result<Offer> planned(const Problem& problem, std::int64_t budget, const StopCheck& stop = {}) {
  AutoOptions options;
  options.proposers = &strategies();
  options.max_requests = kMaxRequests;
  Effort effort;
  effort.max_iterations = budget;
  effort.stop = stop;
  return auto_plan(problem, options, effort);
}

// How `auto` ranks this deployment alone, without making it larger.
Rank rank_alone(const Problem& problem, const Deployment& deployment) {
  const StopCheck never;
  AutoAnswers answers(problem, never,
                      {problem.requests_per_s, trial_requests(problem, problem.requests_per_s), problem.seed, true},
                      kMaxRequests);
  EXPECT_TRUE(answers.offer(deployment, "test", 1).ok());
  if (answers.best() == nullptr) return {2, 0};
  EXPECT_TRUE(answers.confirm().ok());
  const bool confirmed = answers.best()->confirmed && answers.best()->deployment == deployment;
  return {confirmed ? 0 : 1, worth_of(problem, deployment)};
}

// Given random problems and growing step budgets; expects answers that never get worse, each at least as good as the plans of
// all strategies that need fewer steps.
TEST(AutoAnytime, IsNeverWorseThanWithFewerStepsOrThanAStrategyThatNeedsFewer) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < effort(12U, 60U); ++seed) {
    const OwnedProblem owned = random_problem(seed);
    const Problem& problem = owned.problem;
    struct Alone {
      std::string name;
      std::int64_t needs;
      Rank rank;
    };
    std::vector<Alone> alone;
    for (const NamedStrategy& strategy : strategies()) {
      if (std::string_view(strategy.name) == "auto" || strategy.needs_cluster) continue;
      const auto plan = strategy.plan(problem, {});
      if (plan.ok() && plan->holds) alone.push_back({strategy.name, plan->iterations, rank_alone(problem, plan->deployment)});
    }
    Rank before = kNothing;
    bool done = false;
    for (const std::int64_t budget :
         {std::int64_t{1}, std::int64_t{60'000}, std::int64_t{300'000}, std::int64_t{1'000'000}, kUnlimited}) {
      if (done) break;
      const auto plan = planned(problem, budget);
      const Rank rank = rank_of(problem, plan);
      EXPECT_LE(rank, before) << fmt::format("seed {}, {} steps", seed, budget);
      before = rank;
      done = plan.ok() && !plan->stopped;  // a larger budget would change nothing
      for (const Alone& of : alone) {
        if ((of.needs >= budget && !done) || of.rank.first >= 2) continue;
        ++compared;
        EXPECT_LE(rank, of.rank) << fmt::format("seed {}, {} steps, {} needs {}", seed, budget, of.name, of.needs);
      }
    }
  }
  EXPECT_GT(compared, 80);
}

// Given a stop after ever more questions whether to stop; expects answers that never get worse, from the first on.
TEST(AutoAnytime, IsNeverWorseWithMoreTime) {
  for (std::uint64_t seed = 0; seed < effort(6U, 60U); ++seed) {
    const OwnedProblem owned = random_problem(seed);
    Rank before = kNothing;
    for (int questions = 0; questions < 4000; questions = questions * 3 / 2 + 1) {
      int left = questions;
      const auto plan = planned(owned.problem, kUnlimited, [&] { return left-- <= 0; });
      const Rank rank = rank_of(owned.problem, plan);
      EXPECT_LE(rank, before) << fmt::format("seed {}, {} questions", seed, questions);
      before = rank;
      if (plan.ok() && !plan->stopped) break;
    }
    EXPECT_LT(before, kNothing);
  }
}

// A strategy whose plan with a small budget is dear, and with a larger one cheap.
Result<Offer> slow_plan(const Problem& problem, const Effort& effort) {
  const bool enough = effort.max_iterations > 1'000'000;
  Offer plan = plan_of(problem, "slow", unified(problem, 0, problem.engine, enough ? 2 : 20));
  plan.holds = true;
  plan.iterations = enough ? 1'000'000 : effort.max_iterations;
  plan.stopped = !enough;
  return plan;
}

// Given a strategy that needs 1,000,000 steps for its cheap plan; expects it to be heard with a budget above that, to be asked
// no more once it has finished, and what it costs to be reported.
TEST(AutoAnytime, AsksAgainWithMoreSteps) {
  OwnedProblem owned = make_problem();
  std::vector<std::int64_t> budgets;
  const std::vector<NamedStrategy> proposers = {{"slow", "", [&](const Problem& problem, const Effort& effort) {
                                                   budgets.push_back(effort.max_iterations);
                                                   return slow_plan(problem, effort);
                                                 }}};
  AutoOptions options;
  options.proposers = &proposers;
  Effort little;
  little.max_iterations = 100'000;
  const auto first = auto_plan(owned.problem, options, little);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(first->stopped);
  EXPECT_EQ(budgets, (std::vector<std::int64_t>{50'000, 200'000}));
  EXPECT_GE(first->iterations, 250'000);
  budgets.clear();
  const auto last = auto_plan(owned.problem, options, {});
  ASSERT_TRUE(last.ok());
  EXPECT_FALSE(last->stopped);
  EXPECT_EQ(budgets, (std::vector<std::int64_t>{50'000, 200'000, 800'000, 3'200'000}));
  EXPECT_LE(last->cost_per_hour, 2 * owned.problem.price_per_hour(owned.problem.kinds[0]));
}

}  // namespace
}  // namespace windlass::search
