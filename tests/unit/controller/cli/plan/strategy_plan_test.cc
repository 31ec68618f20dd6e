// Tests `windlass plan` with a strategy: output, exit codes, and typical mistakes in files.
#include "controller/cli/plan/strategy_plan.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planner/strategies/strategies.h"
#include "tests/paths.h"
#include "tests/unit/controller/cli/run.h"
#include "tests/unit/profile_text.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

const std::string kPlanExample = source_path("/examples/plan/llama3-8b.yaml");
const std::string kWithClasses = source_path("/examples/tiny.yaml");
const std::string kService = source_path("/examples/llama3-8b.yaml");

// The example with a smaller search and shorter trials.
std::string small_example(const std::string& name) {
  std::string text = text_of(kPlanExample);
  text.erase(text.find("- {accelerator: l40s"), std::string("- {accelerator: l40s, gpus: 32}\n").size());
  const std::string search = "search: {tensorParallel: [1, 2, 4]}";
  text.replace(text.find(search), search.size(), "search: {tensorParallel: [1], requestsPerTrial: 100}");
  const std::string rate = "requestsPerSecond: 40";
  text.replace(text.find(rate), rate.size(), "requestsPerSecond: 10");
  return written(name, text);
}

// Given a scenario; expects a plan by auto with pools, predictions and rejected runners-up, and the same plan in a second run.
TEST(StrategyPlan, PlansAScenario) {
  const std::string file = small_example("scenario.yaml");
  const Outcome table = run({"plan", "-f", file});
  ASSERT_EQ(table.code, kDone) << table.err;
  EXPECT_THAT(table.out, HasSubstr("strategy auto: meets the objectives"));
  EXPECT_THAT(table.out, HasSubstr("REJECTED BECAUSE"));
  const Outcome json = run({"plan", "-f", file, "-o", "json", "--jobs", "1"});
  ASSERT_EQ(json.code, kDone) << json.err;
  auto plan = nlohmann::json::parse(json.out);
  EXPECT_EQ(plan.at("strategy"), "auto");
  EXPECT_TRUE(plan.at("meetsObjectives"));
  ASSERT_FALSE(plan.at("pools").empty());
  EXPECT_GE(plan.at("predicted").at("attainment").get<double>(), 0.95);
  EXPECT_GE(plan.at("predicted").at("capacityRequestsPerSecond").get<double>(), 10);
  ASSERT_FALSE(plan.at("considered").empty());
  EXPECT_FALSE(plan.at("considered")[0].at("rejectedBecause").get<std::string>().empty());
  auto again = nlohmann::json::parse(run({"plan", "-f", file, "-o", "json", "--jobs", "3"}).out);
  plan.erase("wallSeconds");
  again.erase("wallSeconds");
  EXPECT_EQ(plan, again);
  EXPECT_THAT(run({"plan", "-f", file, "--time-limit", "1s", "-o", "yaml"}).out, HasSubstr("pools:"));
}

// Given a ModelService; expects the controller's decision, and with --strategy that strategy's plan, with the catalog's classes
// where no file defines them.
TEST(StrategyPlan, PlansAModelService) {
  EXPECT_TRUE(nlohmann::json::parse(run({"plan", "-f", kWithClasses, "-o", "json"}).out).contains("services"));
  const Outcome outcome =
      run({"plan", "-f", kService, "--strategy", "vidur", "--rate", "20", "--time-limit", "5s", "-o", "json"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out).at("strategy"), "vidur");
}

// Given a ModelService with 2 GPUs each of two classes; expects a strategy that places on nodes to place on one node for each
// class. Given one that doesn't say how many GPUs there are; expects the field to set.
TEST(StrategyPlan, PlacesAModelServiceOnNodes) {
  const std::string few = file_with(kService, "few.yaml", "h100-80gb, maxGPUs: 8}", "h100-80gb, maxGPUs: 2}");
  const std::string both = file_with(few, "both.yaml", "a100-80gb, maxGPUs: 8}", "a100-80gb, maxGPUs: 2}");
  const Outcome placed = run({"plan", "-f", both, "--strategy", "hexgen2", "--jobs", "1", "-o", "json"});
  ASSERT_EQ(placed.code, kDone) << placed.err;
  const auto plan = nlohmann::json::parse(placed.out);
  EXPECT_EQ(plan.at("strategy"), "hexgen2");
  EXPECT_THAT(plan.at("groups").dump(), HasSubstr("nvidia-h100-80gb-0"));
  std::string open = file_with(kService, "open-1.yaml", "h100-80gb, maxGPUs: 8}", "h100-80gb}");
  open = file_with(open, "open-2.yaml", "a100-80gb, maxGPUs: 8}", "a100-80gb}");
  const Outcome refused = run({"plan", "-f", open, "--strategy", "hexgen2"});
  EXPECT_EQ(refused.code, kFailed);
  EXPECT_THAT(refused.err,
              HasSubstr("open-2.yaml: must say how many GPUs there are, for the nodes that --strategy hexgen2 places "
                        "on: in `maxGPUs` of spec.accelerators"));
}

// Given a ModelService and a PerformanceProfile that measured transfers to its workers, under the accelerator's name in the
// catalog; expects DistServe's reasons to use them.
TEST(StrategyPlan, UsesTransfersOfAProfile) {
  const std::string profile =
      written("transfers.yaml",
              profile_text("llama3-8b", "h100-80gb", 1, R"({bandwidthBytesPerSecond: "1e+09", latencySeconds: "3"})"));
  const auto reasons = [](const std::vector<std::string>& files) {
    std::vector<std::string> arguments = {"plan", "--strategy", "distserve", "--rate", "2", "--time-limit", "5s", "-o", "json"};
    for (const std::string& file : files) arguments.insert(arguments.end(), {"-f", file});
    const Outcome outcome = run(arguments);
    EXPECT_THAT(outcome.code, testing::AnyOf(kDone, kInfeasible)) << outcome.err;
    return outcome.out;
  };
  EXPECT_THAT(reasons({kService, profile}), HasSubstr("takes 3.13e+03 ms between nodes"));
  EXPECT_THAT(reasons({kService}), testing::Not(HasSubstr("takes 3.13e+03 ms")));
}

// Given PerformanceProfiles of slow workers on both classes of a ModelService; expects a strategy to plan with their times, so
// that the objectives are met without them but not with them.
TEST(StrategyPlan, UsesLatenciesOfProfiles) {
  std::vector<std::string> arguments = {"plan", "--strategy", "aladdin", "--rate", "2", "-o", "json", "-f", kService};
  const Outcome without = run(arguments);
  ASSERT_EQ(without.code, kDone) << without.err;
  for (const char* accelerator : {"h100-80gb", "a100-80gb"}) {
    const std::string name = std::string("slow-") + accelerator;
    std::string text = profile_text("llama3-8b", accelerator, 1, "");
    text.replace(text.find("{name: p}"), std::string("{name: p}").size(), "{name: " + name + "}");
    arguments.insert(arguments.end(), {"-f", written(name + ".yaml", text)});
  }
  const Outcome with = run(arguments);
  EXPECT_EQ(with.code, kInfeasible) << with.out << with.err;
}

// Given an objective that nothing meets; expects exit code 3, the closest plan, and what it misses.
TEST(StrategyPlan, InfeasibleExitsWith3) {
  const Outcome outcome =
      run({"plan", "-f", file_with(kPlanExample, "infeasible.yaml", "timePerOutputToken: 40ms", "timePerOutputToken: 10us"),
           "--strategy", "vidur", "-o", "json"});
  ASSERT_EQ(outcome.code, kInfeasible) << outcome.err;
  const auto plan = nlohmann::json::parse(outcome.out);
  EXPECT_FALSE(plan.at("meetsObjectives"));
  EXPECT_FALSE(plan.at("reasons").empty());
}

// Given the same and a strategy that has no closest plan; expects exit code 3 and the reason.
TEST(StrategyPlan, InfeasibleWithoutAPlanExitsWith3) {
  const Outcome outcome =
      run({"plan", "-f", file_with(kPlanExample, "hopeless.yaml", "timePerOutputToken: 40ms", "timePerOutputToken: 10us"),
           "--strategy", "aladdin"});
  EXPECT_EQ(outcome.code, kInfeasible);
  EXPECT_THAT(outcome.err, HasSubstr("aladdin"));
}

// Given every strategy; expects a row for each, with a plan or the reason why there is none, and a page with both charts.
TEST(StrategyPlan, ComparesAndReports) {
  const std::string page = testing::TempDir() + "plan.html";
  const std::string file = small_example("compared.yaml");
  const Outcome outcome = run({"plan", "-f", file, "--compare", "--time-limit", "2s", "--report", page});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  for (const search::NamedStrategy& strategy : search::strategies()) {
    EXPECT_EQ(outcome.out.find(strategy.name) == std::string::npos, strategy.needs_cluster) << strategy.name;
  }
  const std::string html = text_of(page);
  EXPECT_THAT(html, HasSubstr("SLO attainment by cost"));
  EXPECT_THAT(html, HasSubstr("SLO attainment by request rate"));
  EXPECT_THAT(html, HasSubstr("Pareto front"));
}

// Given typical mistakes; expects a line that names the mistake, and the exit code of a wrong command line or file.
TEST(StrategyPlan, WrongInputs) {
  const auto refused = [](const std::vector<std::string>& arguments, int code, const char* text) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << text;
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_EQ(outcome.out, "");
  };
  refused({"plan", "-f", kPlanExample, "--strategy", "alladin"}, kUsage, "alladin");
  refused({"plan", "-f", kPlanExample, "--goal", "money"}, kUsage, "money");
  refused({"plan", "-f", kPlanExample, "--compare", "--strategy", "auto"}, kUsage, "--strategy");
  refused({"plan", "-f", kPlanExample, "--time-limit", "ten"}, kUsage,
          "--time-limit: must be a duration above 0 such as 10s (got 'ten')");
  refused({"plan", "--snapshot", "x.json", "--strategy", "auto"}, kUsage, "--strategy");
  refused({"plan", "-f", "/nowhere.yaml"}, kFailed, "/nowhere.yaml: must be");
  refused({"plan", "-f", file_with(kPlanExample, "cluster.yaml", "accelerators:", "cluster:")}, kFailed,
          "cluster: must be left out");
  refused({"plan", "-f", file_with(kPlanExample, "unknown.yaml", "a100-80gb", "a100")}, kFailed,
          "accelerators[0].accelerator: must be one of");
  refused({"plan", "-f", kPlanExample, "-f", kPlanExample}, kFailed, "-f: must hold one SCENARIO without cluster or CLUSTER");
  refused({"plan", "-f", kPlanExample, "--report", "/nowhere/plan.html", "--time-limit", "1s"}, kFailed, "/nowhere/plan.html");
}

}  // namespace
}  // namespace windlass::cli
