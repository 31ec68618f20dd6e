// Tests strategies that place on nodes, for services whose workers run anywhere.
#include "planner/whatif/placing_strategies.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/trial.h"
#include "planner/strategies/strategies.h"
#include "planner/whatif/question.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::search {
namespace {

using planner::testing::a100;
using planner::testing::chat_service;
using planner::testing::h100;
using planner::testing::with_gpus;
using ::testing::HasSubstr;

Question question_for(double requests_per_s, double tpot_s = 0.05) {
  planner::Service service = chat_service();
  service.workload = {requests_per_s, 512, 128};
  service.slo.tpot_s = tpot_s;
  const std::vector<planner::AcceleratorState> classes = {with_gpus(h100(), 32), with_gpus(a100(), 32)};
  const Question first = question_of(service, classes).value();
  return question_of(service, classes, nodes_to_place_on(first.problem())).value();
}

const NamedStrategy& strategy(const char* name) { return *strategy_by_name(name).value(); }

bool holds(const Problem& problem, const Deployment& deployment) {
  const Trial trial{problem.requests_per_s, trial_requests(problem, problem.requests_per_s), problem.seed, true};
  return judge(problem, try_out(problem, deployment, trial).value()).holds;
}

// Given two classes; expects nodes of the one that computes most for its price and of the one that reads most, at least eight
// GPUs of each.
TEST(PlacingStrategies, PlaceOnTheClassesThatGiveMostForTheirPrice) {
  const Question question = question_for(20);
  std::map<std::string, int> gpus;
  for (const planner::NodeState& node : nodes_to_place_on(question.problem())) {
    gpus[node.accelerator] += node.allocatable_gpus;
    EXPECT_LE(node.allocatable_gpus, 8);
  }
  ASSERT_FALSE(gpus.empty());
  ASSERT_LE(gpus.size(), 2U);
  for (const auto& [name, count] : gpus) EXPECT_GE(count, kPlacedGpus) << name;
  EXPECT_EQ(question.problem().cluster->nodes.size(), nodes_to_place_on(question.problem()).size());
}

// Given Huawei's planner and HexGen-2; expects workers without nodes that hold, and that fewer in the same proportion do not.
TEST(PlacingStrategies, CountTheFewestWorkersThatHold) {
  const Question question = question_for(60);
  const Problem& problem = question.problem();
  for (const char* name : {"huawei", "hexgen2"}) {
    SCOPED_TRACE(name);
    const auto plan = plan_anywhere(strategy(name), problem, problem, Effort{});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_TRUE(plan->holds) << plan->missed;
    EXPECT_EQ(plan->strategy, name);
    EXPECT_TRUE(plan->deployment.chains.empty());
    EXPECT_TRUE(plan->deployment.pairs.empty());
    EXPECT_TRUE(holds(problem, plan->deployment));
    Deployment fewer = plan->deployment;
    bool less = false;
    for (Pool& pool : fewer.pools) {
      EXPECT_EQ(pool.role == dispatch::Role::kUnified, std::string(name) == "huawei");
      if (pool.workers > 1) {
        --pool.workers;
        less = true;
      }
    }
    if (less) {
      EXPECT_FALSE(holds(problem, fewer)) << describe(plan->deployment);
    }
    EXPECT_GT(plan->cost_per_hour, 0);
    EXPECT_GT(plan->trials, 0);
  }
}

// Given an objective that no worker meets; expects an error that says what the most workers miss.
TEST(PlacingStrategies, SayWhatIsMissed) {
  const Question question = question_for(20, 0.0001);
  const auto plan = plan_anywhere(strategy("huawei"), question.problem(), question.problem(), Effort{});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(plan.error().message, HasSubstr("no number of its workers holds within the limits: "));
}

// Given a placement whose copies of the model lie on several workers; expects an error that says so.
TEST(PlacingStrategies, RefuseCopiesOnSeveralWorkers) {
  const Question question = question_for(20);
  const NamedStrategy cut{"cut", "", [](const Problem& problem, const Effort& effort) {
                            auto plan = strategy("huawei").plan(problem, effort);
                            plan->deployment.chains.front().hops.push_back(plan->deployment.chains.front().hops.front());
                            return plan;
                          }};
  const auto plan = plan_anywhere(cut, question.problem(), question.problem(), Effort{});
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("splits a copy of the model over several workers"));
}

}  // namespace
}  // namespace windlass::search
