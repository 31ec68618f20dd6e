// Tests the serving simulator: closed forms, invariants of every run, and the transfer of a cache between two workers.
#include "planner/sim/serving_simulation.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "planner/queueing/erlang.h"
#include "tests/effort.h"
#include "tests/list_source.h"
#include "tests/unit/planner/sim/serving_fixture.h"

namespace windlass::sim {
namespace {

// Given one request on an idle worker; expects the model's times: a prefill, then one decode per further token.
TEST(ServingSimulation, OneRequestTakesItsIterations) {
  Line model;
  model.per_context_token_s = 1e-6;
  ServingOptions options;
  options.pools = {pool_of(model, dispatch::Role::kUnified, 1)};
  options.objectives = ServingObjectives{0.02, 0.012};
  options.slowdown_reference = &model;
  ListSource source({{5, 1, 100, 4}});
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok());
  const double decode_s = 3 * 0.011 + (100 + 101 + 102) * 1e-6;
  EXPECT_NEAR(result->ttft.mean_s, 0.02, 1e-8);
  EXPECT_NEAR(result->e2e.mean_s, 0.02 + decode_s, 1e-8);
  EXPECT_NEAR(result->tbt.mean_s, decode_s / 3, 1e-8);
  EXPECT_EQ(result->iterations, 4);
  EXPECT_EQ(result->attainment, 1);
  EXPECT_NEAR(result->slowdown->ttft.mean_s, 1, 1e-6);
  EXPECT_NEAR(result->slowdown->e2e.mean_s, 1, 1e-3);
}

// Given prompts with one output token, one sequence at a time, and Poisson arrivals; expects M/D/1: the mean wait is rho / (2
// (1 - rho)) services.
TEST(ServingSimulation, IsAnMd1QueueForSingleTokens) {
  Line model;
  model.base_s = 0.1;
  model.per_prompt_token_s = 0;
  ServingOptions options;
  options.pools = {pool_of(model, dispatch::Role::kUnified, 1)};
  options.pools[0].spec.engine.max_sequences = 1;
  Rng rng(2, "md1");
  ListSource source(random_requests(rng, 200'000, 7, 1, 1));
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok());
  EXPECT_NEAR(result->scheduling_delay.mean_s, 0.7 / (2 * 0.3) * 0.1, 0.004);
  EXPECT_NEAR(result->busy_share, 0.7, 0.01);
}

// Given prefill and decode workers and one request; expects the cache transfer to take latency and bytes / bandwidth between
// the first and the second token, or, by layers, only the part that the prefill does not hide; the prefill worker's pages are
// freed.
TEST(ServingSimulation, MovesTheCacheBetweenRoles) {
  Line model;
  ServingOptions options;
  options.pools = {pool_of(model, dispatch::Role::kPrefill, 1), pool_of(model, dispatch::Role::kDecode, 1)};
  options.link = {{1e6, 0.002, 0, 0}, 1000};  // 100 tokens: 0.1 s
  for (const int layers : {0, 10}) {
    options.link.path.layers = layers;
    ListSource source({{0, 1, 100, 3}});
    const auto result = simulate_serving(source, options);
    ASSERT_TRUE(result.ok());
    const double visible_s = layers == 0 ? 0.102 : 0.002 + 0.1 - 0.9 * 0.02;  // nine of ten layers of the prefill hide it
    EXPECT_NEAR(result->ttft.mean_s, 0.02, 1e-8);
    EXPECT_NEAR(result->e2e.mean_s, 0.02 + visible_s + 2 * 0.011, 1e-8) << layers;
    EXPECT_EQ(result->kv_transfers, 1);
  }
}

// Given a decode worker with room for one of two ready caches; expects back-pressure: the second is pulled when the first has
// ended, and nothing is lost.
TEST(ServingSimulation, PullsWhenThereIsRoom) {
  Line model;
  ServingOptions options;
  options.pools = {pool_of(model, dispatch::Role::kPrefill, 1), pool_of(model, dispatch::Role::kDecode, 1)};
  options.pools[1].spec.engine.kv_blocks = 10;
  options.link = {};
  ListSource source({{0, 1, 100, 50}, {0, 1, 100, 50}});
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 2);
  EXPECT_NEAR(result->e2e.max_s - result->e2e.min_s, 49 * 0.011, 0.03);
  EXPECT_EQ(result->preemptions, 0);
}

// Given random clusters of every batching and of one or two roles, short of memory, with and without a mixed pool, under every
// dispatch; expects every request that fits to be served once, the same figures from the same run, and times in order.
TEST(ServingSimulation, ServesEverythingOnceAndRepeatsItself) {
  constexpr planner::Batching kAll[] = {planner::Batching::kStatic, planner::Batching::kOrca, planner::Batching::kVllm,
                                        planner::Batching::kMixed, planner::Batching::kSarathi};
  Rng rng(3, "clusters");
  std::int64_t preemptions = 0, transfers = 0, refused = 0;
  for (int round = 0; round < effort(100, 1000); ++round) {
    Line model;
    model.capacity_tokens = static_cast<double>(rng.integer(300, 2000));
    ServingOptions options;
    const bool two = round % 2 == 1;
    const planner::Batching batching = kAll[(round / 2) % 5];
    options.pools = {pool_of(model, two ? dispatch::Role::kPrefill : dispatch::Role::kUnified,
                             static_cast<int>(rng.integer(1, 3)), batching)};
    if (two) options.pools.push_back(pool_of(model, dispatch::Role::kDecode, static_cast<int>(rng.integer(1, 3)), batching));
    for (ServingPool& pool : options.pools) pool.spec.engine.max_sequences = static_cast<int>(rng.integer(1, 12));
    options.link = {{1e7, 1e-4, round % 3 == 0 ? 8 : 0, 0}, 1000};
    if (rng.uniform() < 0.7) options.dispatch.policy = dispatch::kAllPolicies[static_cast<std::size_t>(rng.integer(0, 6))];
    const bool paged = batching != planner::Batching::kStatic && batching != planner::Batching::kOrca;
    if (two && paged && rng.uniform() < 0.7) options.dispatch.mixed_pool_threshold_tokens = rng.integer(0, 500);
    const auto requests = random_requests(rng, 120, rng.uniform(1, 60), 300, 60);
    ListSource source(requests), again(requests);
    const auto result = simulate_serving(source, options);
    ASSERT_TRUE(result.ok());
    ASSERT_EQ(result->completed + result->refused, 120) << "round " << round;
    ASSERT_LE(result->ttft.max_s, result->e2e.max_s);
    ASSERT_LE(result->scheduling_delay.mean_s, result->ttft.mean_s);
    ASSERT_LE(result->busy_share, 1 + 1e-9);
    const auto repeated = simulate_serving(again, options);
    ASSERT_EQ(repeated->e2e.mean_s, result->e2e.mean_s);
    ASSERT_EQ(repeated->iterations, result->iterations);
    preemptions += result->preemptions;
    transfers += result->kv_transfers;
    refused += result->refused;
  }
  EXPECT_GT(preemptions, effort(6, 100));
  EXPECT_GT(transfers, effort(66, 1000));
  EXPECT_GT(refused, 0);
}

// Given one prefill worker that is far behind and three idle decode workers; expects prompts to go there too with a mixed pool,
// and much earlier first tokens.
TEST(ServingSimulation, TheMixedPoolTakesPromptsThatWouldWait) {
  Line model;
  ServingOptions options;
  options.pools = {pool_of(model, dispatch::Role::kPrefill, 1, planner::Batching::kMixed),
                   pool_of(model, dispatch::Role::kDecode, 3, planner::Batching::kMixed)};
  options.link = {{1e9, 0, 0, 0}, 100};
  Rng rng(4, "burst");
  const auto requests = random_requests(rng, 400, 15, 2000, 20);
  ListSource apart_source(requests), mixed_source(requests);
  const auto apart = simulate_serving(apart_source, options);
  options.dispatch.mixed_pool_threshold_tokens = 3000;
  const auto mixed = simulate_serving(mixed_source, options);
  ASSERT_TRUE(apart.ok() && mixed.ok());
  EXPECT_LT(mixed->ttft.p95_s, apart->ttft.p95_s / 2);
  EXPECT_EQ(mixed->completed, 400);
}

// Given pools that cannot serve a request, an empty pool, and a model that leaves no room for a cache; expects errors that name
// pool and field.
TEST(ServingSimulation, RefusesWhatCannotServe) {
  Line model, full;
  full.capacity_tokens = -5;
  ListSource source({});
  const auto message = [&](std::vector<ServingPool> pools) {
    ServingOptions options;
    options.pools = std::move(pools);
    const auto result = simulate_serving(source, options);
    return result.ok() ? std::string() : result.error().message;
  };
  EXPECT_NE(message({}).find("cluster.pools: must be all unified"), std::string::npos);
  EXPECT_NE(message({pool_of(model, dispatch::Role::kPrefill, 1)}).find("cluster.pools: must be all unified"),
            std::string::npos);
  EXPECT_NE(message({pool_of(model, dispatch::Role::kUnified, 0)})
                .find("cluster.pools[0].workers: must be a number of at least 1 (got 0)"),
            std::string::npos);
  EXPECT_NE(message({pool_of(full, dispatch::Role::kUnified, 1)}).find("cluster.pools[0]: the model does not fit"),
            std::string::npos);
}

}  // namespace
}  // namespace windlass::sim
