// Tests of describing chains for people: names of GPUs, and grouping of identical chains.
#include "planner/deployment/chains.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/planner/deployment/three_chains.h"

namespace windlass::planner {
namespace {

using testing::ElementsAre;

// Given GPUs in any order; expects one name per node, with ranges.
TEST(Chains, NamesGpus) {
  const hetero::GpuCluster cluster = three_nodes();
  EXPECT_THAT(gpu_names(cluster, {1, 0}), ElementsAre("n0[0-1]"));
  EXPECT_THAT(gpu_names(cluster, {0, 2, 3, 4, 7}), ElementsAre("n0[0,2-3]", "n1[0]", "n2[1]"));
  EXPECT_THAT(gpu_names(cluster, {3, 4, 5, 6}), ElementsAre("n0[3]", "n1[0-1]", "n2[0]"));
  EXPECT_THAT(gpu_names(cluster, {}), ElementsAre());
}

// Given three chains of which two are identical; expects those grouped, and each worker in the pool of its spec and role.
TEST(Chains, GroupsIdenticalChains) {
  const Deployment deployment = three_chains();
  const auto alike = alike_chains(deployment);
  ASSERT_EQ(alike.size(), 2u);
  EXPECT_EQ(alike[0].gpus, 2);
  EXPECT_EQ(alike[0].tensor_parallel, 2);
  EXPECT_THAT(alike[1].chains, ElementsAre(1, 2));
  EXPECT_EQ(alike[1].hops, 2);
  EXPECT_EQ(alike[1].accelerators_text(), "h100-80gb + a100-80gb");
  EXPECT_EQ(describe(deployment), "prefill 1 x h100-80gb-2 + decode 2 x (1 h100-80gb, 2 a100-80gb) (PP 2)");
  ASSERT_EQ(deployment.pools.size(), 3u);
  EXPECT_EQ(deployment.pools[1].workers, 2);
  EXPECT_EQ(deployment.chains[2].hops[1].pool, 2);
  EXPECT_EQ(deployment.chains[2].hops[1].slot, 1);
  EXPECT_EQ(gpus_of(deployment), 8);
}

}  // namespace
}  // namespace windlass::planner
