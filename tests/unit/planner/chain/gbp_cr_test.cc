// Tests GBP-CR against its definition, against brute force over all groupings (Theorem 3.4), and on the paper's Fig. 1.
#include "planner/chain/gbp_cr.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/effort.h"
#include "tests/unit/planner/chain/random_instance.h"

namespace windlass::chain {
namespace {

// Given the instance of Fig. 1 (L servers of (L+1) s_m, s_m = L s_c) with L = 6; expects L chains of one server for c = 1, and
// one chain of L servers with one block each for c = L^2.
TEST(GbpCr, IsFigure1) {
  constexpr int kBlocks = 6;
  Instance instance{kBlocks, 6.0, 1.0, 1e9, 0.7, {}};
  for (int j = 0; j < kBlocks; ++j) instance.servers.push_back(Server{"s" + std::to_string(j), 42, 0.5, 0.1, 1, {}});

  const DisjointChains shortest = gbp_cr(instance, 1);
  ASSERT_EQ(shortest.chains.size(), 6U);
  for (const auto& chain : shortest.chains) EXPECT_EQ(chain.size(), 1U);
  EXPECT_NEAR(shortest.scaled_rate_per_s, kBlocks / (0.5 + kBlocks * 0.1), 1e-12);

  const DisjointChains longest = gbp_cr(instance, kBlocks * kBlocks);
  ASSERT_EQ(longest.chains.size(), 1U);
  EXPECT_EQ(longest.chains[0], (std::vector<int>{0, 1, 2, 3, 4, 5}));
  for (int j = 0; j < kBlocks; ++j) EXPECT_EQ(longest.placement[static_cast<std::size_t>(j)], (BlockRange{j + 1, 1}));
  EXPECT_NEAR(longest.scaled_rate_per_s, 1 / (kBlocks * 0.5 + kBlocks * 0.1), 1e-12);
}

// Given memories whose quotient by s_m + s_c c is near a whole number; expects the floor of the quotient as a double.
TEST(GbpCr, TakesFloorsOfDoublesAsWritten) {
  const Instance instance{100, 0.1, 0.1, 1, 0.7, {}};
  for (const double memory_gb : {0.6, 1.2, 0.8999999999999999, 0.3 * 3}) {
    EXPECT_EQ(blocks_for_capacity(instance, memory_gb, 2), static_cast<int>(std::floor(memory_gb / (0.1 + 0.1 * 2))))
        << memory_gb;
  }
  EXPECT_EQ(blocks_for_capacity(instance, 1e9, 2), 100);
  EXPECT_EQ(blocks_for_capacity(instance, 0.2, 2), 0);
}

// Given five servers, of which two make a fast enough chain and one is too small for a block; expects the stop rule to leave
// the others unplaced. Without the rule expects them placed, also in an unfinished chain; the small one never is.
TEST(GbpCr, StopsAtTheRateAndKeepsAnUnfinishedChain) {
  Instance instance{4, 1.0, 0.5, 0.1, 0.5, {}};
  for (const double memory_gb : {3.0, 3.0, 1.0, 3.0, 3.0, 3.0}) {
    instance.servers.push_back(Server{"s" + std::to_string(instance.servers.size()), memory_gb, 0.1, 0.1, 1, {}});
  }
  const DisjointChains stopped = gbp_cr(instance, 1);  // needs a rate of 0.2 per second; a chain gives 1 / 0.6
  EXPECT_TRUE(stopped.reaches_rate);
  EXPECT_EQ(stopped.chains, (std::vector<std::vector<int>>{{0, 1}}));
  EXPECT_EQ(stopped.placement[3].blocks, 0);

  const DisjointChains all = gbp_cr(instance, 1, kNever);
  EXPECT_FALSE(all.reaches_rate);
  EXPECT_EQ(all.chains, (std::vector<std::vector<int>>{{0, 1}, {3, 4}}));
  EXPECT_EQ(all.placement[5], (BlockRange{1, 2}));
  EXPECT_EQ(all.placement[2].blocks, 0);
}

// Given random instances and capacities; expects the placement and chains of a naive Alg. 1.
TEST(GbpCr, FollowsItsDefinition) {
  Rng rng(1, "gbp-cr");
  for (int round = 0; round < effort(300, 3000); ++round) {
    const Instance instance = random_instance(rng, {.max_servers = 12, .max_blocks = 12});
    const int capacity = static_cast<int>(rng.integer(1, 12));
    std::vector<int> order;
    std::vector<int> blocks;
    for (std::size_t j = 0; j < instance.servers.size(); ++j) {
      blocks.push_back(std::min(
          static_cast<int>(std::floor(instance.servers[j].memory_gb / (instance.block_gb + instance.cache_gb * capacity))),
          instance.blocks));
      if (blocks[j] > 0) order.push_back(static_cast<int>(j));
    }
    const auto time_s = [&](int j) {
      const auto at = static_cast<std::size_t>(j);
      return instance.servers[at].communication_s + instance.servers[at].block_s * blocks[at];
    };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return time_s(a) / blocks[static_cast<std::size_t>(a)] < time_s(b) / blocks[static_cast<std::size_t>(b)];
    });
    Placement placement(instance.servers.size());
    std::vector<std::vector<int>> chains;
    int next = 1;
    double rate = 0, chain_s = 0;
    std::vector<int> chain;
    for (const int j : order) {
      const int m = blocks[static_cast<std::size_t>(j)];
      placement[static_cast<std::size_t>(j)] = BlockRange{std::min(next, instance.blocks - m + 1), m};
      chain.push_back(j);
      chain_s += time_s(j);
      next = std::min(next + m - 1, instance.blocks) + 1;
      if (next <= instance.blocks) continue;
      rate += 1 / chain_s;
      chains.push_back(chain);
      if (rate >= instance.arrival_rate_per_s / (instance.max_load * capacity)) break;
      next = 1;
      chain_s = 0;
      chain.clear();
    }
    const DisjointChains result = gbp_cr(instance, capacity);
    ASSERT_EQ(result.placement, placement) << "round " << round;
    ASSERT_EQ(result.chains, chains) << "round " << round;
  }
}

// The smallest number of disjoint groups of servers that satisfies Eq. 10, by trying every grouping; 0: none does.
int fewest_chains(const Instance& instance, int capacity) {
  const std::size_t servers = instance.servers.size();
  int best = 0;
  std::vector<int> group(servers, -1);
  const std::function<void(std::size_t, int)> assign = [&](std::size_t j, int groups) {
    if (j == servers) {
      double rate = 0;
      int used = 0;
      for (int k = 0; k < groups; ++k) {
        int blocks = 0;
        double time_s = 0;
        for (std::size_t i = 0; i < servers; ++i) {
          if (group[i] != k) continue;
          const int m = blocks_for_capacity(instance, instance.servers[i].memory_gb, capacity);
          blocks += m;
          time_s += full_service_time_s(instance.servers[i], m);
        }
        if (blocks < instance.blocks) continue;
        rate += 1 / time_s;
        ++used;
      }
      if (rate >= required_scaled_rate_per_s(instance, capacity) && (best == 0 || used < best)) best = used;
      return;
    }
    for (int k = -1; k <= groups; ++k) {
      group[j] = k;
      assign(j + 1, std::max(groups, k + 1));
    }
  };
  assign(0, 0);
  return best;
}

// Given random instances of up to six servers with equal memories; expects (Theorem 3.4) as few chains as the best of all
// groupings, and enough exactly if some grouping has enough.
TEST(GbpCr, IsOptimalUnderEqualMemories) {
  Rng rng(2, "theorem-3.4");
  int feasible = 0;
  for (int round = 0; round < effort(150, 1500); ++round) {
    const Instance instance = random_instance(rng, {.max_servers = 6, .max_blocks = 6, .equal_memories = true});
    const int capacity = static_cast<int>(rng.integer(1, 6));
    if (blocks_for_capacity(instance, instance.servers[0].memory_gb, capacity) == 0) continue;
    const int best = fewest_chains(instance, capacity);
    const DisjointChains greedy = gbp_cr(instance, capacity);
    ASSERT_EQ(greedy.reaches_rate, best > 0) << "round " << round;
    if (best == 0) continue;
    ASSERT_EQ(static_cast<int>(greedy.chains.size()), best) << "round " << round;
    ++feasible;
  }
  EXPECT_GT(feasible, effort(13, 200));
}

// Given 300 random instances; expects next_change() to skip no c at which the placement changes.
TEST(GbpCr, NextChangeSkipsNothing) {
  Rng rng(3, "next-change");
  for (int round = 0; round < effort(50, 300); ++round) {
    const Instance instance = random_instance(rng, {.max_servers = 8, .max_blocks = 10});
    constexpr int kMost = 150;
    GreedyPlacement greedy(instance);
    std::vector<bool> visited(kMost + 2, false);
    for (int capacity = 1; capacity <= kMost; capacity = greedy.next_change(kMost)) {
      greedy.set_capacity(capacity);
      greedy.place(required_scaled_rate_per_s(instance, capacity));
      visited[static_cast<std::size_t>(capacity)] = true;
    }
    DisjointChains before = gbp_cr(instance, 1);
    for (int capacity = 2; capacity <= kMost; ++capacity) {
      DisjointChains now = gbp_cr(instance, capacity);
      const bool same = now.placement == before.placement && now.reaches_rate == before.reaches_rate;
      ASSERT_TRUE(same || visited[static_cast<std::size_t>(capacity)]) << "round " << round << ", c = " << capacity;
      before = std::move(now);
    }
  }
}

}  // namespace
}  // namespace windlass::chain
