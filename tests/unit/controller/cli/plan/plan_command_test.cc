// Tests `windlass plan` for a ModelService: what it prints, and the exit code. Each plan asks all strategies, which simulate
// for a second, or for half a minute under a sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/unit/controller/cli/example_objects.h"
#include "tests/unit/controller/cli/run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

// Given a valid file; expects its plan as JSON with pools, predictions and reasons, and the same service as YAML and as a
// table.
TEST(PlanCommand, PrintsEveryFormat) {
  const TempFolder folder;
  const std::string file = folder.file("tiny.yaml", kTinyYaml);
  const Outcome json = run({"plan", "-f", file, "-o", "json"});
  ASSERT_EQ(json.code, kDone) << json.err;
  const auto plan = nlohmann::json::parse(json.out);
  ASSERT_EQ(plan.at("services").size(), 1u);
  const auto& service = plan.at("services")[0];
  EXPECT_EQ(service.at("pools").size(), 1u);
  EXPECT_GE(service.at("pools")[0].at("workers").get<int>(), 1);
  EXPECT_TRUE(service.contains("predicted"));
  EXPECT_FALSE(service.at("reasons").empty());
  EXPECT_THAT(run({"plan", "-f", file, "-o", "yaml"}).out, HasSubstr("pools:"));
  EXPECT_THAT(run({"plan", "-f", file}).out, HasSubstr("default/tiny"));
}

// Given more requests per second; expects a plan with more workers, and exit code 3 if there are too few.
TEST(PlanCommand, FollowsTheRate) {
  const TempFolder folder;
  const std::string file = folder.file("tiny.yaml", kTinyYaml);
  const auto workers = [&](const std::string& rate, int code) {
    const Outcome outcome = run({"plan", "-f", file, "-o", "json", "--rate", rate});
    EXPECT_EQ(outcome.code, code) << outcome.err;
    return nlohmann::json::parse(outcome.out).at("services")[0].at("pools")[0].at("workers").get<int>();
  };
  EXPECT_EQ(workers("0", kDone), 1);
  EXPECT_EQ(workers("100000", kInfeasible), 4);  // as many as one node has
}

// Given edits; expects the plan without and with them in every format, and the exit code of the second.
TEST(PlanCommand, ShowsWhatWouldChange) {
  const TempFolder folder;
  const std::string file = folder.file("tiny.yaml", kTinyYaml);
  const Outcome table = run({"plan", "-f", file, "--what-if", "rate=2x,price.cpu=0.5"});
  ASSERT_EQ(table.code, kDone) << table.err;
  for (const char* text : {"default/tiny rate: 1 -> 2", "local-cpu price: 0.25 -> 0.5", "NOW", "WHAT IF", "cost per hour",
                           "- AssumedWorkload: ", "+ AssumedWorkload: "}) {
    EXPECT_THAT(table.out, HasSubstr(text));
  }
  const Outcome json = run({"plan", "-f", file, "--what-if", "rate=2x", "-o", "json"});
  const auto plans = nlohmann::json::parse(json.out);
  const auto plain = nlohmann::json::parse(run({"plan", "-f", file, "-o", "json"}).out);
  const auto twice = nlohmann::json::parse(run({"plan", "-f", file, "-o", "json", "--rate", "2"}).out);
  EXPECT_EQ(plans.at("now"), plain);
  EXPECT_EQ(plans.at("whatIf").at("services")[0].at("pools"), twice.at("services")[0].at("pools"));
  EXPECT_EQ(plans.at("edits")[0].at("to"), "2");
  EXPECT_THAT(run({"plan", "-f", file, "--what-if", "rate=2x", "-o", "yaml"}).out, HasSubstr("whatIf:"));
  const std::string snapshot = source_path() + "/tests/golden/two_services.snapshot.json";
  EXPECT_THAT(run({"plan", "--snapshot", snapshot, "--what-if", "chat:rate=2x"}).out, HasSubstr("/chat rate: "));
  EXPECT_EQ(run({"plan", "-f", file, "--what-if", "slo.tpot=1ms"}).code, kInfeasible);
  const Outcome same = run({"plan", "-f", file, "--what-if", "maxWorkers=100"});
  EXPECT_THAT(same.out, HasSubstr("The reasons are the same."));
  EXPECT_THAT(run({"plan", "-f", file, "--what-if", "rat=2"}).err, HasSubstr("--what-if: rat: must be one of rate"));
  EXPECT_EQ(run({"plan", "-f", file, "--what-if", ""}).code, kFailed);
  EXPECT_EQ(run({"plan", "-f", file, "--what-if", "rate=2x", "--strategy", "mix"}).code, kUsage);
  const std::string scenario = source_path("/examples/plan/llama3-8b.yaml");
  EXPECT_EQ(run({"plan", "-f", scenario, "--what-if", "rate=2x"}).code, kUsage);
}

// Given a service without any class; expects a plan on the catalog and a note about it, with a strategy too.
TEST(PlanCommand, NeedsNoClass) {
  const TempFolder folder;
  const std::string tiny = replaced(kTinyYaml, "  accelerators: [{class: local-cpu}]\n", "");
  const std::string file = folder.file("tiny.yaml", tiny.substr(tiny.find("---\n")));
  const Outcome plan = run({"plan", "-f", file});
  ASSERT_EQ(plan.code, kDone) << plan.err;
  EXPECT_THAT(plan.err, HasSubstr("considering the whole catalog (docs/catalog.md): v100-32gb, "));
  EXPECT_THAT(run({"plan", "-f", file, "--strategy", "mix"}).err, HasSubstr("considering the whole catalog"));
}

}  // namespace
}  // namespace windlass::cli
