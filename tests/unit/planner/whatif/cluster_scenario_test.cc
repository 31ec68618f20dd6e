// CLUSTER files: what they make, and what of them is refused.
#include "planner/whatif/cluster_scenario.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/unit/planner/workload/mutated_text.h"

namespace windlass::hetero {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kCluster = R"(
model: {name: llama3.1-8b}
workload: {inputTokens: 512, outputTokens: 128, requestsPerSecond: 12}
slo: {timeToFirstToken: 2s, timePerOutputToken: 100ms}
cluster:
  nodes:
  - {name: n0, accelerator: h100-80gb, gpus: 4, intraGBps: 400, intraLatency: 3us, pricePerGpuHour: 3.69}
  - {name: n1, accelerator: a100-80gb, gpus: 2}
  - {name: n2, accelerator: h100-80gb, gpus: 2}
  links: {default: {GBps: 0.6, latency: 100us}, between: [{nodes: [n1, n0], GBps: 12.5, latency: 5us}]}
)";

Result<search::Question> prepared(const std::string& from = "", const std::string& to = "") {
  std::string text = kCluster;
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  WINDLASS_ASSIGN_OR_RETURN(auto scenario, parse_cluster_scenario(text, "c.yaml"));
  return question_of(std::move(scenario), {});
}

std::string refusal(const std::string& from, const std::string& to) {
  const auto made = prepared(from, to);
  return made.ok() ? "" : made.error().message;
}

// Given a file with every field, expect the cluster to say the same, and a problem whose accelerators are the nodes'.
TEST(ClusterScenario, MakesAClusterProblem) {
  auto made = prepared();
  ASSERT_TRUE(made.ok()) << made.error().message;
  const search::Problem& problem = made->problem();
  const GpuCluster& cluster = *made->problem().cluster;
  ASSERT_EQ(cluster.nodes.size(), 3u);
  EXPECT_EQ(cluster.nodes[0].name, "n0");
  EXPECT_EQ(cluster.nodes[0].within, (Link{400e9, 3e-6}));
  EXPECT_EQ(cluster.nodes[1].within.bytes_per_s, 300e9);  // the data sheet's
  EXPECT_DOUBLE_EQ(cluster.nodes[1].within.latency_s, 5e-6);
  EXPECT_EQ(cluster.nodes[2].accelerator.price_per_hour, 3.69);
  EXPECT_EQ(cluster.link(0, 1), (Link{12.5e9, 5e-6}));
  EXPECT_EQ(cluster.link(1, 2), (Link{0.6e9, 1e-4}));
  EXPECT_EQ(cluster.gpus(), 8);

  EXPECT_EQ(problem.requests_per_s, 12);
  ASSERT_EQ(problem.accelerators.size(), 2u);
  EXPECT_EQ(problem.accelerators[0].spec.name, "h100-80gb");
  EXPECT_EQ(problem.accelerators[0].gpus, 6);
  EXPECT_EQ(problem.accelerators[0].spec.gpus_per_node, 4);
  EXPECT_EQ(problem.accelerators[0].spec.intra_link_bandwidth_bytes_per_s, 400e9);  // the slower of n0 and n2
  EXPECT_EQ(problem.accelerators[0].spec.price_per_hour, 3.69);
  EXPECT_EQ(problem.accelerators[1].gpus, 2);
  EXPECT_EQ(problem.between_nodes.bandwidth_bytes_per_s, 0.6e9);
  EXPECT_EQ(problem.within_node.bandwidth_bytes_per_s, 300e9);
  EXPECT_FALSE(problem.kinds.empty());
  EXPECT_THAT(made->notes(), Contains(HasSubstr("latency: {source: roofline}")));
  EXPECT_THAT(made->notes(), Contains("cluster.nodes[1].intraGBps: 300 (a100-80gb's data sheet)"));
}

// Given no links, expect the data sheets' slowest network and a note; given links without a default, expect no other links.
TEST(ClusterScenario, FillsInLinks) {
  const std::string links =
      "  links: {default: {GBps: 0.6, latency: 100us}, between: [{nodes: [n1, n0], GBps: 12.5, latency: 5us}]}\n";
  const auto sheets = prepared(links, "");
  ASSERT_TRUE(sheets.ok()) << sheets.error().message;
  EXPECT_EQ(sheets->problem().cluster->default_link.bytes_per_s, 25e9);
  EXPECT_DOUBLE_EQ(sheets->problem().cluster->default_link.latency_s, 1e-5);
  EXPECT_THAT(sheets->notes(), Contains(HasSubstr("cluster.links.default: {GBps: 25, latency: 10us}")));

  const auto listed = prepared("default: {GBps: 0.6, latency: 100us}, ", "");
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  EXPECT_EQ(listed->problem().cluster->link(0, 1).bytes_per_s, 12.5e9);
  EXPECT_EQ(listed->problem().cluster->link(0, 2).bytes_per_s, 0);
  EXPECT_EQ(listed->problem().between_nodes.bandwidth_bytes_per_s, 12.5e9);
  EXPECT_THAT(listed->notes(), Contains(HasSubstr("the network is in 2 parts")));
  EXPECT_THAT(listed->notes(), Contains(HasSubstr("n0, n1 have 514 GB; n2 has 171 GB")));
}

// Given no link at all, expect nothing to cross the network of the search's problem either.
TEST(ClusterScenario, ANetworkMayBeNone) {
  const auto made = prepared("between: [{nodes: [n1, n0], GBps: 12.5, latency: 5us}]", "between: []");
  ASSERT_TRUE(made.ok()) << made.error().message;
  const auto none =
      prepared("default: {GBps: 0.6, latency: 100us}, between: [{nodes: [n1, n0], GBps: 12.5, latency: 5us}]", "");
  ASSERT_TRUE(none.ok()) << none.error().message;
  EXPECT_EQ(none->problem().between_nodes.bandwidth_bytes_per_s, 1);
  EXPECT_THAT(none->notes(), Contains(HasSubstr("the network is in 3 parts")));
}

// Given a model that a node's GPUs hold only together with another's, expect a problem without kinds and no error.
TEST(ClusterScenario, NeedsNoWorkerOnOneNode) {
  const auto made = prepared("llama3.1-8b", "opt-175b");  // 351 GB; n0 has 342
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_TRUE(made->problem().kinds.empty());
  EXPECT_FALSE(search::validate(made->problem()).ok());
}

// Given a model that fits nowhere, expect what is needed, what each part of the network has and how much is missing.
TEST(ClusterScenario, SaysWhatIsMissing) {
  const auto made = prepared("llama3.1-8b", "llama3.1-405b");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kNotFound);
  const std::string& message = made.error().message;
  EXPECT_THAT(message, HasSubstr("c.yaml:6: cluster: found llama3.1-405b that fits nowhere"));
  EXPECT_THAT(message, HasSubstr("n0, n1, n2 have 685 GB, 1"));
  EXPECT_THAT(message, HasSubstr("GB too few"));
  std::string apart = kCluster;
  apart.replace(apart.find("default: {GBps: 0.6, latency: 100us}, "), 38, "");
  apart.replace(apart.find("llama3.1-8b"), 11, "llama3.1-405b");
  const auto scenario = parse_cluster_scenario(apart, "c.yaml");
  ASSERT_TRUE(scenario.ok());
  const auto parts = question_of(*scenario, {});
  ASSERT_FALSE(parts.ok());
  EXPECT_THAT(parts.error().message, HasSubstr("n0, n1 have 514 GB"));
  EXPECT_THAT(parts.error().message, HasSubstr("; n2 has 171 GB"));
}

// Given mistakes that a hurried user makes, expect the line, the field, what was found and what is allowed.
TEST(ClusterScenario, NamesMistakes) {
  EXPECT_THAT(refusal("nodes: [n1, n0]", "nodes: [n1, n7]"),
              HasSubstr("c.yaml:10: cluster.links.between[0].nodes: found 'n7', which is no node, allowed are n0, n1, n2"));
  EXPECT_THAT(refusal("nodes: [n1, n0]", "nodes: [n1, n1]"),
              HasSubstr("found a link of 'n1' to itself, allowed are two nodes"));
  EXPECT_THAT(refusal("nodes: [n1, n0]", "nodes: [n1]"), HasSubstr("cluster.links.between[0].nodes: found a list"));
  EXPECT_THAT(refusal("latency: 5us}]", "latency: 5us}, {nodes: [n0, n1], GBps: 1}]"),
              HasSubstr("'n0' and 'n1' a second time"));
  EXPECT_THAT(refusal("name: n1", "name: n0"),
              HasSubstr("c.yaml:8: cluster.nodes[1].name: found 'n0', which is the name of cluster.nodes[0] too"));
  EXPECT_THAT(refusal("a100-80gb", "a100"), HasSubstr("c.yaml:8: cluster.nodes[1].accelerator: found 'a100', allowed is"));
  EXPECT_THAT(refusal("a100-80gb, gpus: 2", "a100-80gb, gpus: 0"), HasSubstr("cluster.nodes[1].gpus: found '0', allowed is"));
  EXPECT_THAT(refusal("gpus: 4, intraGBps", "gpus: 4, intraGbps"), HasSubstr("cluster.nodes[0].intraGbps: unknown field"));
  EXPECT_THAT(refusal("GBps: 0.6", "GBps: -1"), HasSubstr("cluster.links.default.GBps: found '-1'"));
  EXPECT_THAT(refusal("latency: 100us", "latency: 100"), HasSubstr("cluster.links.default.latency: found '100'"));
  EXPECT_THAT(refusal("gpus: 2}\n  links", "gpus: 2, pricePerGpuHour: 3}\n  links"),
              HasSubstr("cluster.nodes[2].pricePerGpuHour: found 3 beside 3.69 of another node with h100-80gb"));
  EXPECT_THAT(refusal("slo:", "accelerators: [{accelerator: l4}]\nslo:"),
              HasSubstr("accelerators: found a list, allowed is nothing"));
  EXPECT_THAT(refusal("slo:", "network: {withinNodeGBps: 1}\nslo:"), HasSubstr("network: found a map, allowed is nothing"));
  EXPECT_THAT(refusal("slo: {timeToFirstToken: 2s, timePerOutputToken: 100ms}", ""), HasSubstr("slo: missing"));
  EXPECT_THAT(refusal("  links", "  link"), HasSubstr("cluster.link: unknown field; allowed are nodes, links"));
  EXPECT_THAT(refusal("  nodes:", "  hosts:"), HasSubstr("cluster.nodes: missing"));
}

// Given thousands of broken texts, expect an answer each time: a cluster that validate() takes, or an error of one line.
TEST(ClusterScenario, AnswersWhateverTheText) {
  const std::string alphabet = "{}[]:,- \n\"'#0129ansGBpk.e\x01";
  Rng rng(1, "broken clusters");
  int accepted = 0;
  for (int i = 0; i < effort(300, 3000); ++i) {
    const auto scenario = parse_cluster_scenario(mutated_text(rng, kCluster, alphabet), "c.yaml");
    if (!scenario.ok()) {
      EXPECT_EQ(scenario.error().message.find('\n'), std::string::npos);
      EXPECT_THAT(scenario.error().message, HasSubstr("c.yaml:"));
      continue;
    }
    EXPECT_TRUE(validate(scenario->cluster).ok());
    if (++accepted % 8 != 0) continue;  // latency models take their time
    const auto made = question_of(*scenario, {});
    if (!made.ok()) {
      EXPECT_FALSE(made.error().message.empty());
    }
  }
  EXPECT_GT(accepted, effort(1, 20));
}

// Given other files, expect to be told apart from a CLUSTER file.
TEST(ClusterScenario, IsToldApart) {
  EXPECT_TRUE(holds_cluster(kCluster));
  EXPECT_TRUE(holds_cluster("cluster: {links: {}}"));
  EXPECT_FALSE(holds_cluster("cluster: {pools: []}"));
  EXPECT_TRUE(holds_cluster("{services: [], cluster: {nodes: []}}"));
  EXPECT_FALSE(holds_cluster("{services: [], cluster: {failures: {}}}"));
  EXPECT_FALSE(holds_cluster("accelerators: []"));
  EXPECT_FALSE(holds_cluster("cluster: [1]"));
  EXPECT_FALSE(holds_cluster("{"));
}

}  // namespace
}  // namespace windlass::hetero
