// Building the gateways' routes from a plan and workers.
#include "controller/reconcile/routes.h"

#include <map>

#include <gtest/gtest.h>

#include "controller/reconcile/routing_publisher.h"
#include "planner/catalog/model_shape.h"

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
  void add_pool(const planner::PoolId& id, double prefill_token_s) {
    planner::Pool& pool = state.services["u"].pools[id];
    pool.name = id.name;
    pool.role = id.role;
    pool.each.slots = 8;
    pool.each.service_rate_per_s = 0.5;
    if (prefill_token_s > 0) pool.each.packing = {.prefill_token_s = prefill_token_s, .kv_capacity_tokens = 1000};
  }
  dispatch::ModelRoute route() { return routes(observation, state, 10).at(0); }

  api::ModelService service;
  Observation observation;
  ControllerState state;
};

// Given workers of two pools in any order; expects each chain to refer to its pool's latency and to have its worker's token,
// and each latency to be listed once.
TEST_F(RoutesTest, AChainRefersToItsPoolsLatency) {
  add_pool({"a100-1"}, 2e-4);
  add_pool({"h100-1"}, 1e-4);
  add_worker("w2", "h100-1");
  add_worker("w1", "a100-1");
  add_worker("w3", "h100-1");
  observation.workers["u"][0].token = "of w2";
  const dispatch::ModelRoute told = route();
  ASSERT_EQ(told.latencies.size(), 2U);
  ASSERT_EQ(told.chains.size(), 3U);
  const auto prefill_of = [&](std::size_t k) {
    return told.latencies.at(static_cast<std::size_t>(told.chains[k].latency)).prefill_token_s;
  };
  EXPECT_EQ(prefill_of(0), 2e-4);
  EXPECT_EQ(prefill_of(1), 1e-4);
  EXPECT_EQ(prefill_of(2), 1e-4);
  EXPECT_EQ(told.chains[1].token, "of w2");
  EXPECT_EQ(told.chains[0].token, "");
  std::swap(observation.workers["u"][0], observation.workers["u"][1]);
  EXPECT_EQ(route(), told) << "the order in which workers are seen makes no new table";
}

// Given a pool with an unknown latency, and a worker of a pool that was never planned; expects their chains to have none.
TEST_F(RoutesTest, AnUnknownLatencyIsNone) {
  add_pool({"other-1"}, 0);
  add_worker("w1", "other-1");
  add_worker("w2", "stranger-1");
  const dispatch::ModelRoute told = route();
  EXPECT_TRUE(told.latencies.empty());
  EXPECT_EQ(told.chains.at(0).latency, -1);
  EXPECT_EQ(told.chains.at(0).capacity, 8);
  EXPECT_EQ(told.chains.at(1).latency, -1);
  EXPECT_EQ(told.chains.at(1).capacity, 64);
}

// Given no plan, and plans with nothing set, with Aladdin's policy, with one that only the simulator has, and with Splitwise's
// mixed pool; expects the policy and its parameters in the table that a gateway reads; JFFC where the plan does not say one
// that gateways have.
TEST_F(RoutesTest, ThePlansPolicyIsInTheTable) {
  const auto told = [this](const planner::ServicePlan& plan) {
    state.services["u"].dispatch = plan.dispatch;
    return dispatch::routing_table_from_json(dispatch::to_json({{1, 1}, {route()}})).value().models.at(0).dispatch;
  };
  const dispatch::PolicySettings jffc{.policy = dispatch::PolicyKind::kJffc};
  EXPECT_EQ(route().dispatch, jffc);
  planner::ServicePlan plan;
  EXPECT_EQ(told(plan), jffc);
  plan.dispatch.policy = dispatch::PolicyKind::kAladdin;
  plan.dispatch.placement.theta = 0.75;
  EXPECT_EQ(told(plan), plan.dispatch);
  plan.dispatch.policy = dispatch::PolicyKind::kRandom;
  EXPECT_EQ(told(plan), jffc);
  planner::Deployment judged;  // as a strategy leaves it
  judged.dispatch.policy = dispatch::PolicyKind::kHuawei;
  judged.dispatch.huawei.assumed_output_tokens = 250;
  plan.dispatch = judged.dispatch;
  EXPECT_EQ(told(plan).policy, dispatch::PolicyKind::kHuawei);
  EXPECT_EQ(told(plan).huawei.assumed_output_tokens, 250);
  judged.dispatch = {};
  judged.dispatch.policy.reset();
  judged.dispatch.mixed_pool_threshold_tokens = 4096;
  plan.dispatch = judged.dispatch;
  EXPECT_EQ(dispatch::gateway_policy(told(plan)), dispatch::PolicyKind::kSplitwise);
  EXPECT_EQ(told(plan).mixed_pool_threshold_tokens, 4096);
}

// A service with prefill and decode workers of one GPU each that serve 4 requests/s, with prompts of 512 tokens of Llama 3 8B,
// whose keys and values take 134 MB in FP32.
class DecodeWeightsTest : public RoutesTest {
 protected:
  DecodeWeightsTest() {
    add_pool({"p", dispatch::Role::kPrefill}, 0);
    add_pool({"d", dispatch::Role::kDecode}, 0);
    observation.snapshot.services[0].shape = planner::model_shape_by_name("llama3-8b").value();
    observation.snapshot.services[0].workload.input_tokens = 512;
    add_class("fast", 7 * kCacheBytes);
    add_class("slow", kCacheBytes);
  }

  void add_class(const std::string& name, double between) {
    auto& spec = observation.snapshot.accelerators.emplace_back().spec;
    spec.name = name;
    spec.intra_link_bandwidth_bytes_per_s = 100 * kCacheBytes;
    spec.inter_link_bandwidth_bytes_per_s = between;
  }
  void add(const std::string& name, const std::string& node, const std::string& accelerator = "fast") {
    add_worker(name, name.substr(0, 1));
    Worker& worker = observation.workers["u"].back();
    worker.role = name[0] == 'p' ? "prefill" : "decode";
    worker.node = node;
    worker.gpus = 1;
    worker.accelerator = accelerator;
  }
  // By the workers' names.
  std::map<std::string, std::map<std::string, double>> weights() {
    const dispatch::ModelRoute told = route();
    const auto name = [&](std::size_t k) { return told.chains.at(k).id.substr(std::string("default/").size()); };
    std::map<std::string, std::map<std::string, double>> all;
    for (std::size_t k = 0; k < told.chains.size(); ++k) {
      for (const auto& one : told.chains[k].decode_weights) {
        EXPECT_EQ(told.chains[k].role, dispatch::Role::kPrefill);
        all[name(k)][name(static_cast<std::size_t>(one.chain))] = one.weight;
      }
    }
    return all;
  }

  static constexpr double kCacheBytes = 512.0 * 32 * 2 * 8 * 128 * 4;
};

using Weights = std::map<std::string, std::map<std::string, double>>;

// Given two nodes with a worker of each phase; expects each prefill worker to use the decode worker on its node, and the other
// one while that drains or its rate is unknown.
TEST_F(DecodeWeightsTest, PairsStayOnANode) {
  add("p1", "a");
  add("d1", "a");
  add("p2", "b");
  add("d2", "b");
  EXPECT_EQ(weights(), (Weights{{"p1", {{"d1", 0.5}}}, {"p2", {{"d2", 0.5}}}}));
  std::swap(observation.workers["u"][1], observation.workers["u"][3]);
  EXPECT_EQ(weights(), (Weights{{"p1", {{"d1", 0.5}}}, {"p2", {{"d2", 0.5}}}})) << "whatever the order in which they are seen";
  observation.workers["u"].back().draining_since_s = 1;
  EXPECT_EQ(weights(), Weights{}) << "one decode worker is left: there is nothing to choose";
  add("d3", "c");
  EXPECT_EQ(weights(), (Weights{{"p2", {{"d2", 0.5}}}, {"p1", {{"d3", 0.5}}}}));
  state.services["u"].pools[{"p", dispatch::Role::kPrefill}].each.service_rate_per_s = 0;
  EXPECT_EQ(weights(), Weights{});
}

// Given a node with more prompts than answers, one next to it whose network carries one cache per second, and one with a fast
// network; expects the excess to go there in proportion to what each can take; with longer prompts, less over the slow network.
TEST_F(DecodeWeightsTest, TheExcessFollowsTheLinks) {
  add("p1", "a");
  add("p2", "a");
  add("d1", "a");
  add("d2", "b", "slow");
  add("d3", "c");
  const Weights::mapped_type each = {{"d1", 0.25}, {"d2", 0.05}, {"d3", 0.2}};
  EXPECT_EQ(weights(), (Weights{{"p1", each}, {"p2", each}}));
  observation.snapshot.services[0].workload.input_tokens = 1024;
  // Of 7 caches per second p1 and p2 could send half: 3.5 each; d2 takes 0.5, d3 3.5.
  const Weights::mapped_type longer = {{"d1", 0.25}, {"d2", 0.03125}, {"d3", 0.21875}};
  EXPECT_EQ(weights(), (Weights{{"p1", longer}, {"p2", longer}}));
}

// Given two gateways that share the slots; expects both to read the same weights from the publisher's table.
TEST_F(DecodeWeightsTest, ReachEveryGateway) {
  add("p1", "a");
  add("d1", "a");
  add("p2", "b");
  add("d2", "b");
  const dispatch::ModelRoute told = route();
  ASSERT_NE(weights(), Weights{});
  RoutingPublisher publisher;
  for (const char* gateway : {"g", "h"}) EXPECT_FALSE(publisher.ask(gateway, "", {}, 0));
  (void)publisher.publish({told}, 1, 0);
  for (const char* gateway : {"g", "h"}) {
    const auto sent = publisher.ask(gateway, "", {}, 1);
    ASSERT_TRUE(sent);
    const auto read = dispatch::routing_table_from_json(dispatch::to_json(*sent));
    ASSERT_TRUE(read.ok());
    for (std::size_t k = 0; k < told.chains.size(); ++k) {
      const dispatch::Chain& chain = read->models.at(0).chains.at(k);
      EXPECT_EQ(chain.id, told.chains[k].id);
      EXPECT_EQ(chain.decode_weights, told.chains[k].decode_weights);
      EXPECT_LT(chain.capacity, told.chains[k].capacity);
    }
  }
}

// Given workers that are all on one node, or each on its own node, with links that limit none; expects no weights, because
// rates are enough. The same if the model's shape is unknown or one phase has no worker.
TEST_F(DecodeWeightsTest, AreOmittedIfRatesAreEnough) {
  add("p1", "");
  add("p2", "");
  add("d1", "");
  add("d2", "");
  EXPECT_EQ(weights(), Weights{});
  int node = 0;
  for (Worker& worker : observation.workers["u"]) worker.node = std::to_string(++node);
  EXPECT_EQ(weights(), Weights{});
  observation.workers["u"][0].node = "3";
  EXPECT_EQ(weights(), (Weights{{"p1", {{"d1", 0.5}}}, {"p2", {{"d2", 0.5}}}}));
  observation.snapshot.services[0].shape.reset();
  EXPECT_EQ(weights(), Weights{});
}

// Given a worker that changes its role; expects its chain to drain until the change is over.
TEST_F(RoutesTest, AWorkerThatChangesItsRoleDrains) {
  add_worker("w1", "h100-1");
  Worker& worker = observation.workers["u"][0];
  worker.role = "decode";
  worker.changing_role_since_s = 100;
  EXPECT_TRUE(route().chains.at(0).draining);
  EXPECT_EQ(route().chains.at(0).role, dispatch::Role::kDecode);
  worker.changing_role_since_s.reset();
  EXPECT_FALSE(route().chains.at(0).draining);
}

}  // namespace
}  // namespace windlass::controller
