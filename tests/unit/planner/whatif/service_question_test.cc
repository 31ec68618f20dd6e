// Tests the nodes and links of a question about a ModelService.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/strategies/strategies.h"
#include "planner/whatif/question.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::search {
namespace {

using planner::NodeState;
using planner::testing::a100;
using planner::testing::chat_service;
using planner::testing::h100;
using planner::testing::with_gpus;

planner::Service service() {
  planner::Service out = chat_service();
  out.workload.requests_per_s = 1;
  out.accelerators = {{"h100", std::nullopt}, {"a100", std::nullopt}};
  return out;
}

std::vector<planner::AcceleratorState> classes() {
  std::vector<planner::AcceleratorState> out = {with_gpus(h100(), 12), with_gpus(a100(), 4)};
  out[0].spec.inter_link_bandwidth_bytes_per_s = 50e9;
  out[0].spec.inter_link_latency_s = 5e-6;
  out[1].spec.inter_link_bandwidth_bytes_per_s = 25e9;
  out[1].spec.inter_link_latency_s = 8e-6;
  return out;
}

std::vector<std::string> text_of(const hetero::GpuCluster& cluster) {
  std::vector<std::string> nodes;
  for (const auto& node : cluster.nodes) {
    nodes.push_back(node.name + " " + node.accelerator.name + " " + std::to_string(node.gpus));
  }
  return nodes;
}

// Given nodes of two allowed classes and another, some cordoned or used up; expects the free GPUs of the allowed ones in order
// of their names, with the links of their data sheets. Without nodes there is no cluster.
TEST(ServiceQuestion, HasTheNodesThatTheServiceMayUse) {
  const std::vector<NodeState> nodes = {{"n0", "h100", 8, 2, "", false}, {"n1", "a100", 4, 0, "", false},
                                        {"n1", "h100", 4, 0, "", false}, {"n2", "h100", 8, 0, "", true},
                                        {"n3", "h100", 4, 4, "", false}, {"n4", "l4", 4, 0, "", false}};
  const auto made = question_of(service(), classes(), nodes);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_NE(made->problem().cluster, nullptr);
  const hetero::GpuCluster& cluster = *made->problem().cluster;
  EXPECT_EQ(text_of(cluster), (std::vector<std::string>{"n0 h100 6", "n1 a100 4", "n1/h100 h100 4"}));
  EXPECT_EQ(cluster.link(0, 0), (hetero::Link{450e9, 3e-6}));
  EXPECT_EQ(cluster.link(1, 1).bytes_per_s, 300e9);
  EXPECT_EQ(cluster.link(0, 1), (hetero::Link{25e9, 8e-6}));
  EXPECT_EQ(cluster.link(0, 2), (hetero::Link{50e9, 5e-6}));
  EXPECT_TRUE(hetero::validate(cluster).ok());
  EXPECT_EQ(question_of(service(), classes())->problem().cluster, nullptr);
}

// Given a limit on the GPUs of a class; expects the nodes with the most free GPUs.
TEST(ServiceQuestion, TakesLargeNodesFirst) {
  planner::Service limited = service();
  limited.accelerators = {{"h100", 10}};
  const std::vector<NodeState> nodes = {
      {"n0", "h100", 2, 0, "", false}, {"n1", "h100", 8, 0, "", false}, {"n2", "h100", 4, 0, "", false}};
  const auto made = question_of(limited, classes(), nodes);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(text_of(*made->problem().cluster), (std::vector<std::string>{"n1 h100 8", "n2 h100 2"}));
}

// Given two small nodes; expects HexGen-2 and Huawei's planner to answer.
TEST(ServiceQuestion, StrategiesPlaceOnItsNodes) {
  const std::vector<NodeState> nodes = {{"n0", "h100", 2, 0, "", false}, {"n1", "a100", 2, 0, "", false}};
  const auto made = question_of(service(), classes(), nodes);
  ASSERT_TRUE(made.ok()) << made.error().message;
  for (const char* name : {"hexgen2", "huawei"}) {
    const auto offer = strategy_by_name(name).value()->plan(made->problem(), Effort{});
    ASSERT_TRUE(offer.ok()) << name << ": " << offer.error().message;
    EXPECT_GT(offer->deployment.chains.size() + offer->deployment.pools.size(), 0U) << name;
  }
}

}  // namespace
}  // namespace windlass::search
