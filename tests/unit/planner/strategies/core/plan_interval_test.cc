// Tests the intervals of plans' predictions.
#include <gtest/gtest.h>

#include "planner/base/executor.h"
#include "planner/strategies/core/plan_parts.h"
#include "planner/strategies/core/trial.h"
#include "planner/strategies/core/worker_models.h"
#include "tests/unit/planner/strategies/core/fixtures.h"

namespace windlass::search {
namespace {

// Two H100 workers, predicted by a run at the problem's rate.
Offer predicted_plan(const Problem& problem) {
  Deployment deployment;
  deployment.pools.push_back({{"h100-80gb", 1, 1, problem.engine}, dispatch::Role::kUnified, 2});
  Offer plan = plan_of(problem, "test", std::move(deployment));
  const auto run = try_out(problem, plan.deployment, {problem.requests_per_s, problem.requests_per_trial, problem.seed});
  plan.predicted = predict(problem, std::span(&*run, 1));
  plan.predicted.capacity_requests_per_s = 10;
  return plan;
}

// Given times known within a factor; expects ends on both sides of each figure, times within that factor as long as nothing
// queues, and the provenance of the workers' times.
TEST(PlanInterval, SurroundsThePrediction) {
  OwnedProblem owned = make_problem({.accelerators = {"h100-80gb"}, .tensor_parallel = {1}, .requests_per_s = 2});
  Problem& problem = owned.problem;
  for (WorkerKind& kind : problem.kinds) kind.errors = {1.25, 1.25, planner::Provenance::kInterpolated};
  Offer plan = predicted_plan(problem);
  SerialExecutor executor;
  add_interval(problem, executor, plan);
  ASSERT_TRUE(plan.predicted.interval);
  const PredictionInterval& interval = *plan.predicted.interval;
  for (const auto& [ends, value] :
       {std::pair(interval.ttft_s, plan.predicted.ttft_s), std::pair(interval.tpot_s, plan.predicted.tpot_s)}) {
    EXPECT_LT(ends.low, value);
    EXPECT_GT(ends.high, value);
    EXPECT_GE(ends.low, value / 1.6) << "a shorter iteration also shortens waits and batches";
    EXPECT_LE(ends.high, value * 1.6);
  }
  ASSERT_TRUE(interval.capacity_requests_per_s);
  EXPECT_LT(interval.capacity_requests_per_s->low, interval.capacity_requests_per_s->high);
  EXPECT_EQ(interval.from, planner::Provenance::kInterpolated);
  Offer again = predicted_plan(problem);
  add_interval(problem, executor, again);
  EXPECT_EQ(again.predicted.interval->ttft_s.low, interval.ttft_s.low);
}

// Given times that are certain; expects times without width. Given a plan without a prediction; expects no interval.
TEST(PlanInterval, HasNoWidthWithoutErrors) {
  OwnedProblem owned = make_problem({.accelerators = {"h100-80gb"}, .tensor_parallel = {1}, .requests_per_s = 2});
  Problem& problem = owned.problem;
  for (WorkerKind& kind : problem.kinds) kind.errors = {};
  Offer plan = predicted_plan(problem);
  SerialExecutor executor;
  add_interval(problem, executor, plan);
  ASSERT_TRUE(plan.predicted.interval);
  EXPECT_EQ(plan.predicted.interval->tpot_s.low, plan.predicted.tpot_s);
  EXPECT_EQ(plan.predicted.interval->tpot_s.high, plan.predicted.tpot_s);
  EXPECT_EQ(plan.predicted.interval->attainment.low, plan.predicted.interval->attainment.high);
  plan.predicted = {};
  add_interval(problem, executor, plan);
  EXPECT_FALSE(plan.predicted.interval);
}

}  // namespace
}  // namespace windlass::search
