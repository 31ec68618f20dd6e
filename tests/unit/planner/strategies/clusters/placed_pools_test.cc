// A placement for people and as JSON.
#include "planner/strategies/clusters/placed_pools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/whatif/cluster_plan_json.h"

namespace windlass::hetero {
namespace {

using testing::ElementsAre;

// n0: 4 H100 (GPUs 0 to 3), n1: 2 A100 (4, 5), n2: 2 A100 (6, 7).
GpuCluster three_nodes() {
  GpuCluster cluster;
  for (const auto& [name, accelerator, gpus] :
       {std::tuple("n0", "h100-80gb", 4), std::tuple("n1", "a100-80gb", 2), std::tuple("n2", "a100-80gb", 2)}) {
    ClusterNode node;
    node.name = name;
    node.accelerator.name = accelerator;
    node.gpus = gpus;
    cluster.nodes.push_back(node);
  }
  return cluster;
}

ClusterPlan three_groups() {
  ClusterPlan plan;
  plan.strategy = "hexgen2";
  plan.groups = {{dispatch::Role::kPrefill, {{{0, 1}, 48}}, 6, 0.1, 1},
                 {dispatch::Role::kDecode, {{{2}, 20}, {{4, 5}, 28}}, 4, 8, 32},
                 {dispatch::Role::kDecode, {{{3}, 20}, {{7, 6}, 28}}, 4, 8, 32}};
  plan.flow = {{0, 1, 3, 10, 0.5}, {0, 2, 3, 1, 0.5}};
  plan.capacity_requests_per_s = 6;
  plan.gpus = 8;
  return plan;
}

// Given GPUs in any order, expect a name a node, with ranges.
TEST(PlacedPools, NamesGpus) {
  const GpuCluster cluster = three_nodes();
  EXPECT_THAT(gpu_names(cluster, {1, 0}), ElementsAre("n0[0-1]"));
  EXPECT_THAT(gpu_names(cluster, {0, 2, 3, 4, 7}), ElementsAre("n0[0,2-3]", "n1[0]", "n2[1]"));
  EXPECT_THAT(gpu_names(cluster, {3, 4, 5, 6}), ElementsAre("n0[3]", "n1[0-1]", "n2[0]"));
  EXPECT_THAT(gpu_names(cluster, {}), ElementsAre());
}

// Given groups of which two are alike, expect them together.
TEST(PlacedPools, PutsAlikeGroupsTogether) {
  const GpuCluster cluster = three_nodes();
  const ClusterPlan plan = three_groups();
  const auto pools = pools_of(cluster, plan);
  ASSERT_EQ(pools.size(), 2u);
  EXPECT_EQ(pools[0].gpus, 2);
  EXPECT_EQ(pools[0].tensor_parallel, 2);
  EXPECT_THAT(pools[1].groups, ElementsAre(1, 2));
  EXPECT_EQ(pools[1].stages, 2);
  EXPECT_EQ(accelerators_text(pools[1]), "h100-80gb + a100-80gb");
  EXPECT_EQ(describe(cluster, plan), "prefill 1 x h100-80gb-2 + decode 2 x (1 h100-80gb, 2 a100-80gb) (PP 2)");
}

// Given a plan, expect JSON with the groups, their stages and the flow.
TEST(PlacedPools, PrintAsJson) {
  const ClusterProblem problem{nullptr, three_nodes()};
  ClusterTrial trial;
  trial.meets_objectives = true;
  const auto json = to_json(problem, three_groups(), trial, 0.25);
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
}  // namespace windlass::hetero
