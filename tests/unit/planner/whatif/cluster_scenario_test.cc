// Tests CLUSTER files: the problems they define, and what is rejected.
#include "planner/whatif/cluster_scenario.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/says.h"
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

// Given a file with every field; expects the cluster to match, and a problem with the nodes' accelerators.
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

// Given no links; expects the data sheets' slowest network and a note. Given links without a default; expects no other links.
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
  EXPECT_THAT(listed->notes(), Contains(HasSubstr("the network has 2 separate parts")));
  EXPECT_THAT(listed->notes(), Contains(HasSubstr("n0, n1 have 514 GB; n2 has 171 GB")));
}

// Given no link at all; expects no transfers over the network in the search's problem either.
TEST(ClusterScenario, ANetworkMayBeNone) {
  const auto made = prepared("between: [{nodes: [n1, n0], GBps: 12.5, latency: 5us}]", "between: []");
  ASSERT_TRUE(made.ok()) << made.error().message;
  const auto none =
      prepared("default: {GBps: 0.6, latency: 100us}, between: [{nodes: [n1, n0], GBps: 12.5, latency: 5us}]", "");
  ASSERT_TRUE(none.ok()) << none.error().message;
  EXPECT_EQ(none->problem().between_nodes.bandwidth_bytes_per_s, 1);
  EXPECT_THAT(none->notes(), Contains(HasSubstr("the network has 3 separate parts")));
}

// Given a model that fits only on two nodes together; expects a problem without kinds and no error.
TEST(ClusterScenario, NeedsNoWorkerOnOneNode) {
  const auto made = prepared("llama3.1-8b", "opt-175b");  // 351 GB; n0 has 342
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_TRUE(made->problem().kinds.empty());
  EXPECT_FALSE(search::validate(made->problem()).ok());
}

// Given a model that fits nowhere; expects the needed memory, what each part of the network has, and how much is missing.
TEST(ClusterScenario, SaysWhatIsMissing) {
  const auto made = prepared("llama3.1-8b", "llama3.1-405b");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kNotFound);
  const std::string& message = made.error().message;
  EXPECT_THAT(message, HasSubstr("c.yaml:6: cluster: must have connected nodes with at least"));
  EXPECT_THAT(message, HasSubstr("n0, n1, n2 have 685 GB, 1"));
  EXPECT_THAT(message, HasSubstr("GB too little"));
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

// Given typical user errors; expects the line, the field, the value and the rule.
TEST(ClusterScenario, NamesMistakes) {
  EXPECT_THAT(refusal("nodes: [n1, n0]", "nodes: [n1, n7]"),
              HasSubstr("c.yaml:10: cluster.links.between[0].nodes: must be names of nodes: n0, n1, n2"));
  EXPECT_THAT(refusal("nodes: [n1, n0]", "nodes: [n1, n1]"), HasSubstr("must be two different nodes (got 'n1' twice)"));
  EXPECT_THAT(refusal("nodes: [n1, n0]", "nodes: [n1]"), Says("cluster.links.between[0].nodes: must*(got a list"));
  EXPECT_THAT(refusal("latency: 5us}]", "latency: 5us}, {nodes: [n0, n1], GBps: 1}]"),
              HasSubstr("'n0' and 'n1' a second time"));
  EXPECT_THAT(refusal("name: n1", "name: n0"),
              HasSubstr("c.yaml:8: cluster.nodes[1].name: must be unique (got 'n0', as cluster.nodes[0])"));
  EXPECT_THAT(refusal("a100-80gb", "a100"), HasSubstr("c.yaml:8: cluster.nodes[1].accelerator: must be one of"));
  EXPECT_THAT(refusal("a100-80gb, gpus: 2", "a100-80gb, gpus: 0"), Says("cluster.nodes[1].gpus: must*(got '0')"));
  EXPECT_THAT(refusal("gpus: 4, intraGBps", "gpus: 4, intraGbps"), HasSubstr("cluster.nodes[0].intraGbps: unknown field"));
  EXPECT_THAT(refusal("GBps: 0.6", "GBps: -1"), Says("cluster.links.default.GBps: must*(got '-1')"));
  EXPECT_THAT(refusal("latency: 100us", "latency: 100"), Says("cluster.links.default.latency: must*(got '100')"));
  EXPECT_THAT(
      refusal("gpus: 2}\n  links", "gpus: 2, pricePerGpuHour: 3}\n  links"),
      HasSubstr(
          "cluster.nodes[2].pricePerGpuHour: must be the same on all nodes with h100-80gb (got 3, another node has 3.69)"));
  EXPECT_THAT(refusal("slo:", "accelerators: [{accelerator: l4}]\nslo:"), Says("accelerators: must be left out*(got a list)"));
  EXPECT_THAT(refusal("slo:", "network: {withinNodeGBps: 1}\nslo:"), Says("network: must be left out*(got a map)"));
  EXPECT_THAT(refusal("slo: {timeToFirstToken: 2s, timePerOutputToken: 100ms}", ""), HasSubstr("slo: must be a map"));
  EXPECT_THAT(refusal("  links", "  link"), HasSubstr("cluster.link: unknown field, must be one of nodes, links"));
  EXPECT_THAT(refusal("  nodes:", "  hosts:"), HasSubstr("cluster.nodes: missing"));
}

// Given thousands of broken texts; expects a cluster that validate() accepts, or an error of one line.
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
    if (++accepted % 8 != 0) continue;  // building latency models takes time
    const auto made = question_of(*scenario, {});
    if (!made.ok()) {
      EXPECT_FALSE(made.error().message.empty());
    }
  }
  EXPECT_GT(accepted, effort(1, 20));
}

// Given other files; expects holds_cluster() to tell them from a CLUSTER file.
TEST(ClusterScenario, IsDistinguishedFromOtherFiles) {
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
