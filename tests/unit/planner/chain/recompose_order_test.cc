// Tests of the order of a transition's steps: executed block by block, and compared with every possible order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/chain/transition_order.h"
#include "tests/effort.h"
#include "tests/unit/planner/chain/mip_random_instances.h"
#include "tests/unit/planner/chain/recompose_execution.h"

namespace windlass::chain {
namespace {

using ::testing::ElementsAre;

// Servers with the given memories, blocks of 1 GB, caches of 0.1 GB, 1 GB loaded per second.
Instance instance_of(int blocks, const std::vector<double>& memories_gb) {
  Instance instance;
  instance.blocks = blocks;
  instance.block_gb = 1;
  instance.cache_gb = 0.1;
  instance.arrival_rate_per_s = 0.1;
  for (const double memory_gb : memories_gb) {
    instance.servers.push_back(Server{fmt::format("s{}", instance.servers.size()), memory_gb, 1, 1, 1, std::nullopt});
  }
  return instance;
}

// The order that loses the least service.
TransitionOrder best_order(const Instance& instance, const Placement& before, const Placement& after) {
  const auto orders = transition_orders(instance, before, after);
  return *std::min_element(orders.begin(), orders.end(),
                           [](const auto& a, const auto& b) { return a.interrupted_s < b.interrupted_s; });
}

// Given ranges that overlap, touch, contain each other or are empty; expects the parts of one that are not in the other.
TEST(TransitionOrder, SubtractsRanges) {
  const auto parts = [](BlockRange a, BlockRange b) { return without(a, b); };
  EXPECT_THAT(parts({3, 4}, {5, 9}), ElementsAre(BlockRange{3, 2}));
  EXPECT_THAT(parts({3, 4}, {1, 3}), ElementsAre(BlockRange{4, 3}));
  EXPECT_THAT(parts({1, 9}, {4, 2}), ElementsAre(BlockRange{1, 3}, BlockRange{6, 4}));
  EXPECT_THAT(parts({4, 2}, {1, 9}), ElementsAre());
  EXPECT_THAT(parts({1, 2}, {3, 2}), ElementsAre(BlockRange{1, 2}));
  EXPECT_THAT(parts({1, 2}, {1, 0}), ElementsAre(BlockRange{1, 2}));
  EXPECT_THAT(parts({1, 0}, {1, 2}), ElementsAre());
}

// Given servers that change; expects what each keeps, and whether it loads first: 2.2 GB hold two blocks with a cache each, 2.1
// GB only one, with one to spare; dropping alone and loading alone never need to drop first.
TEST(TransitionOrder, SaysWhichServersLoadFirst) {
  const Instance instance = instance_of(3, {2.25, 2.15, 2, 2, 1, 1});
  const auto changes = changes_between(instance, {{1, 1}, {1, 1}, {1, 2}, {2, 1}, {1, 0}, {3, 1}},
                                       {{2, 1}, {2, 1}, {2, 1}, {2, 2}, {3, 1}, {3, 1}});
  ASSERT_EQ(changes.size(), 5u);
  EXPECT_EQ(changes[0], (ServerChange{0, {1, 1}, {2, 1}, {1, 0}, 2, true}));
  EXPECT_EQ(changes[1], (ServerChange{1, {1, 1}, {2, 1}, {1, 0}, 2, false}));
  EXPECT_EQ(changes[2], (ServerChange{2, {1, 2}, {2, 1}, {2, 1}, 2, true}));
  EXPECT_EQ(changes[3], (ServerChange{3, {2, 1}, {2, 2}, {2, 1}, 2, true}));
  EXPECT_EQ(changes[4], (ServerChange{4, {1, 0}, {3, 1}, {1, 0}, 1, true}));
}

// Given no changes; expects no orders.
TEST(TransitionOrder, HasNoStepsWithoutChanges) {
  EXPECT_TRUE(transition_orders(instance_of(2, {1, 1}), {{1, 1}, {2, 1}}, {{1, 1}, {2, 1}}).empty());
}

// Given two servers that swap their blocks without room for a second one; expects service to be lost for one load, in any
// order.
TEST(TransitionOrder, SwapWithoutRoomInterrupts) {
  Instance instance = instance_of(2, {1.5, 1.5});
  instance.servers[0].load_gb_per_s = 0.5;
  const Placement before = {{1, 1}, {2, 1}};
  const Placement after = {{2, 1}, {1, 1}};
  const TransitionOrder order = best_order(instance, before, after);
  EXPECT_GT(order.interrupted_s, 0);
  EXPECT_TRUE(order.proved);
  EXPECT_EQ(execute(instance, before, after, order.waves).mistake, "");
  // The slow one drops block 1 and the fast one block 2: both together take 2 s, one after the other 1 + 2 s.
  EXPECT_EQ(order.interrupted_s, 2);
}

// Given the same with room on one of them; expects it to load, the other to replace its block, then it to drop, always with
// both blocks served.
TEST(TransitionOrder, SwapWithRoomDoesNotInterrupt) {
  const Instance instance = instance_of(2, {2.5, 1.5});
  const Placement before = {{1, 1}, {2, 1}};
  const Placement after = {{2, 1}, {1, 1}};
  const TransitionOrder order = best_order(instance, before, after);
  EXPECT_EQ(order.interrupted_s, 0);
  ASSERT_EQ(order.waves.size(), 3u);
  EXPECT_THAT(order.waves[0].steps, ElementsAre(TransitionStep{0, {}, {{2, 1}}, 1}));
  EXPECT_THAT(order.waves[1].steps, ElementsAre(TransitionStep{1, {{2, 1}}, {{1, 1}}, 1}));
  EXPECT_THAT(order.waves[2].steps, ElementsAre(TransitionStep{0, {{1, 1}}, {}, 0}));
  EXPECT_EQ(execute(instance, before, after, order.waves).mistake, "");
}

// Given a third server that holds block 1, so that the two can swap one after the other; expects the only possible order: first
// the server whose block is held twice.
TEST(TransitionOrder, FindsTheOnlyOrder) {
  const Instance instance = instance_of(3, {1.5, 1.5, 1.5, 1.5});
  const Placement before = {{1, 1}, {1, 1}, {2, 1}, {3, 1}};
  const Placement after = {{1, 1}, {2, 1}, {3, 1}, {1, 1}};
  const TransitionOrder order = best_order(instance, before, after);
  EXPECT_EQ(order.interrupted_s, 0);
  std::vector<int> servers;
  for (const TransitionWave& wave : order.waves) {
    ASSERT_EQ(wave.steps.size(), 1u);
    servers.push_back(wave.steps[0].server);
  }
  EXPECT_THAT(servers, ElementsAre(1, 2, 3));
}

// Ranges that hold every block, on some of the servers, in any order; the others hold anything or nothing. No server holds more
// than `most` blocks, so that many blocks are held only once.
Placement random_cover(Rng& rng, int blocks, std::size_t servers, int most) {
  Placement placement;
  for (int next = 1; next <= blocks && placement.size() < servers;) {
    const int size = std::min(static_cast<int>(rng.integer(1, most)), blocks - next + 1);
    placement.push_back({next, size});
    next += size;
  }
  while (placement.size() < servers) {
    const auto size = static_cast<int>(rng.integer(0, std::min(most, blocks)));
    placement.push_back(size == 0 ? BlockRange{} : BlockRange{static_cast<int>(rng.integer(1, blocks - size + 1)), size});
  }
  for (std::size_t j = placement.size(); j > 1; --j) {
    std::swap(placement[j - 1], placement[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(j) - 1))]);
  }
  return placement;
}

struct OrderCase {
  Instance instance;
  Placement before, after;
};

// Memories that are mostly too small for both ranges of a server.
OrderCase random_case(Rng& rng, int max_blocks, int max_servers) {
  OrderCase c;
  const auto blocks = static_cast<int>(rng.integer(2, max_blocks));
  const auto servers = static_cast<std::size_t>(rng.integer(2, max_servers));
  c.before = random_cover(rng, blocks, servers, 3);
  c.after = random_cover(rng, blocks, servers, 3);
  c.instance = instance_of(blocks, {});
  for (std::size_t j = 0; j < servers; ++j) {
    const int most = std::max({1, c.before[j].blocks, c.after[j].blocks});
    const double memory_gb = most * (rng.uniform() < 0.75 ? 1.15 : rng.uniform(1.15, 3));
    c.instance.servers.push_back(Server{fmt::format("s{}", j), memory_gb, 1, 1, rng.uniform(0.2, 2), std::nullopt});
  }
  return c;
}

// Given random placements before and after; expects every returned order to keep all rules when executed, and to serve without
// a break if any order does. Expects none to lose more than the one with a wave per server.
TEST(TransitionOrder, SurvivesExecution) {
  int interrupted = 0, smooth = 0, dropping_first = 0, broken_before = 0;
  for (std::uint64_t seed = 0; seed < effort(2000U, 20'000U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "order");
    const auto [instance, before, after] = random_case(rng, 6, 6);
    if (!covers_all_blocks(instance, after)) continue;
    const auto orders = transition_orders(instance, before, after);
    const auto changes = changes_between(instance, before, after);
    ASSERT_EQ(orders.empty(), changes.empty());
    if (orders.empty()) continue;
    double least_s = std::numeric_limits<double>::infinity();
    for (const TransitionOrder& order : orders) {
      const Execution execution = execute(instance, before, after, order.waves);
      ASSERT_EQ(execution.mistake, "");
      ASSERT_NEAR(execution.interrupted_s, order.interrupted_s, 1e-9);
      ASSERT_TRUE(order.proved);
      least_s = std::min(least_s, order.interrupted_s);
    }
    ASSERT_EQ(least_s == 0, some_order_serves(instance, before, after));
    for (const TransitionOrder& order : orders) ASSERT_EQ(order.interrupted_s == 0, least_s == 0);
    if (covers_all_blocks(instance, before)) {
      ASSERT_LE(orders[0].interrupted_s, orders[1].interrupted_s + 1e-9);
    }
    broken_before += !covers_all_blocks(instance, before);
    interrupted += least_s > 0 && covers_all_blocks(instance, before);
    smooth += least_s == 0;
    dropping_first += std::count_if(changes.begin(), changes.end(), [](const auto& c) { return !c.loads_first; }) >= 3;
  }
  EXPECT_GT(interrupted, effort(66, 1000));
  EXPECT_GT(smooth, effort(66, 1000));
  EXPECT_GT(dropping_first, effort(66, 1000));
  EXPECT_GT(broken_before, effort(33, 500));
}

// Given ten servers, nearly all of which drop first; expects the right answer on whether some order serves, by search where
// greedy is stuck.
TEST(TransitionOrder, SearchesLongOrders) {
  int smooth = 0, interrupted = 0;
  for (std::uint64_t seed = 0; seed < effort(100U, 1000U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "cycles");
    const Instance instance = instance_of(12, std::vector<double>(10, 2.3));
    const Placement before = random_cover(rng, 12, 10, 2);
    const Placement after = random_cover(rng, 12, 10, 2);
    if (!covers_all_blocks(instance, before) || !covers_all_blocks(instance, after)) continue;
    const TransitionOrder order = best_order(instance, before, after);
    ASSERT_EQ(execute(instance, before, after, order.waves).mistake, "");
    ASSERT_EQ(order.interrupted_s == 0, some_order_serves(instance, before, after));
    (order.interrupted_s == 0 ? smooth : interrupted) += 1;
  }
  EXPECT_GT(smooth, effort(3, 50));
  EXPECT_GT(interrupted, effort(3, 50));
}

// Given more than 20 servers in one cycle without room; expects the answer to say that not all orders were tried, and to be
// executable.
TEST(TransitionOrder, SaysWhenNotAllOrdersWereTried) {
  const int servers = 24;
  const Instance instance = instance_of(servers, std::vector<double>(servers, 1.5));
  Placement before, after;
  for (int j = 0; j < servers; ++j) {
    before.push_back({j + 1, 1});
    after.push_back({(j + 1) % servers + 1, 1});
  }
  const TransitionOrder order = best_order(instance, before, after);
  EXPECT_FALSE(order.proved);
  EXPECT_EQ(order.interrupted_s, 1);
  EXPECT_EQ(execute(instance, before, after, order.waves).mistake, "");
  // With one more server that holds block 1 the cycle opens, and greedy needs no search.
  Instance spare = instance;
  spare.servers.push_back(Server{"spare", 1.5, 1, 1, 1, std::nullopt});
  before.push_back({1, 1});
  after.push_back({1, 1});
  const TransitionOrder open = best_order(spare, before, after);
  EXPECT_TRUE(open.proved);
  EXPECT_EQ(open.interrupted_s, 0);
  EXPECT_EQ(execute(spare, before, after, open.waves).mistake, "");
}

// Given servers during a transition; expects chains to see the old range while it loads, one range if both touch, the server
// twice with divided slots if they do not, and the common blocks while it replaces.
TEST(TransitionOrder, ShowsServersInBetween) {
  const Instance instance = instance_of(4, {4, 4, 2.5});
  const Placement before = {{1, 1}, {1, 1}, {1, 2}};
  const Placement after = {{2, 1}, {3, 2}, {2, 2}};
  TransitionState state(instance, before, changes_between(instance, before, after));
  EXPECT_EQ(state.view().placement, before);
  EXPECT_THAT(state.view().slots, ElementsAre(30, 30, 5));
  state.set(0, TransitionState::Phase::kLoading);
  state.set(1, TransitionState::Phase::kLoading);
  state.set(2, TransitionState::Phase::kReplacing);
  EXPECT_EQ(state.view().placement, (Placement{{1, 1}, {1, 1}, {2, 1}}));
  EXPECT_THAT(state.view().slots, ElementsAre(20, 10, 5));
  EXPECT_FALSE(state.full_chain());
  state.set(0, TransitionState::Phase::kBoth);
  state.set(1, TransitionState::Phase::kBoth);
  state.set(2, TransitionState::Phase::kAfter);
  EXPECT_TRUE(state.full_chain());
  const auto view = state.view();
  EXPECT_EQ(view.placement, (Placement{{1, 2}, {1, 1}, {2, 2}, {3, 2}}));
  EXPECT_THAT(view.slots, ElementsAre(20, 3, 5, 7));
  EXPECT_EQ(view.instance.servers[3].name, "s1");
}

}  // namespace
}  // namespace windlass::chain
