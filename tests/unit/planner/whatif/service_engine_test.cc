// What strategies offer for a ModelService: only what its engine can be told.
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/deployment/engine_space.h"
#include "planner/strategies/strategies.h"
#include "planner/strategies/vidur/vidur_space.h"
#include "planner/whatif/question.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::search {
namespace {

using planner::EngineType;

planner::Service service_with(EngineType engine) {
  planner::Service service = planner::testing::chat_service();
  service.workload.requests_per_s = 8;
  service.engine = engine;
  return service;
}

const std::vector<planner::AcceleratorState>& classes() {
  static const std::vector<planner::AcceleratorState> kClasses = {planner::testing::with_gpus(planner::testing::h100(), 24)};
  return kClasses;
}

// Given a service with each engine, and each strategy that needs no nodes, for cost, and for power with Windlass; expects
// offers whose workers can all be started as they were simulated.
TEST(ServiceEngine, OffersAreInTheEnginesSpace) {
  for (const EngineType type : planner::kAllEngineTypes) {
    const auto question = question_of(service_with(type), classes());
    ASSERT_TRUE(question.ok()) << question.error().message;
    Problem problem = question->problem();
    EXPECT_FALSE(problem.engines.length_predictor || problem.engines.power_share);
    problem.requests_per_trial = 300;
    for (const Goal goal : {Goal::kCost, Goal::kPower}) {
      if (goal == Goal::kPower && type != EngineType::kWindlass) continue;
      problem.goal = goal;
      for (AcceleratorChoice& choice : problem.accelerators) choice.spec.power_watts = 700;
      for (const NamedStrategy& strategy : strategies()) {
        if (strategy.needs_cluster || std::string(strategy.name) == "auto") continue;
        Effort effort;
        effort.max_iterations = 1'000'000;
        const auto offer = strategy.plan(problem, effort);
        ASSERT_TRUE(offer.ok()) << strategy.name << ": " << offer.error().message;
        for (const Pool& pool : offer->deployment.pools) {
          EXPECT_TRUE(problem.engines.holds(pool.spec))
              << planner::to_string(type) << ": " << strategy.name << ": " << planner::to_string(pool.spec.engine.batching);
        }
      }
    }
  }
}

// Given each engine; expects Vidur-Search to compare settings of that engine, and more than one budget.
TEST(ServiceEngine, VidurSearchComparesTheEnginesSettings) {
  for (const EngineType type : planner::kAllEngineTypes) {
    const auto question = question_of(service_with(type), classes());
    ASSERT_TRUE(question.ok()) << question.error().message;
    const Problem& problem = question->problem();
    const auto points = vidur_points(problem, {}, length_moments(*problem.requests, problem.seed, 100));
    std::set<int> budgets;
    for (const VidurPoint& point : points) {
      EXPECT_TRUE(problem.engines.holds(point.engine.batching)) << planner::to_string(type);
      EXPECT_TRUE(problem.engines.holds(point.engine)) << planner::to_string(type);
      budgets.insert(point.engine.max_batch_tokens);
    }
    EXPECT_GE(budgets.size(), 3U) << planner::to_string(type);
  }
}

}  // namespace
}  // namespace windlass::search
