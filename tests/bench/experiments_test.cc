// Runs the experiments at a small scale: each fills its table and shows the result that the docs claim. Also tests the SVG
// charts.
#include "tests/bench/chains/experiments.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/paths.h"

namespace windlass::bench {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int rows_of(const std::string& markdown) {
  int rows = 0;
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) rows += line.starts_with("| ") ? 1 : 0;
  return rows;
}

class Experiments : public testing::Test {
 protected:
  void SetUp() override {
    const std::string data = source_path("/../shared/data");
    if (!std::filesystem::exists(data + "/topology"))
      GTEST_SKIP() << "no " << data << ": its traces and topologies are not part of the project";
    auto network = RipeNetwork::parse(read(data + "/topology/LearningDataset_RTT_RipeAtlasEU.csv"));
    ASSERT_TRUE(network.ok()) << network.error().message;
    auto trace = workload::parse_azure_trace(read(data + "/traces/AzureLLMInferenceTrace_code.csv"));
    ASSERT_TRUE(trace.ok()) << trace.error().message;
    inputs_.emplace(Inputs{std::move(network).value(), std::move(trace).value(), Scale{3, 2000}, {}});
    for (const char* name : kGraphs) {
      auto graph = parse_repetita(read(data + "/topology/" + name + ".graph"));
      ASSERT_TRUE(graph.ok()) << name << ": " << graph.error().message;
      inputs_->graphs[name] = std::move(graph).value();
    }
  }

  std::optional<Inputs> inputs_;
};

// Given three seeds; expects GBP-CR never to be worse than 100 random placements, and to be optimal under equal memories.
TEST_F(Experiments, Placement) {
  const Report report = placement_experiment(*inputs_);
  EXPECT_GE(rows_of(report.tables), 10);
  std::istringstream lines(report.tables);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("| equal") || line.starts_with("| 20 and")) {
      EXPECT_TRUE(line.ends_with("| 3/3 |")) << line;
    }
  }
  EXPECT_NE(report.tables.find("in 18 of 18 cases"), std::string::npos) << report.tables;
}

// Given three seeds; expects nine loads, and up to 20 % load GCA to need as many servers as the integer program, for every
// seed.
TEST_F(Experiments, Cache) {
  const Report report = cache_experiment(*inputs_);
  EXPECT_EQ(rows_of(report.tables), 1 + 9);
  std::istringstream lines(report.tables);
  int light = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| 5 %") && !line.starts_with("| 10 %") && !line.starts_with("| 20 %")) continue;
    EXPECT_TRUE(line.ends_with("| 3/3 |")) << line;
    ++light;
  }
  EXPECT_EQ(light, 3);
}

// Given three seeds at 80 % load; expects JFFC to respond faster than JSQ and random, and to lie between its bounds.
TEST_F(Experiments, Policies) {
  auto instance = paper_instance(inputs_->network, {}, 1);
  instance.arrival_rate_per_s = 0.8 * compose_all(instance, kPaperCapacity).total_service_rate_per_s;
  const auto composed = compose_all(instance, kPaperCapacity);
  const Scale scale{1, 50'000};
  const auto mean_s = [&](dispatch::PolicyKind policy) {
    return simulate(instance, composed, policy, instance.arrival_rate_per_s, scale, 1).response.mean_s;
  };
  const double jffc_s = mean_s(dispatch::PolicyKind::kJffc);
  EXPECT_LT(jffc_s, mean_s(dispatch::PolicyKind::kJsq));
  EXPECT_LT(jffc_s, mean_s(dispatch::PolicyKind::kRandom));
  EXPECT_GT(jffc_s, 0.97 * *composed.mean_response_lower_s);
  EXPECT_LT(jffc_s, 1.03 * *composed.mean_response_upper_s);
  EXPECT_EQ(rows_of(policy_experiment(*inputs_).tables), 3 * (1 + 9));
}

// Given two seeds; expects a row per rate, cell, interpretation and load, and points in every chart.
TEST_F(Experiments, RemainingExperimentsFillTheirTables) {
  inputs_->scale = Scale{2, 1000};
  const Report capacity = capacity_experiment(*inputs_);
  EXPECT_EQ(rows_of(capacity.tables), 1 + 7);
  const Report overall = overall_experiment(*inputs_);
  EXPECT_EQ(rows_of(overall.tables), 1 + 16);
  EXPECT_GE(rows_of(petals_experiment(*inputs_).tables), 10);
  EXPECT_EQ(rows_of(petals_fig8_experiment(*inputs_).tables), 1 + 16);
  EXPECT_EQ(rows_of(trace_experiment(*inputs_).tables), 3 * (1 + 6));
  EXPECT_NE(block_counts_experiment(*inputs_).tables.find("places 53 and 5"), std::string::npos);
  for (const Report* report : {&capacity, &overall}) {
    for (const Report::Figure& figure : report->figures) {
      const std::string svg = svg_of(figure.chart);
      EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n")) << figure.file;
      EXPECT_EQ(svg.find("nan"), std::string::npos) << figure.file;
      for (const ChartSeries& series : figure.chart.series)
        EXPECT_FALSE(series.points.empty()) << figure.file << ": " << series.name;
    }
  }
}

// Given two seeds; expects a row per published cell and per rule, all with times.
TEST_F(Experiments, PetalsNextToThePublishedTimes) {
  inputs_->scale = Scale{2, 1000};
  const std::string tables = petals_published_experiment(*inputs_).tables;
  EXPECT_EQ(rows_of(tables), 1 + 24 + 1 + 13);
  EXPECT_EQ(tables.find("nan"), std::string::npos) << tables;
}

// Given a triangle with one slow link; expects round trips over the two fast ones, and an error for other text.
TEST(Repetita, AddsDelaysAlongTheShortestPath) {
  const auto rtt_s = parse_repetita(
      "NODES 3\nlabel x y\n0_A 0 0\n1_B 0 1\n2_C 1 0\n\nEDGES 3\nlabel src dest weight bw delay\n"
      "edge_0 0 1 1 1000 1000\nedge_1 1 2 1 1000 2000\nedge_2 0 2 1 1000 9000\n");
  ASSERT_TRUE(rtt_s.ok()) << rtt_s.error().message;
  EXPECT_DOUBLE_EQ((*rtt_s)[0][2], 0.006);
  EXPECT_DOUBLE_EQ((*rtt_s)[2][0], 0.006);
  EXPECT_DOUBLE_EQ((*rtt_s)[0][1], 0.002);
  EXPECT_EQ((*rtt_s)[1][1], 0);
  EXPECT_FALSE(parse_repetita("NODES 2\nlabel x y\n0_A 0 0\n").ok());
}

// Given a pair of places; expects 0.3 times both medians plus 0.01 ms per kilometre (Berlin to Paris: 878 km).
TEST(RipeNetwork, ComposesRoundTrips) {
  const auto network = RipeNetwork::parse(
      "measure_id,anchor_id,dst_ip,init_time,latency_m1,latency_m2,latency_m3,latency_m4,latitude,longitude\n"
      "a,1,x,t,10,20,30,40,52.52,13.405\r\nb,2,x,t,4,4,4,4,48.8566,2.3522\n");
  ASSERT_TRUE(network.ok()) << network.error().message;
  EXPECT_NEAR(network->rtt_s(0, 1), (0.3 * 25 + 0.3 * 4 + 8.78) / 1000, 1e-5);
  const auto wrong = RipeNetwork::parse("head\na,1,x,t,10,fast,30,40,52.52,13.405\n");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("line 2: field 6: must be a number (got 'fast')"), std::string::npos)
      << wrong.error().message;
}

// Given a chart with a name that XML must escape, an infinite point and a logarithmic axis; expects SVG with the name escaped
// and the point omitted.
TEST(SvgChart, EscapesNamesAndOmitsInfinitePoints) {
  const Chart chart{"a < b & c", "x", "y", {{"s", {{0, 1, {}, {}}, {1, 100, 50, 200}, {2, 1.0 / 0.0, {}, {}}}}}, true};
  const std::string svg = svg_of(chart);
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  std::size_t markers = 0;
  for (std::size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++markers;
  EXPECT_EQ(markers, 2U + 1U);  // two points and the legend
}

}  // namespace
}  // namespace windlass::bench
