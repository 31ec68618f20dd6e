// Fractions that follow the queues, and whole slots from fractions.
#include "controller/reconcile/slot_shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::controller {
namespace {

// Given random sets of chains and fractions; expects each chain's slots to add up to its capacity, every gateway to get at
// least one if the capacity allows, a deviation of at most one slot per gateway within a chain, and over all chains at most the
// number of gateways unless the minimum of one interferes.
TEST(WholeSlots, AddUpAndFollowTheFractions) {
  for (std::uint64_t seed = 1; seed <= effort(500U, 5000U); ++seed) {
    Rng rng(seed, "slots");
    const auto gateways = static_cast<std::size_t>(rng.integer(1, 5));
    std::vector<double> fractions(gateways);
    for (double& one : fractions) one = 0.2 + rng.uniform();
    const double sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
    for (double& one : fractions) one /= sum;
    std::vector<int> capacities(static_cast<std::size_t>(rng.integer(0, 6)));
    for (int& one : capacities) one = static_cast<int>(rng.integer(0, 40));
    const auto slots = whole_slots(capacities, fractions);
    ASSERT_EQ(slots.size(), capacities.size());
    for (std::size_t k = 0; k < capacities.size(); ++k) {
      ASSERT_EQ(std::accumulate(slots[k].begin(), slots[k].end(), 0), capacities[k]) << seed;
      for (std::size_t g = 0; g < gateways; ++g) {
        ASSERT_GE(slots[k][g], capacities[k] >= static_cast<int>(gateways) ? 1 : 0) << seed;
        ASSERT_LE(std::abs(slots[k][g] - fractions[g] * capacities[k]), static_cast<double>(gateways)) << seed;
      }
    }
  }
}

// Given 100 chains of one slot and fractions of 0.7 and 0.3; expects the sums over all chains to be 70 and 30.
TEST(WholeSlots, SmallChainsFollowInSum) {
  const auto slots = whole_slots(std::vector<int>(100, 1), {0.7, 0.3});
  int first = 0;
  for (const auto& chain : slots) first += chain[0];
  EXPECT_NEAR(first, 70, 1);
}

// Given no load, and load without a queue; expects the fractions to stay equal.
TEST(ShareBalance, NothingMovesWithoutAQueue) {
  ShareBalance balance;
  EXPECT_EQ(balance.move({"a", "b"}, {}, 10, 0), (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(balance.move({"a", "b"}, {{"a", {5, 0}}}, 10, 100), (std::vector<double>{0.5, 0.5}));
}

// Given a queue at one of two gateways; expects its fraction to grow by one step per period, up to what an idle gateway leaves,
// and to come back when the queue moves to the other one.
TEST(ShareBalance, FollowsTheQueueInSteps) {
  ShareBalance balance;
  const std::map<std::string, GatewayLoad> at_a = {{"a", {5, 20}}, {"b", {0, 0}}};
  double now_s = 0, before = 0.5;
  for (int i = 0; i < 20; ++i) {
    const double now = balance.move({"a", "b"}, at_a, 100, now_s)[0];
    EXPECT_GE(now, before - 1e-12);
    EXPECT_LE(now - before, ShareBalance::kStep + 1e-9);
    EXPECT_NEAR(balance.move({"a", "b"}, at_a, 100, now_s + 0.5)[0], now, 1e-12);  // before a period has passed
    before = now;
    now_s += ShareBalance::kPeriodS;
  }
  EXPECT_NEAR(before, 1 - ShareBalance::kEvenPart / 2, ShareBalance::kDeadBand + 1e-9);
  for (int i = 0; i < 20; ++i) before = balance.move({"a", "b"}, {{"b", {5, 20}}}, 100, now_s += ShareBalance::kPeriodS)[0];
  EXPECT_NEAR(before, ShareBalance::kEvenPart / 2, ShareBalance::kDeadBand + 1e-9);
}

// Given one slot in total and a queue at the gateway without it; expects the gateway to have it after one period.
TEST(ShareBalance, TheOnlySlotMovesAfterOnePeriod) {
  ShareBalance balance;
  EXPECT_EQ(whole_slots({1}, balance.move({"a", "b"}, {}, 1, 0))[0], (std::vector<int>{1, 0}));
  const auto fractions = balance.move({"a", "b"}, {{"b", {0, 1}}}, 1, ShareBalance::kPeriodS);
  EXPECT_EQ(whole_slots({1}, fractions)[0], (std::vector<int>{0, 1}));
}

// Given random loads, arrivals and departures of gateways; expects the fractions always to add up to 1, and none to be
// negative.
TEST(ShareBalance, FractionsAlwaysAddUpToOne) {
  for (std::uint64_t seed = 1; seed <= effort(50U, 500U); ++seed) {
    Rng rng(seed, "balance");
    ShareBalance balance;
    double now_s = 0;
    for (int i = 0; i < 50; ++i) {
      now_s += rng.uniform() * 4;
      std::vector<std::string> ids;
      std::map<std::string, GatewayLoad> loads;
      for (const char* id : {"a", "b", "c", "d"}) {
        if (rng.integer(0, 3) != 0) ids.emplace_back(id);
        loads[id] = {static_cast<int>(rng.integer(0, 20)), static_cast<int>(rng.integer(0, 3)) * 5};
      }
      const auto fractions = balance.move(ids, loads, static_cast<int>(rng.integer(0, 30)), now_s);
      ASSERT_EQ(fractions.size(), ids.size());
      if (ids.empty()) continue;
      ASSERT_NEAR(std::accumulate(fractions.begin(), fractions.end(), 0.0), 1, 1e-9);
      ASSERT_GE(*std::min_element(fractions.begin(), fractions.end()), 0) << seed;
    }
  }
}

}  // namespace
}  // namespace windlass::controller
