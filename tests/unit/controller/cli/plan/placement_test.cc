// Tests `windlass plan` of CLUSTER files: output, exit codes, and typical mistakes in files.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/cli/console/console.h"
#include "controller/cli/plan/strategy_page.h"
#include "planner/strategies/strategies.h"
#include "planner/whatif/cluster_scenario.h"
#include "tests/paths.h"
#include "tests/unit/controller/cli/run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kClusterExample = source_path("/examples/cluster/4-h100-4-a100.yaml");
const std::string kScenario = source_path("/examples/plan/llama3-8b.yaml");

// Given the example; expects HexGen-2's groups and flow as a table, and as JSON with the documented fields; the same on any
// number of cores.
TEST(ClusterPlan, PlacesOnACluster) {
  const Outcome table = run({"plan", "-f", kClusterExample});
  ASSERT_EQ(table.code, kDone) << table.err << table.out;
  EXPECT_THAT(table.out, HasSubstr("strategy hexgen2: meets the objectives"));
  EXPECT_THAT(table.out, HasSubstr("OF PATH CAPACITY"));
  EXPECT_THAT(table.out, HasSubstr("h100["));
  const Outcome outcome = run({"plan", "-f", kClusterExample, "--strategy", "hexgen2", "-o", "json", "--jobs", "1"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  auto plan = outcome.json();
  EXPECT_EQ(plan.at("strategy"), "hexgen2");
  EXPECT_TRUE(plan.at("meetsObjectives"));
  EXPECT_TRUE(plan.at("servesRate"));
  for (const char* field :
       {"pools", "costPerHour", "gpus", "predicted", "reasons", "considered", "iterations", "wallSeconds"}) {
    EXPECT_TRUE(plan.contains(field)) << field;
  }
  ASSERT_GE(plan.at("groups").size(), 2u);
  int gpus = 0;
  for (const auto& group : plan.at("groups")) {
    int layers = 0;
    for (const auto& stage : group.at("stages")) layers += stage.at("layers").get<int>();
    EXPECT_EQ(layers, 48);
    EXPECT_FALSE(group.at("gpus").empty());
    EXPECT_GE(group.at("tensorParallel").get<int>(), 1);
  }
  for (const auto& pool : plan.at("pools")) gpus += pool.at("workers").get<int>() * pool.at("gpusPerWorker").get<int>();
  EXPECT_EQ(gpus, plan.at("gpus").get<int>());
  double share = 0, value = 0;
  for (const auto& edge : plan.at("flow").at("edges")) {
    share += edge.at("share").get<double>();
    value += edge.at("requestsPerSecond").get<double>();
    EXPECT_EQ(plan.at("groups")[edge.at("from").get<std::size_t>()].at("role"), "prefill");
    EXPECT_EQ(plan.at("groups")[edge.at("to").get<std::size_t>()].at("role"), "decode");
  }
  EXPECT_NEAR(share, 1, 1e-6);
  EXPECT_NEAR(value, plan.at("flow").at("value").get<double>(), 1e-6 * value);
  auto again = run({"plan", "-f", kClusterExample, "--strategy", "hexgen2", "-o", "json", "--jobs", "3"}).json();
  plan.erase("wallSeconds");
  again.erase("wallSeconds");
  EXPECT_EQ(plan, again);
  EXPECT_THAT(run({"plan", "-f", kClusterExample, "-o", "yaml"}).out, HasSubstr("flow:"));
}

// Given the other strategies; expects their plans of the same file: Huawei's on the machines, a search's with the cluster's
// GPUs.
TEST(ClusterPlan, TakesOtherStrategies) {
  const Outcome huawei = run({"plan", "-f", kClusterExample, "--strategy", "huawei", "--rate", "1", "-o", "json"});
  ASSERT_EQ(huawei.code, kDone) << huawei.err << huawei.out;
  const auto placed = huawei.json();  // a variable, since the range of a loop does not extend a temporary's life
  for (const auto& group : placed.at("groups")) EXPECT_EQ(group.at("role"), "unified");
  const Outcome vidur =
      run({"plan", "-f", kClusterExample, "--strategy", "vidur", "--rate", "1", "--time-limit", "2s", "-o", "json"});
  EXPECT_THAT(vidur.code, testing::AnyOf(kDone, kInfeasible)) << vidur.err;
  EXPECT_EQ(vidur.json().at("strategy"), "vidur");
}

// Given a rate that the cluster cannot serve; expects exit code 3 and the highest rate that it can.
TEST(ClusterPlan, SaysTheMostThatItServes) {
  const Outcome outcome = run({"plan", "-f", kClusterExample, "--rate", "5000", "-o", "json"});
  ASSERT_EQ(outcome.code, kInfeasible) << outcome.err;
  const auto plan = outcome.json();
  EXPECT_FALSE(plan.at("servesRate"));
  EXPECT_FALSE(plan.at("meetsObjectives"));
  const double most = plan.at("flow").at("value").get<double>();
  EXPECT_GT(most, 1);
  EXPECT_LT(most, 5000);
  EXPECT_FALSE(plan.at("reasons").empty());
  EXPECT_THAT(run({"plan", "-f", kClusterExample, "--rate", "5000"}).out, HasSubstr("SERVES AT MOST"));
  // An objective that no placement meets is reported too.
  const Outcome missed =
      run({"plan", "-f", file_with(kClusterExample, "missed.yaml", "timePerOutputToken: 150ms", "timePerOutputToken: 10us")});
  EXPECT_EQ(missed.code, kInfeasible);
  EXPECT_THAT(missed.out, HasSubstr("serves the rate, BUT"));
}

// Given every strategy; expects a row for each, with a plan or the reason why there is none, and a page with groups and flow.
TEST(ClusterPlan, ComparesAndReports) {
  const std::string page = testing::TempDir() + "cluster.html";
  const Outcome outcome =
      run({"plan", "-f", kClusterExample, "--rate", "1", "--compare", "--time-limit", "1s", "--report", page});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  for (const auto& strategy : search::strategies()) EXPECT_THAT(outcome.out, HasSubstr(strategy.name));
  const std::string html = text_of(page);
  EXPECT_THAT(html, HasSubstr("<title>Groups on their nodes</title>"));
  EXPECT_THAT(html, HasSubstr("<title>Flow between prefill and decode groups</title>"));
  EXPECT_THAT(html, HasSubstr("h100[0]"));
  EXPECT_THAT(html, Not(HasSubstr("http://www.w3.org/1999")));
}

// Given a fixed placement; expects the text and the page of the golden files, so that no text changes unnoticed.
// WINDLASS_UPDATE_GOLDEN=1 writes them again.
TEST(ClusterPlan, MatchesItsGoldenFiles) {
  auto scenario = hetero::parse_cluster_scenario(text_of(kClusterExample), "4-h100-4-a100.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  auto prepared = question_of(std::move(*scenario), {});
  ASSERT_TRUE(prepared.ok()) << prepared.error().message;
  const search::Problem& problem = prepared->problem();
  StrategyOutcome outcome;
  outcome.strategy = "hexgen2";
  outcome.wall_s = 0.125;
  search::Offer& plan = outcome.plan.emplace();
  plan.strategy = "hexgen2";
  plan.holds = true;
  const auto spec = [](const char* accelerator, int gpus) { return planner::WorkerSpec{accelerator, gpus, 1, {}}; };
  planner::Deployment& deployment = plan.deployment;
  add_chain(deployment, {dispatch::Role::kPrefill, {{0, 0, 48, {0, 1}}}, 30, 0.033, 1}, {spec("h100-80gb", 2)});
  add_chain(deployment, {dispatch::Role::kDecode, {{0, 0, 20, {2}}, {0, 0, 28, {4, 5}}}, 14, 5, 70},
            {spec("h100-80gb", 1), spec("a100-80gb", 2)});
  add_chain(deployment, {dispatch::Role::kDecode, {{0, 0, 48, {6, 7}}}, 9, 6, 54}, {spec("a100-80gb", 2)});
  deployment.pairs = {{0, 1, 14, 20, 14.0 / 23}, {0, 2, 9, 12, 9.0 / 23}};
  plan.cost_per_hour = 3 * 3.69 + 4 * 1.69;
  plan.power_watts = 3700;
  plan.gpus = 7;
  plan.iterations = 12;
  plan.reasons = {"One GPU is left: with it no group serves more."};
  search::Rejection& other = plan.considered.emplace_back();
  other.what = "prefill on a100[0-3]";
  other.predicted.capacity_requests_per_s = 21;
  other.cost_per_hour = 18.5;
  other.rejected_because = "serves 21 requests/s, the plan 23";
  plan.predicted = {0.21, 0.031, 0.97, 0.95, 23, true};
  const std::string folder = source_path("/tests/golden/");
  for (const auto& [file, text] :
       {std::pair<std::string, std::string>("cluster_plan.txt", strategy_table(problem, outcome, prepared->notes())),
        std::pair<std::string, std::string>("cluster_plan.html", strategy_page(problem, {outcome}, {}))}) {
    if (std::getenv("WINDLASS_UPDATE_GOLDEN") != nullptr) std::ofstream(folder + file) << text;
    EXPECT_EQ(text, text_of(folder + file)) << file << " differs; WINDLASS_UPDATE_GOLDEN=1 writes it again";
  }
}

// Given every file in examples/cluster; expects it to be read and its model to be placed.
TEST(ClusterPlan, ExamplesWork) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("/examples/cluster"))) {
    SCOPED_TRACE(entry.path());
    ++files;
    const Outcome outcome = run({"plan", "-f", entry.path().string(), "--time-limit", "5s", "-o", "json"});
    ASSERT_EQ(outcome.code, kDone) << outcome.err << outcome.out;
    EXPECT_GT(outcome.json().at("gpus").get<int>(), 0);
    EXPECT_LE(outcome.json().at("gpus").get<int>(), 24);
    EXPECT_LE(outcome.json().at("costPerHour").get<double>(), 29.52 + 1e-9);
  }
  EXPECT_EQ(files, 8);
}

// Given typical mistakes; expects a line that names the mistake, and the exit code of a wrong command line or file.
TEST(ClusterPlan, WrongInputs) {
  const auto refused = [](const std::vector<std::string>& arguments, int code, const char* text) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << text;
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_EQ(outcome.out, "");
  };
  refused({"plan", "-f", kClusterExample, "--strategy", "hexgen"}, kUsage, "hexgen");
  refused({"plan", "-f", kClusterExample, "--goal", "power"}, kUsage, "--goal: must be throughput for hexgen2 (got power)");
  refused({"plan", "-f", kClusterExample, "--goal", "cost", "--strategy", "huawei"}, kUsage,
          "--goal: must be throughput for huawei (got cost)");
  refused({"plan", "-f", kScenario, "--strategy", "hexgen2"}, kFailed,
          "llama3-8b.yaml: must have a cluster for --strategy hexgen2 (got none): `cluster: "
          "{nodes");
  refused(
      {"plan", "-f", kClusterExample, "-f", kClusterExample}, kFailed,
      "-f: must hold one SCENARIO without cluster or CLUSTER, next to nothing but AcceleratorClasses (got 2 such documents)");
  refused({"plan", "-f", file_with(kClusterExample, "zero.yaml", "gpus: 4", "gpus: 0")}, kFailed,
          "cluster.nodes[0].gpus: must be a whole number");
  refused({"plan", "-f", file_with(kClusterExample, "unknown.yaml", "accelerator: h100-80gb", "accelerator: h100")}, kFailed,
          "cluster.nodes[0].accelerator: must be one of");
  refused({"plan", "-f", file_with(kClusterExample, "large.yaml", "opt-30b", "llama3.1-405b")}, kFailed, "GB too little");
  refused({"plan", "-f",
           file_with(kClusterExample, "apart.yaml", "default: {GBps: 3.125, latency: 30us}",
                     "between: [{nodes: [h100, b200], GBps: 1}]")},
          kFailed, "cluster.links.between[0].nodes: must be names of nodes: h100, a100");
  refused({"plan", "-f", kClusterExample, "--report", "/nowhere/plan.html", "--time-limit", "1s"}, kFailed,
          "/nowhere/plan.html");
}

}  // namespace
}  // namespace windlass::cli
