// Tests plans as JSON.
#include "planner/strategies/core/plan_json.h"

#include <memory>

#include <gtest/gtest.h>

#include "tests/unit/planner/deployment/three_chains.h"

namespace windlass::search {
namespace {

// Given a plan of chains; expects JSON with the groups, their stages and the flow.
TEST(PlanJson, OfChains) {
  Problem problem;
  problem.cluster = std::make_shared<const hetero::GpuCluster>(planner::three_nodes());
  Offer plan;
  plan.strategy = "hexgen2";
  plan.deployment = planner::three_chains();
  plan.predicted.capacity_requests_per_s = 6;
  plan.holds = true;
  const auto json = to_json(problem, plan, 0.25);
  EXPECT_EQ(json.at("groups")[1].dump(),
            R"({"gpus":["n0[2]","n1[0-1]"],"role":"decode","tensorParallel":2,"stages":[{"gpus":["n0[2]"],"layers":20},)"
            R"({"gpus":["n1[0-1]"],"layers":28}],"batch":32,"latencySeconds":8.0,"capacityRequestsPerSecond":4.0})");
  EXPECT_EQ(json.at("flow").at("value"), 6);
  EXPECT_EQ(json.at("flow").at("edges")[1].dump(),
            R"({"from":0,"to":2,"share":0.5,"requestsPerSecond":3.0,"capacityRequestsPerSecond":1.0})");
  EXPECT_EQ(json.at("pools").size(), 2u);
  EXPECT_EQ(json.at("pools")[1].at("workers"), 2);
  EXPECT_TRUE(json.at("predicted").is_null());
  EXPECT_EQ(json.at("wallSeconds"), 0.25);
}

}  // namespace
}  // namespace windlass::search
