// Tests strategies that place on nodes, for services whose workers run anywhere.
#include "planner/whatif/placing_strategies.h"

#include <bit>
#include <map>
#include <optional>
#include <string>
#include <vector>

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

struct Asked {
  double requests_per_s = 20;
  double tpot_s = 0.05;
  int gpus = 32;  // of each class
  std::optional<int> max_gpus_per_worker = std::nullopt;
  bool free_of_charge = false;
};

Question question_for(const Asked& asked) {
  planner::Service service = chat_service();
  service.workload = {asked.requests_per_s, 512, 128};
  service.slo.tpot_s = asked.tpot_s;
  service.max_gpus_per_worker = asked.max_gpus_per_worker;
  std::vector<planner::AcceleratorState> classes = {with_gpus(a100(), asked.gpus), with_gpus(h100(), asked.gpus)};
  if (asked.free_of_charge) {
    for (planner::AcceleratorState& state : classes) state.spec.price_per_hour = 0;
  }
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
  const Question question = question_for({});
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

// Given classes without prices; expects the one with the highest figures.
TEST(PlacingStrategies, WithoutPricesTheFastestClassCounts) {
  const Question question = question_for({.free_of_charge = true});
  for (const planner::NodeState& node : nodes_to_place_on(question.problem())) EXPECT_EQ(node.accelerator, "h100");
}

// Given workers of at most one GPU; expects a plan without larger workers, or an error that names them.
TEST(PlacingStrategies, PlanOnlyWorkersThatTheServiceCanHave) {
  const Question question = question_for({.max_gpus_per_worker = 1});
  const NamedStrategy wide{"wide", "", [](const Problem& problem, const Effort& effort) {
                             auto plan = strategy("huawei").plan(problem, effort);
                             plan->deployment.pools.front().spec.tensor_parallel = 8;
                             return plan;
                           }};
  const auto refused = plan_anywhere(wide, question.problem(), question.problem(), Effort{});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(refused.error().message, HasSubstr("the service cannot have such workers"));
  for (const char* name : {"huawei", "hexgen2"}) {
    const auto plan = plan_anywhere(strategy(name), question.problem(), question.problem(), Effort{});
    if (!plan.ok()) {
      EXPECT_EQ(plan.error().code, ErrorCode::kNotFound) << plan.error().message;
      continue;
    }
    for (const Pool& pool : plan->deployment.pools) EXPECT_EQ(pool.spec.gpus(), 1) << name;
  }
}

// Given room for some workers, not for a power of two; expects the numbers in between to be tried, too.
TEST(PlacingStrategies, TryEveryNumberThatHasRoom) {
  constexpr double kRate = 80;
  const Question plenty = question_for({.requests_per_s = kRate});
  const auto most = plan_anywhere(strategy("huawei"), plenty.problem(), plenty.problem(), Effort{});
  ASSERT_TRUE(most.ok()) << most.error().message;
  const auto workers = static_cast<unsigned>(most->deployment.pools.front().workers);
  ASSERT_FALSE(std::has_single_bit(workers)) << workers << ": choose another rate";
  Question tight = question_for({.requests_per_s = kRate});
  tight.problem().max_cost_per_hour = most->cost_per_hour;
  const auto found = plan_anywhere(strategy("huawei"), plenty.problem(), tight.problem(), Effort{});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->deployment, most->deployment);
}

// Given a step budget that is too small; expects it to be kept, and the plan with a larger one.
TEST(PlacingStrategies, KeepTheStepBudget) {
  const Question question = question_for({.requests_per_s = 60});
  Effort effort;
  effort.max_iterations = 1;
  const auto plan = plan_anywhere(strategy("huawei"), question.problem(), question.problem(), effort);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kCancelled);
  effort.max_iterations = 1'000'000'000;
  const auto whole = plan_anywhere(strategy("huawei"), question.problem(), question.problem(), effort);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_FALSE(whole->stopped);
}

// Given Huawei's planner and HexGen-2; expects workers without nodes that hold, and that fewer in the same proportion do not.
TEST(PlacingStrategies, CountTheFewestWorkersThatHold) {
  const Question question = question_for({.requests_per_s = 60});
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
  const Question question = question_for({.tpot_s = 0.0001});
  const auto plan = plan_anywhere(strategy("huawei"), question.problem(), question.problem(), Effort{});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(plan.error().message, HasSubstr("no number of its workers holds; "));
}

// Given a placement whose copies of the model lie on several workers; expects an error that says so.
TEST(PlacingStrategies, RefuseCopiesOnSeveralWorkers) {
  const Question question = question_for({});
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
