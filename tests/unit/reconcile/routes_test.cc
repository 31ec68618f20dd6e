// From a plan and workers to what the gateways are told.
#include "controller/reconcile/routes.h"

#include <gtest/gtest.h>

namespace windlass::controller {
namespace {

class RoutesTest : public ::testing::Test {
 protected:
  RoutesTest() {
    service.metadata.name = "chat";
    service.metadata.name_space = "default";
    service.metadata.uid = "u";
    observation.services = {&service};
    observation.snapshot.services.emplace_back();
    observation.workers["u"];
  }

  void add_worker(const std::string& name, const std::string& pool) {
    Worker worker;
    worker.name = name;
    worker.name_space = "default";
    worker.pool = pool;
    worker.address = name + ":80";
    worker.ready = true;
    worker.max_concurrency = 64;
    observation.workers["u"].push_back(worker);
  }
  void add_pool(const std::string& name, double prefill_token_s) {
    planner::PoolPlan& pool = state.services["u"].pools[name];
    pool.name = name;
    pool.slots = 8;
    pool.service_rate_per_s = 0.5;
    if (prefill_token_s > 0) pool.packing = {.prefill_token_s = prefill_token_s, .kv_capacity_tokens = 1000};
  }
  dispatch::ModelRoute route() { return routes(observation, state, 10).at(0); }

  api::ModelService service;
  Observation observation;
  ControllerState state;
};

// Given workers of two pools in any order; each chain points to its pool's latency, and each latency is told once.
TEST_F(RoutesTest, AChainSaysWhichLatencyItHas) {
  add_pool("a100-1", 2e-4);
  add_pool("h100-1", 1e-4);
  add_worker("w2", "h100-1");
  add_worker("w1", "a100-1");
  add_worker("w3", "h100-1");
  const dispatch::ModelRoute told = route();
  ASSERT_EQ(told.latencies.size(), 2U);
  ASSERT_EQ(told.chains.size(), 3U);
  const auto prefill_of = [&](std::size_t k) {
    return told.latencies.at(static_cast<std::size_t>(told.chains[k].latency)).prefill_token_s;
  };
  EXPECT_EQ(prefill_of(0), 2e-4);
  EXPECT_EQ(prefill_of(1), 1e-4);
  EXPECT_EQ(prefill_of(2), 1e-4);
  std::swap(observation.workers["u"][0], observation.workers["u"][1]);
  EXPECT_EQ(route(), told) << "the order in which workers are seen makes no new table";
}

// Given a pool whose latency is not known, and a worker of a pool that was never planned; their chains say so.
TEST_F(RoutesTest, AnUnknownLatencyIsNone) {
  add_pool("other-1", 0);
  add_worker("w1", "other-1");
  add_worker("w2", "stranger-1");
  const dispatch::ModelRoute told = route();
  EXPECT_TRUE(told.latencies.empty());
  EXPECT_EQ(told.chains.at(0).latency, -1);
  EXPECT_EQ(told.chains.at(0).capacity, 8);
  EXPECT_EQ(told.chains.at(1).latency, -1);
  EXPECT_EQ(told.chains.at(1).capacity, 64);
}

}  // namespace
}  // namespace windlass::controller
