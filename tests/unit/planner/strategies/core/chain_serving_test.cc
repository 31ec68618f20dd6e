// Tests placements in the simulator: the strategies for clusters deliver what they promise.
#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/strategies/core/chain_model.h"
#include "planner/strategies/core/deployment.h"
#include "planner/strategies/core/plan_parts.h"
#include "planner/strategies/core/trial.h"
#include "planner/strategies/strategies.h"
#include "planner/whatif/cluster_scenario.h"

namespace windlass::hetero {
namespace {

using testing::HasSubstr;

// Lengths are fixed, as assumed by a plan of mean lengths. Arrivals are Poisson.
constexpr const char* kCluster = R"(
model: {name: opt-30b}
workload: {inputTokens: 256, outputTokens: 128, requestsPerSecond: 1}
slo: {timeToFirstToken: 5s, timePerOutputToken: 200ms}
cluster:
  nodes:
  - {name: n0, accelerator: h100-80gb, gpus: 4}
  - {name: n1, accelerator: a100-80gb, gpus: 4}
  - {name: n2, accelerator: a6000, gpus: 4}
  links: {default: {GBps: 1.25, latency: 30us}, between: [{nodes: [n1, n0], GBps: 12.5, latency: 10us}]}
)";

search::Question prepared(const std::string& from = "", const std::string& to = "") {
  std::string text = kCluster;
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return question_of(parse_cluster_scenario(text, "c.yaml").value(), {}).value();
}

search::Offer plan_by(const char* strategy, const search::Problem& problem) {
  return search::strategy_by_name(strategy).value()->plan(problem, {}).value();
}

// Given HexGen-2's plan; expects nine tenths of its flow to be served as it arrives, with first tokens that do not pile up and
// the planned time per token; and twice its flow not to be.
TEST(ChainServing, ServesTheFlowThatHexGen2Promises) {
  auto cluster = prepared();
  const search::Problem& problem = cluster.problem();
  const search::Offer plan = plan_by("hexgen2", problem);
  ASSERT_GT(plan.predicted.capacity_requests_per_s, 1);
  ASSERT_FALSE(plan.deployment.pairs.empty());
  constexpr int kRequests = 4000;
  const double rate = 0.9 * plan.predicted.capacity_requests_per_s;
  const auto served = search::try_out(problem, plan.deployment, {rate, kRequests, 1});
  ASSERT_TRUE(served.ok()) << served.error().message;
  EXPECT_EQ(served->completed, kRequests);
  double slowest_prefill_s = 0, slowest_decode_s = 0;
  for (const planner::Chain& chain : plan.deployment.chains) {
    double& slowest = chain.role == dispatch::Role::kPrefill ? slowest_prefill_s : slowest_decode_s;
    slowest = std::max(slowest, chain.latency_s);
  }
  EXPECT_LT(served->simulated_s, kRequests / rate * 1.05 + slowest_prefill_s + 2 * slowest_decode_s);
  // M/D/1 at 90 % waits 4.5 services on average.
  EXPECT_LT(served->ttft.p50_s, 6 * slowest_prefill_s);
  EXPECT_LT(served->ttft.p99_s, 40 * slowest_prefill_s);
  EXPECT_LT(served->tpot.p99_s, 1.3 * slowest_decode_s / 128);

  const auto flooded = search::try_out(problem, plan.deployment, {2 * plan.predicted.capacity_requests_per_s, kRequests, 1});
  ASSERT_TRUE(flooded.ok());
  EXPECT_GT(flooded->simulated_s, 1.5 * kRequests / (2 * plan.predicted.capacity_requests_per_s));
}

// Given the same plan; expects each pair to get its share of the requests.
TEST(ChainServing, PairsTakeTheirShares) {
  auto cluster = prepared();
  const search::Problem& problem = cluster.problem();
  const search::Offer plan = plan_by("hexgen2", problem);
  const auto placed = serving_service(problem, plan.deployment);
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  const sim::ServingService& service = placed->service;
  const auto with_flow = std::count_if(plan.deployment.pairs.begin(), plan.deployment.pairs.end(),
                                       [](const auto& edge) { return edge.requests_per_s > 0; });
  ASSERT_EQ(service.pairs.size(), static_cast<std::size_t>(with_flow));
  int gpus = 0;
  double cost = 0;
  for (const sim::ServingPool& pool : service.pools) {
    gpus += pool.spec.gpus();
    cost += pool.spec.gpus() * pool.price_per_gpu_hour;
  }
  EXPECT_LE(gpus, plan.gpus);
  EXPECT_LE(cost, plan.cost_per_hour * (1 + 1e-9));
  for (const sim::PoolPair& pair : service.pairs) {
    EXPECT_EQ(service.pools[static_cast<std::size_t>(pair.prefill)].role, dispatch::Role::kPrefill);
    EXPECT_EQ(service.pools[static_cast<std::size_t>(pair.decode)].role, dispatch::Role::kDecode);
  }
}

// Given each group of the plan; expects the model's times to be those used in planning.
TEST(ChainServing, GroupsHaveThePlansLatencies) {
  auto cluster = prepared();
  const search::Problem& problem = cluster.problem();
  const search::Offer plan = plan_by("hexgen2", problem);
  for (const planner::Chain& chain : plan.deployment.chains) {
    const auto model = ChainModel::make(problem.shape, *problem.cluster, chain);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const double seconds = chain.role == dispatch::Role::kPrefill
                               ? model->iteration_s(planner::prefill_batch(1, 256))
                               : 128 * model->iteration_s(planner::decode_batch(chain.batch, 256));
    EXPECT_NEAR(seconds / chain.latency_s, 1, 1e-6);
    EXPECT_GE(model->kv_capacity_tokens(), chain.batch * (256 + 128) * (1 - 1e-9));
  }
}

// Given Huawei's plan of unified instances; expects the machines to serve its rate with continuous batching, because the static
// batches it plans with are slower.
TEST(ChainServing, ServesWhatHuaweiPromises) {
  auto cluster = prepared();
  const search::Problem& problem = cluster.problem();
  const search::Offer plan = plan_by("huawei", problem);
  ASSERT_FALSE(plan.deployment.chains.empty());
  EXPECT_TRUE(plan.deployment.pairs.empty());
  const double rate = 0.9 * plan.predicted.capacity_requests_per_s;
  const auto served = search::try_out(problem, plan.deployment, {rate, 2000, 1});
  ASSERT_TRUE(served.ok()) << served.error().message;
  EXPECT_EQ(served->completed, 2000);
  double slowest_s = 0;  // mean over a batch's requests
  for (const planner::Chain& chain : plan.deployment.chains) slowest_s = std::max(slowest_s, chain.latency_s);
  EXPECT_LT(served->simulated_s, 2000 / rate * 1.05 + slowest_s);
}

// Given a rate that the plan serves; expects the trial to meet the objectives. Given twice its capacity; expects a message with
// the rate it serves. Given an objective that no group meets; expects a message with what is missed.
TEST(ChainServing, TrialsSayWhatIsMissed) {
  auto cluster = prepared();
  search::Problem& problem = cluster.problem();
  search::Offer plan = plan_by("hexgen2", problem);
  ASSERT_TRUE(plan.holds);
  const double capacity = plan.predicted.capacity_requests_per_s;
  confirm(problem, plan);
  EXPECT_TRUE(plan.holds) << plan.missed;
  EXPECT_TRUE(plan.predicted.simulated);
  EXPECT_EQ(plan.predicted.capacity_requests_per_s, capacity);

  problem.objectives.both->tpot_s = 1e-6;
  confirm(problem, plan);
  EXPECT_FALSE(plan.holds);
  EXPECT_THAT(plan.missed, HasSubstr("meet the objectives"));

  problem.requests_per_s = 2 * capacity;
  plan = plan_by("hexgen2", problem);
  EXPECT_FALSE(plan.holds);
  confirm(problem, plan);
  EXPECT_FALSE(plan.holds);
  EXPECT_THAT(plan.missed, HasSubstr("requests/s, but"));

  plan.deployment = {};
  confirm(problem, plan);
  EXPECT_THAT(plan.missed, HasSubstr("must have at least one worker"));
}

}  // namespace
}  // namespace windlass::hetero
