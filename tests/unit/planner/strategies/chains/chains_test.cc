// Tests plans of server chains, and the latency model of a chain.
#include "planner/strategies/chains/chains.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/strategies/core/stage_cost.h"
#include "planner/strategies/core/staged_model.h"
#include "planner/strategies/core/trial.h"
#include "planner/whatif/cluster_scenario.h"

namespace windlass::hetero {
namespace {

using testing::HasSubstr;

// 48 GB GPUs of two classes, of which none holds the model.
constexpr const char* kRacks = R"(
model: {name: llama3-70b}
workload: {inputTokens: 500, outputTokens: 100, requestsPerSecond: 0.3}
slo: {timeToFirstToken: 5s, timePerOutputToken: 300ms}
cluster:
  nodes:
  - {name: n0, accelerator: l40s, gpus: 2}
  - {name: n1, accelerator: l40s, gpus: 2}
  - {name: n2, accelerator: l40s, gpus: 2}
  - {name: n3, accelerator: a6000, gpus: 2}
  - {name: n4, accelerator: a6000, gpus: 2}
  - {name: n5, accelerator: a6000, gpus: 2}
  links: {default: {GBps: 3.125, latency: 30us}}
)";

search::Question prepared(const std::string& from = "", const std::string& to = "") {
  std::string text = kRacks;
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return question_of(parse_cluster_scenario(text, "c.yaml").value(), {}).value();
}

// Given a model that no worker of the cluster holds; expects chains that have all of its layers, on GPUs of one node for each
// hop and of no other chain, within memory, and a plan that holds in another trial with the promised requests at once.
TEST(Chains, HoldAModelThatNoWorkerHolds) {
  const auto question = prepared();
  const search::Problem& problem = question.problem();
  const auto plan = chains_plan(problem, {});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(plan->holds) << plan->missed;
  std::set<int> taken;
  for (const planner::Chain& chain : plan->deployment.chains) {
    int layers = 0;
    EXPECT_GT(chain.hops.size(), 1U);
    for (const planner::Hop& hop : chain.hops) {
      layers += hop.layers;
      EXPECT_GT(hop.layers, 0);
      const int degree = static_cast<int>(hop.gpus.size());
      const StageBytes bytes = stage_bytes(problem.shape, hop.layers, degree);
      const int node = problem.cluster->node_of(hop.gpus.front());
      EXPECT_LE(bytes.weights + chain.batch * 600 * bytes.per_token,
                kMemoryShare * problem.cluster->nodes[static_cast<std::size_t>(node)].accelerator.memory_bytes);
      for (const int gpu : hop.gpus) {
        EXPECT_EQ(problem.cluster->node_of(gpu), node);
        EXPECT_TRUE(taken.insert(gpu).second) << gpu << " is in two servers";
      }
    }
    EXPECT_EQ(layers, problem.shape.layers);
  }
  const auto again = search::try_out(problem, plan->deployment, {problem.requests_per_s, 1000, problem.seed + 1});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(search::judge(problem, *again).holds) << search::judge(problem, *again).broken;
}

// Given higher rates; expects costs that never fall, and GPUs of the cluster only. Given more than all chains serve; expects
// the nearest plan with what it misses.
TEST(Chains, TakeMoreServersForMoreRequests) {
  double before = 0;
  for (const char* rate : {"0.1", "0.3", "0.6"}) {
    const auto question = prepared("requestsPerSecond: 0.3", std::string("requestsPerSecond: ") + rate);
    const auto plan = chains_plan(question.problem(), {});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_GE(plan->cost_per_hour, before) << rate;
    EXPECT_LE(plan->gpus, 12);
    before = plan->cost_per_hour;
  }
  const auto question = prepared("requestsPerSecond: 0.3", "requestsPerSecond: 300");
  const auto plan = chains_plan(question.problem(), {});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_FALSE(plan->holds);
  EXPECT_FALSE(plan->missed.empty());
}

// Given a cluster too small for the model; expects an error that says how much memory is missing.
TEST(Chains, SayWhatIsMissing) {
  std::string small = kRacks;
  small.erase(small.find("  - {name: n2"), small.find("  links:") - small.find("  - {name: n2"));
  const auto question = prepared(kRacks, small);
  // 140 GB of weights fit four of these GPUs, with caches for few requests; 352 GB do not.
  search::Problem problem = question.problem();
  EXPECT_TRUE(chains_plan(problem, {}).ok());
  problem.shape = planner::model_shape_by_name("bloom-176b").value();
  const auto plan = chains_plan(problem, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(plan.error().message, HasSubstr("GB of memory are missing"));
}

// Given a chain on GPUs of one class; expects the times of one worker that has the whole model, and those of its messages.
TEST(StagedModel, AddsUpToTheWholeModel) {
  const auto question = prepared();
  const search::Problem& problem = question.problem();
  planner::Chain chain;
  chain.hops = {{0, 0, 20, {0, 1}}, {0, 1, 60, {2, 3}}};
  const auto staged = StagedModel::make(problem.shape, *problem.cluster, chain);
  ASSERT_TRUE(staged.ok()) << staged.error().message;
  const auto whole = roofline_instance(problem.shape, problem.cluster->nodes.front(), 2).value();
  planner::Batch mixed = planner::decode_batch(8, 700);
  mixed.add_prefill(500);
  const double hop_s = 2 * 30e-6, token_s = problem.shape.hidden * 4 / 3.125e9;
  for (const planner::Batch& batch : {planner::prefill_batch(1, 500), planner::decode_batch(4, 600), mixed}) {
    const double tokens = batch.prefill_tokens + batch.decode_sequences;
    EXPECT_NEAR(staged->iteration_s(batch), whole->iteration_s(batch) + hop_s + tokens * token_s, 1e-9);
  }
  // The stage with more layers has less room.
  const StageBytes bytes = stage_bytes(problem.shape, 60, 2);
  const double memory = kMemoryShare * problem.cluster->nodes.front().accelerator.memory_bytes;
  EXPECT_DOUBLE_EQ(staged->kv_capacity_tokens(), (memory - bytes.weights) / bytes.per_token);
}

// Given stages without a link between them; expects an error that names them.
TEST(StagedModel, NeedsLinks) {
  const auto question = prepared();
  GpuCluster cluster = *question.problem().cluster;
  cluster.default_link = {};
  planner::Chain chain;
  chain.hops = {{0, 0, 40, {0, 1}}, {0, 1, 40, {2, 3}}};
  const auto staged = StagedModel::make(question.problem().shape, cluster, chain);
  ASSERT_FALSE(staged.ok());
  EXPECT_THAT(staged.error().message, HasSubstr("n0[0-1]"));
}

}  // namespace
}  // namespace windlass::hetero
