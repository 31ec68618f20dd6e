// Tests SCENARIO files of plans: the problems they define, and what is rejected.
#include "planner/whatif/plan_scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/says.h"
#include "tests/unit/profile_text.h"

namespace windlass::search {
namespace {

using testing::HasSubstr;

constexpr const char* kScenario = R"(
model: {name: llama3.1-8b}
latency: {source: roofline}
workload: {inputTokens: 512, outputTokens: {distribution: lognormal, mean: 128, cv: 1, max: 1024}, requestsPerSecond: 12}
slo: {timeToFirstToken: 500ms, timePerOutputToken: 40ms, percentile: 90}
accelerators:
- {accelerator: a100-80gb, gpus: 8, pricePerGpuHour: 2}
- {accelerator: h100-80gb, gpus: 16}
search: {tensorParallel: [1, 2], pipelineStages: [1, 2], maxGpus: 20, maxCostPerHour: 90, requestsPerTrial: 700}
network: {betweenNodesGBps: 12.5, betweenNodesLatency: 20us, transfer: layerwise}
limits: [{metric: ttft, percentile: 99, most: 2s}]
)";

Result<Question> prepared(std::string text, const std::string& from = "", const std::string& to = "",
                          const std::map<std::string, std::string>& texts = {}) {
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  WINDLASS_ASSIGN_OR_RETURN(auto plan, parse_plan_scenario(text, "s.yaml"));
  return question_of(std::move(plan), texts);
}

std::string refusal(const std::string& from, const std::string& to) {
  const auto made = prepared(kScenario, from, to);
  return made.ok() ? "" : made.error().message;
}

// Given a scenario with every field; expects the problem to match.
TEST(PlanScenario, MakesAProblem) {
  const auto made = prepared(kScenario);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Problem& problem = made->problem();
  EXPECT_EQ(problem.requests_per_s, 12);
  EXPECT_EQ(problem.requests->mean_input_tokens(), 512);
  ASSERT_EQ(problem.accelerators.size(), 2u);
  EXPECT_EQ(problem.accelerators[0].gpus, 8);
  EXPECT_EQ(problem.accelerators[0].spec.price_per_hour, 2);
  EXPECT_EQ(problem.kinds.size(), 8u);  // 2 accelerators x TP 1, 2 x PP 1, 2
  EXPECT_EQ(problem.objectives.attainment, 0.9);
  ASSERT_TRUE(problem.objectives.both.has_value());
  EXPECT_EQ(problem.objectives.both->tpot_s, 0.04);
  ASSERT_EQ(problem.objectives.limits.size(), 1u);
  EXPECT_EQ(problem.objectives.limits[0].most, 2);
  EXPECT_EQ(problem.max_gpus, 20);
  EXPECT_EQ(problem.max_cost_per_hour, 90);
  EXPECT_EQ(problem.requests_per_trial, 700);
  EXPECT_EQ(problem.between_nodes.bandwidth_bytes_per_s, 12.5e9);
  EXPECT_EQ(problem.between_nodes.layers, problem.shape.layers);
  EXPECT_GT(problem.within_node.bandwidth_bytes_per_s, problem.between_nodes.bandwidth_bytes_per_s);
  const auto source = problem.requests->source(1, 100, 50);
  int requests = 0;
  double last_s = 0;
  while (const auto request = source->next()) {
    ++requests;
    last_s = request->arrival_s;
  }
  EXPECT_EQ(requests, 50);
  EXPECT_NEAR(last_s, 0.5, 0.25);  // 50 requests at 100 a second
}

// Given a profile with measured transfers to one kind of worker; expects the measured paths, in bytes of the cache, except
// where the file sets the network; other kinds have the problem's paths. The values used are reported.
TEST(PlanScenario, TakesMeasuredTransfers) {
  const std::string profile = profile_text(
      "llama3.1-8b", "h100-80gb", 2, R"({bandwidthBytesPerSecond: "4e+09", latencySeconds: "0.002", bytesPerToken: "262144"})");
  const auto made =
      prepared(kScenario, "{source: roofline}", "{source: linear, files: {h100-80gb: p.yaml}}", {{"p.yaml", profile}});
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Problem& problem = made->problem();
  int measured = 0;
  for (const WorkerKind& kind : problem.kinds) {
    if (problem.spec(kind).name != "h100-80gb") {
      EXPECT_EQ(problem.path_to(kind, true), problem.within_node);
      EXPECT_EQ(problem.path_to(kind, false), problem.between_nodes);
      continue;
    }
    ++measured;
    EXPECT_EQ(problem.path_to(kind, true), (planner::KvTransferPath{2e9, 0.002, problem.shape.layers, 0}));
    EXPECT_EQ(problem.path_to(kind, false), problem.between_nodes) << "as the file says";
  }
  EXPECT_EQ(measured, 1);  // the profile's
  EXPECT_THAT(made->notes(), testing::Contains("network.withinNodeGBps: 2 to decode workers of h100-80gb-2 (measured)"));
  EXPECT_THAT(made->notes(), testing::Not(testing::Contains(HasSubstr("betweenNodesGBps"))));
}

// Given a folder of operator tables for each accelerator; expects for all kinds together the models of each kind alone, to the
// last bit, with and without an executor: tables are read once, and stages share them.
TEST(PlanScenario, SharesOperatorTables) {
  const std::map<std::string, std::string> texts = {
      {"a/gemm_perf.csv.gz", "gemm_dtype,m,n,k,latency\nbfloat16,1,4096,4096,0.02\nbfloat16,512,4096,4096,0.1\n"},
      {"h/gemm_perf.csv.gz", "gemm_dtype,m,n,k,latency\nbfloat16,1,4096,4096,0.01\nfp8,1,4096,4096,0.005\n"},
      {"h/nccl_perf.csv.gz", "op_name,nccl_dtype,num_gpus,message_size,latency\nall_reduce,half,2,4096,0.02\n"}};
  const std::string from = "{source: roofline}", to = "{source: operators, files: {a100-80gb: a, h100-80gb: h}}";
  SerialExecutor executor;
  std::string text = kScenario;
  text.replace(text.find(from), from.size(), to);
  const auto plan = parse_plan_scenario(text, "s.yaml");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto all = question_of(*plan, texts, &executor);
  ASSERT_TRUE(all.ok()) << all.error().message;
  ASSERT_EQ(all->problem().kinds.size(), 8u);
  for (const WorkerKind& kind : all->problem().kinds) {
    PlanScenario alone = *plan;
    alone.space.tensor_parallel = {kind.tensor_parallel};
    alone.space.pipeline_stages = {kind.pipeline_stages};
    const auto made = question_of(std::move(alone), texts);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const auto& kinds = made->problem().kinds;
    ASSERT_EQ(kinds.size(), 2u);
    const planner::IterationModel& own = *kinds[static_cast<std::size_t>(kind.accelerator)].model;
    EXPECT_EQ(kind.model->kv_capacity_tokens(), own.kv_capacity_tokens());
    for (const int sequences : {1, 7, 100}) {
      EXPECT_EQ(kind.model->iteration_s(planner::decode_batch(sequences, 900)),
                own.iteration_s(planner::decode_batch(sequences, 900)));
      EXPECT_EQ(kind.model->iteration_s(planner::prefill_batch(sequences, 300)),
                own.iteration_s(planner::prefill_batch(sequences, 300)));
    }
  }
}

// Given typical user errors; expects the line, the field, the value and the rule.
TEST(PlanScenario, NamesMistakes) {
  EXPECT_THAT(refusal("h100-80gb", "h100"), HasSubstr("s.yaml:8: accelerators[1].accelerator: must be one of"));
  EXPECT_THAT(refusal("h100-80gb", "a100-80gb"), HasSubstr("(got a100-80gb a second time)"));
  EXPECT_THAT(refusal("accelerators:", "cluster:"), HasSubstr("cluster: must be left out"));
  EXPECT_THAT(refusal("[1, 2], pipe", "[0], pipe"), HasSubstr("search.tensorParallel: must be a list"));
  EXPECT_THAT(refusal("roofline}", "roofline, tensorParallel: 2}"), HasSubstr("latency.tensorParallel: must be left out"));
  EXPECT_THAT(refusal("percentile: 99", "percentile: 80"), HasSubstr("limits[0].percentile: must be one of 50, 90, 95, 99"));
  EXPECT_THAT(refusal("metric: ttft", "metric: ttftSlowdown"), HasSubstr("limits[0]"));
  EXPECT_THAT(refusal("maxGpus: 20", "maxGPUs: 20"), HasSubstr("maxGPUs"));
  EXPECT_THAT(refusal("gpus: 8", "gpus: -1"), Says("accelerators[0].gpus: must*(got '-1')"));
}

// Given neither slo nor limits; expects an error that requires one. Given only limits; expects a problem.
TEST(PlanScenario, NeedsAnObjective) {
  std::string text = kScenario;
  text.erase(text.find("slo:"), text.find("accelerators:") - text.find("slo:"));
  EXPECT_TRUE(prepared(text).ok());
  text.erase(text.find("limits:"));
  const auto made = prepared(text);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr("slo: must be a map"));
}

// Given a model that fits no allowed worker; expects the reason for each.
TEST(PlanScenario, SaysWhyNothingFits) {
  const auto made = prepared(kScenario, "llama3.1-8b", "llama3.1-405b");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(made.error().message, HasSubstr("no worker fits the accelerators: a100-80gb, TP 1: "));
}

}  // namespace
}  // namespace windlass::search
