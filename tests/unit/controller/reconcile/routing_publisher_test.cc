// Versions, shares and liveness of the routing table.
#include "controller/reconcile/routing_publisher.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

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

// Given: nothing published. Expected: not serving; after publish() serving; after withdraw() not serving.
TEST(RoutingPublisher, ServesOnlyBetweenPublishAndWithdraw) {
  RoutingPublisher publisher;
  EXPECT_FALSE(publisher.serving());
  (void)publisher.publish({}, 1, 0);
  EXPECT_TRUE(publisher.serving());
  publisher.withdraw();
  EXPECT_FALSE(publisher.serving());
}

// Given: the same routes published twice, then others, then a new term. Expected: the version changes only with the content,
// and never goes back.
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

// Given: two gateways. Expected: each gets its share of a chain's slots, so that it can tell others' load from its own.
TEST(RoutingPublisher, AGatewayKnowsItsShare) {
  RoutingPublisher publisher;
  (void)publisher.publish({route({4})}, 1, 0);
  (void)publisher.ask("a", "10.0.0.9:9402", {}, 1);
  (void)publisher.publish({route({4})}, 1, 2);
  const auto alone = publisher.ask("a", "10.0.0.9:9402", {}, 3);
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->models[0].chains[0].share, 1);
  (void)publisher.ask("b", "10.0.0.8:9402", {}, 4);
  for (int i = 0; i < 5; ++i) (void)publisher.publish({route({4})}, 1, 5 + i);
  const auto shared = publisher.ask("a", "10.0.0.9:9402", alone->version, 11);
  ASSERT_TRUE(shared);
  EXPECT_LT(shared->models[0].chains[0].capacity, 4);
  EXPECT_EQ(shared->models[0].chains[0].share, shared->models[0].chains[0].capacity / 4.0);
}

// Given: a gateway that asks for the first time. Expected: it waits for the next publish, which includes it; then it gets the
// table once, and nothing more until something changes.
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

// Given: 1 to 5 gateways and chains of capacity 0 to 9. Expected: the shares of each chain add up to its capacity and differ by
// at most one.
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

// Given: two gateways, one of which falls silent. Expected: after the timeout its share returns to the other.
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

// Given a queue at one of two gateways; expects that over the next publishes its share of every chain grows and the other's
// shrinks, but not below one slot.
TEST(RoutingPublisher, SharesFollowTheQueue) {
  RoutingPublisher publisher;
  dispatch::TableVersion a, b;
  int share_a = 0, share_b = 0;
  for (int t = 0; t < 60; ++t) {
    if (const auto table = publisher.ask({"a", "x:1", false, a, {{"chat", {8, 30}}}}, t)) {
      a = table->version;
      share_a = table->models.at(0).chains.at(0).capacity;
    }
    if (const auto table = publisher.ask({"b", "y:1", false, b, {{"chat", {1, 0}}}}, t)) {
      b = table->version;
      share_b = table->models.at(0).chains.at(0).capacity;
    }
    (void)publisher.publish({route({10})}, 1, t);
    if (t == 1) {
      EXPECT_EQ(share_a, 5);
    }
  }
  EXPECT_EQ(share_a + share_b, 10);
  EXPECT_GE(share_a, 8);
  EXPECT_GE(share_b, 1);
}

// Given a gateway whose share shrinks while its requests run; expects that nobody else gets their slots before they end, even
// if the gateway cannot report all of them, and then immediately.
TEST(RoutingPublisher, ASlotIsFreeWhenItsRequestHasEnded) {
  RoutingPublisher publisher;
  const auto share_of = [&](const std::string& id) {
    const auto table = publisher.newer(id, {}, 5);
    return table ? table->models.at(0).chains.at(0).capacity : -1;
  };
  const auto ask = [&](const std::string& id, std::optional<int> held) {
    GatewayQuestion question{id, id + ":1", false, publisher.publish({route({8})}, 1, 5), {}};
    question.over_share.reset();
    if (held) question.over_share = OverShare{{"chat", {{"default/chat-0", *held}}}};
    if (held == 0) question.over_share->clear();
    (void)publisher.ask(question, 5);
    return publisher.publish({route({8})}, 1, 5);
  };
  (void)ask("a", 0);
  (void)ask("a", 0);
  EXPECT_EQ(share_of("a"), 8);
  (void)ask("b", 0);
  EXPECT_EQ(share_of("a"), 5);  // a new gateway gets half of what each of the others has
  EXPECT_EQ(share_of("b"), 0);
  (void)ask("a", std::nullopt);
  EXPECT_EQ(share_of("b"), 0);
  (void)ask("a", 7);
  EXPECT_EQ(share_of("b"), 1);
  (void)ask("a", std::nullopt);
  EXPECT_EQ(share_of("b"), 1);
  (void)ask("a", 6);
  EXPECT_EQ(share_of("b"), 2);
  (void)ask("a", 0);
  EXPECT_EQ(share_of("a"), 5);
  EXPECT_EQ(share_of("b"), 3);
}

// Given random runs of gateways that join, poll late, apply tables late, fall silent and return, with changing queues, long
// requests and chains of fixed capacity. Expects that what the gateways may use (their shares in the tables they apply or were
// given, plus excess requests still running) never exceeds a chain's capacity, and that the shares add up to it once all is
// quiet.
TEST(RoutingPublisher, HeldSharesNeverExceedTheCapacity) {
  const std::vector<int> capacities = {1, 2, 5, 16};
  for (std::uint64_t seed = 1; seed <= effort(25U, 100U); ++seed) {
    Rng rng(seed, "publisher");
    RoutingPublisher publisher;
    struct Peer {
      std::string id;
      dispatch::RoutingTable obeyed, received;  // a received table is applied some time later
      double seen_s = 0;
      bool lives = true;
      std::vector<int> in_flight = std::vector<int>(4);

      [[nodiscard]] int share(std::size_t k) const { return obeyed.models.empty() ? 0 : obeyed.models[0].chains[k].capacity; }
    };
    std::vector<Peer> peers = {{"a", {}, {}}, {"b", {}, {}}, {"c", {}, {}}};
    const auto max_held = [&](std::size_t k) {
      int sum = 0;
      for (const Peer& peer : peers) {
        int most = peer.in_flight[k];
        for (const auto* table : {&peer.obeyed, &peer.received}) {
          if (!table->models.empty()) most = std::max(most, table->models[0].chains[k].capacity);
        }
        sum += most;
      }
      return sum;
    };
    double now_s = 0;
    const auto poll = [&](Peer& peer, int queued) {
      peer.obeyed = peer.received;
      peer.seen_s = now_s;
      GatewayQuestion question{peer.id, peer.id + ":1", false, peer.obeyed.version, {{"chat", {3, queued}}}};
      for (std::size_t k = 0; k < capacities.size(); ++k) {
        const int held = peer.in_flight[k];
        if (held > peer.share(k)) (*question.over_share)["chat"]["default/chat-" + std::to_string(k)] = held;
      }
      if (rng.integer(0, 9) == 0) question.over_share.reset();
      if (const auto table = publisher.ask(question, now_s)) peer.received = *table;
    };
    for (int step = 0; step < 300; ++step) {
      now_s += rng.uniform();
      Peer& peer = peers[static_cast<std::size_t>(rng.integer(0, 2))];
      if (rng.integer(0, 60) == 0) peer.lives = !peer.lives;
      if (!peer.lives && now_s - peer.seen_s > RoutingPublisher::kGatewayTimeoutS + 1) {
        peer = {peer.id, {}, {}, peer.seen_s, false};  // it is gone; if it returns, it has restarted
      }
      if (peer.lives && rng.integer(0, 2) > 0) poll(peer, static_cast<int>(rng.integer(0, 3)) * 10);
      // Live gateways always poll in time here.
      for (Peer& one : peers) {
        if (one.lives && now_s - one.seen_s > 5) poll(one, 0);
        if (!one.lives && now_s - one.seen_s > RoutingPublisher::kGatewayTimeoutS) one = {one.id, {}, {}, one.seen_s, false};
      }
      if (rng.integer(0, 1) == 0) (void)publisher.publish({route(capacities)}, 1, now_s);
      // Requests begin within the share and end at any time.
      for (Peer& one : peers) {
        for (std::size_t k = 0; k < capacities.size(); ++k) {
          int& held = one.in_flight[k];
          if (held < one.share(k)) held += static_cast<int>(rng.integer(0, one.share(k) - held));
          if (rng.integer(0, 3) == 0) held -= static_cast<int>(rng.integer(0, held));
        }
      }
      for (std::size_t k = 0; k < capacities.size(); ++k) ASSERT_LE(max_held(k), capacities[k]) << "seed " << seed;
    }
    for (int round = 0; round < 6; ++round) {
      now_s += 1;
      for (Peer& one : peers) {
        one.lives = true;
        one.in_flight.assign(4, 0);
        poll(one, 0);
      }
      (void)publisher.publish({route(capacities)}, 1, now_s);
    }
    for (Peer& one : peers) poll(one, 0);
    for (std::size_t k = 0; k < capacities.size(); ++k) {
      int sum = 0;
      for (const Peer& one : peers) sum += one.received.models.at(0).chains[k].capacity;
      ASSERT_EQ(sum, capacities[k]) << "seed " << seed << ", chain " << k;
    }
  }
}

// Given messages from gateways; expects that only those that may change the table for others count: a new gateway, another
// table applied.
TEST(RoutingPublisher, OnlyRelevantMessagesStir) {
  RoutingPublisher publisher;
  EXPECT_FALSE(publisher.stirred());
  (void)publisher.ask("a", "x:1", {}, 0);
  EXPECT_TRUE(publisher.stirred());
  const auto version = publisher.publish({route({4})}, 1, 0);
  EXPECT_FALSE(publisher.stirred());
  (void)publisher.ask({"a", "x:1", false, {}, {{"chat", {1, 5}}}}, 1);
  EXPECT_FALSE(publisher.stirred());
  (void)publisher.ask("a", "x:1", version, 2);
  EXPECT_TRUE(publisher.stirred());
  (void)publisher.publish({route({4})}, 1, 2);
  GatewayQuestion over{"a", "x:1", false, version, {}};
  over.over_share = OverShare{{"chat", {{"default/chat-0", 5}}}};
  (void)publisher.ask(over, 3);
  EXPECT_TRUE(publisher.stirred());
  (void)publisher.publish({route({4})}, 1, 3);
  (void)publisher.ask(over, 4);
  EXPECT_FALSE(publisher.stirred());
  (void)publisher.ask("a", "x:1", version, 5);
  EXPECT_TRUE(publisher.stirred());
}

// Given a core that publishes while two gateways poll on their own threads; expects every table to be consistent, and versions
// only to grow.
TEST(RoutingPublisher, AskedFromManyThreads) {
  RoutingPublisher publisher;
  std::atomic<bool> done = false;
  const auto gateway = [&](const std::string& id) {
    dispatch::TableVersion version;
    for (double now_s = 0; !done; now_s += 0.001) {
      const auto table = publisher.ask({id, id + ":1", false, version, {{"chat", {1, id == "a" ? 9 : 0}}}}, now_s);
      (void)publisher.newer(id, version, now_s);
      if (!table) continue;
      EXPECT_GT(table->version, version);
      EXPECT_EQ(table->models.size(), 1U);
      version = table->version;
    }
  };
  std::thread a(gateway, "a"), b(gateway, "b");
  for (int i = 0; i < 2000; ++i) {
    (void)publisher.publish({route({4 + i % 3})}, 1, i * 0.001);
    (void)publisher.gateways(0);
    (void)publisher.serving();
  }
  done = true;
  a.join();
  b.join();
}

// Given the maximum number of gateways; expects another one to be admitted only after one of them has been silent for long.
TEST(RoutingPublisher, MakesRoomWhenAGatewayFallsSilent) {
  RoutingPublisher publisher;
  (void)publisher.publish({}, 1, 0);
  for (std::size_t i = 0; i < RoutingPublisher::kMaxGateways; ++i)
    (void)publisher.ask("g" + std::to_string(i), "h:1", {}, i == 0 ? 0 : 5);
  (void)publisher.ask("late", "h:1", {}, 10);
  EXPECT_FALSE(publisher.knows("late"));
  (void)publisher.ask("late", "h:1", {}, 11);
  EXPECT_TRUE(publisher.knows("late"));
  EXPECT_FALSE(publisher.knows("g0"));
}

}  // namespace
}  // namespace windlass::controller
