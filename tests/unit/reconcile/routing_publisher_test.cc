// Versions, shares and liveness of the routing table.
#include "controller/reconcile/routing_publisher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace windlass::controller {
namespace {

dispatch::ModelRoute route(std::vector<int> capacities) {
  dispatch::ModelRoute model;
  model.served_name = "chat";
  for (std::size_t i = 0; i < capacities.size(); ++i) {
    dispatch::Chain chain;
    chain.id = "default/chat-" + std::to_string(i);
    chain.hops = {"10.0.0.1:8000"};
    chain.capacity = capacities[i];
    model.chains.push_back(chain);
  }
  return model;
}

// Given: nothing published yet. Expected: not serving; after publish() serving; after withdraw() not serving again.
TEST(RoutingPublisher, ServesOnlyBetweenPublishAndWithdraw) {
  RoutingPublisher publisher;
  EXPECT_FALSE(publisher.serving());
  (void)publisher.publish({}, 1, 0);
  EXPECT_TRUE(publisher.serving());
  publisher.withdraw();
  EXPECT_FALSE(publisher.serving());
}

// Given: the same routes published twice, then others, then a new term. Expected: the version moves only when something
// changed, and never back.
TEST(RoutingPublisher, VersionMovesWithChangesOnly) {
  RoutingPublisher publisher;
  const auto first = publisher.publish({route({4})}, 3, 0);
  EXPECT_EQ(publisher.publish({route({4})}, 3, 1), first);
  const auto second = publisher.publish({route({5})}, 3, 2);
  EXPECT_GT(second, first);
  const auto third = publisher.publish({route({5})}, 4, 3);
  EXPECT_GT(third, second);
  EXPECT_EQ(third.term, 4);
}

// Given: a gateway that asks for the first time. Expected: it waits for the next publish, which knows it; then it gets the
// table once, and no more until something changes.
TEST(RoutingPublisher, AGatewayIsKnownByAsking) {
  RoutingPublisher publisher;
  (void)publisher.publish({route({4})}, 1, 0);
  EXPECT_FALSE(publisher.ask("a", "10.0.0.9:9402", {}, 1));
  const auto version = publisher.publish({route({4})}, 1, 2);
  const auto table = publisher.ask("a", "10.0.0.9:9402", {}, 3);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->version, version);
  EXPECT_FALSE(publisher.ask("a", "10.0.0.9:9402", version, 4));
  ASSERT_EQ(publisher.gateways(4).size(), 1U);
  EXPECT_EQ(publisher.gateways(4)[0].acknowledged, version);
}

// Given: 1 to 5 gateways and chains of capacity 0 to 9. Expected: the shares of each chain add up to its capacity, and differ
// by at most one.
TEST(RoutingPublisher, SharesAddUpToTheCapacity) {
  for (int gateways = 1; gateways <= 5; ++gateways) {
    RoutingPublisher publisher;
    (void)publisher.publish({}, 1, 0);
    const auto name = [](int i) { return "gateway-" + std::to_string(i); };
    for (int i = 0; i < gateways; ++i) (void)publisher.ask(name(i), "x:1", {}, 0);
    const std::vector<int> capacities = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    (void)publisher.publish({route(capacities)}, 1, 0);
    for (std::size_t k = 0; k < capacities.size(); ++k) {
      int sum = 0, least = 100, most = 0;
      for (int i = 0; i < gateways; ++i) {
        const auto table = publisher.ask(name(i), "x:1", {}, 0);
        ASSERT_TRUE(table);
        const int share = table->models[0].chains[k].capacity;
        sum += share;
        least = std::min(least, share);
        most = std::max(most, share);
      }
      EXPECT_EQ(sum, capacities[k]);
      EXPECT_LE(most - least, 1);
    }
  }
}

// Given: two gateways, one of which falls silent. Expected: after the time-out its share returns to the other.
TEST(RoutingPublisher, ASilentGatewaysShareReturns) {
  RoutingPublisher publisher;
  (void)publisher.ask("a", "x:1", {}, 0);
  (void)publisher.ask("b", "y:1", {}, 0);
  (void)publisher.publish({route({8})}, 1, 0);
  EXPECT_EQ(publisher.ask("a", "x:1", {}, 0)->models[0].chains[0].capacity, 4);
  const double later = RoutingPublisher::kGatewayTimeoutS + 1;
  (void)publisher.newer("a", {1, 1000}, later);
  (void)publisher.publish({route({8})}, 1, later);
  EXPECT_EQ(publisher.ask("a", "x:1", {}, later)->models[0].chains[0].capacity, 8);
}

}  // namespace
}  // namespace windlass::controller
