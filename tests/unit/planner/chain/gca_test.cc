// Tests GCA against Alg. 2 on the explicit graph of server pairs, its guarantee for JFFC (Theorem 3.5), and the paper's Fig. 2.
#include "planner/chain/gca.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "planner/chain/gbp_cr.h"
#include "tests/effort.h"
#include "tests/unit/planner/chain/random_instance.h"

namespace windlass::chain {
namespace {

Placement random_placement(Rng& rng, const Instance& instance) {
  Placement placement(instance.servers.size());
  for (std::size_t j = 0; j < placement.size(); ++j) {
    const int most = blocks_for_capacity(instance, instance.servers[j].memory_gb, 1);
    if (most == 0) continue;
    placement[j].blocks = static_cast<int>(rng.integer(1, most));
    placement[j].first = static_cast<int>(rng.integer(1, instance.blocks - placement[j].blocks + 1));
  }
  return placement;
}

struct Path {
  std::vector<int> servers, blocks;
  double time_s = kNever;
};

// The fastest path from block `next` over servers with room, by trying all.
void try_paths(const Instance& instance, const Placement& placement, const std::vector<long>& slots, int next, Path& so_far,
               double time_s, Path& best) {
  if (next > instance.blocks) {
    if (time_s < best.time_s) best = Path{so_far.servers, so_far.blocks, time_s};
    return;
  }
  for (std::size_t j = 0; j < placement.size(); ++j) {
    if (placement[j].blocks == 0 || !placement[j].holds(next)) continue;
    const int blocks = placement[j].last() + 1 - next;
    if (slots[j] < blocks) continue;
    so_far.servers.push_back(static_cast<int>(j));
    so_far.blocks.push_back(blocks);
    try_paths(instance, placement, slots, next + blocks, so_far,
              time_s + instance.servers[j].communication_s + instance.servers[j].block_s * blocks, best);
    so_far.servers.pop_back();
    so_far.blocks.pop_back();
  }
}

// Given the placement of Fig. 2; expects its three chains with five requests each, and the total rate of Eq. 16.
TEST(Gca, IsFigure2) {
  constexpr double kEpsilon = 1e-3;
  Instance instance{3, 1, 0.1, 0.1, 0.7, {}};
  for (int l = 1; l <= 5; ++l) {
    instance.servers.push_back(Server{"j" + std::to_string(l), l == 2 ? 3.0 : 2.0, l == 2 ? 2.0 : 1.0, l * kEpsilon, 1, {}});
  }
  const DisjointChains disjoint = gbp_cr(instance, 1, kNever);
  EXPECT_EQ(disjoint.chains, (std::vector<std::vector<int>>{{0, 1}, {2, 3, 4}}));
  EXPECT_NEAR(disjoint.scaled_rate_per_s, 1 / (3 + 5 * kEpsilon) + 1 / (3 + 12 * kEpsilon), 1e-12);  // Eq. 15

  const auto chains = gca(instance, disjoint.placement);
  ASSERT_EQ(chains.size(), 3U);
  EXPECT_EQ(chains[0].servers, (std::vector<int>{0, 1}));
  EXPECT_EQ(chains[1].servers, (std::vector<int>{0, 3, 4}));
  EXPECT_EQ(chains[2].servers, (std::vector<int>{2, 3, 4}));
  double rate = 0;
  for (const ServerChain& chain : chains) {
    EXPECT_EQ(chain.capacity, 5);
    rate += chain.capacity * chain.service_rate_per_s();
  }
  EXPECT_NEAR(rate, 5 / (3 + 5 * kEpsilon) + 5 / (3 + 10 * kEpsilon) + 5 / (3 + 12 * kEpsilon), 1e-9);
}

// Given random placements; expects, chain by chain, the result of Alg. 2 with every path tried; all blocks in order on servers
// that hold them; no server with more caches than fit; and no path with room at the end.
TEST(Gca, IsAlgorithm2OnEveryPath) {
  Rng rng(4, "gca");
  int chains_seen = 0;
  for (int round = 0; round < effort(400, 4000); ++round) {
    const Instance instance = random_instance(rng, {.max_servers = 7, .max_blocks = 7});
    const Placement placement = random_placement(rng, instance);
    std::vector<long> slots = cache_slots(instance, placement);
    for (const ServerChain& chain : gca(instance, placement)) {
      Path so_far, best;
      try_paths(instance, placement, slots, 1, so_far, 0, best);
      ASSERT_NEAR(chain.service_time_s, best.time_s, 1e-12) << "round " << round;
      ASSERT_EQ(chain.servers, best.servers) << "round " << round;
      ASSERT_EQ(chain.blocks, best.blocks) << "round " << round;
      long capacity = std::numeric_limits<long>::max();
      int next = 1;
      for (std::size_t hop = 0; hop < chain.servers.size(); ++hop) {
        const auto j = static_cast<std::size_t>(chain.servers[hop]);
        ASSERT_TRUE(placement[j].holds(next) && placement[j].last() == next + chain.blocks[hop] - 1);
        next += chain.blocks[hop];
        capacity = std::min(capacity, slots[j] / chain.blocks[hop]);
      }
      ASSERT_EQ(next, instance.blocks + 1);
      ASSERT_EQ(chain.capacity, capacity);
      for (std::size_t hop = 0; hop < chain.servers.size(); ++hop) {
        slots[static_cast<std::size_t>(chain.servers[hop])] -= capacity * chain.blocks[hop];
      }
      ++chains_seen;
    }
    Path so_far, best;
    try_paths(instance, placement, slots, 1, so_far, 0, best);
    ASSERT_EQ(best.time_s, kNever) << "round " << round;
    for (std::size_t j = 0; j < slots.size(); ++j) {
      const double used_gb = instance.block_gb * placement[j].blocks +
                             instance.cache_gb * static_cast<double>(cache_slots(instance, placement)[j] - slots[j]);
      ASSERT_LE(used_gb, instance.servers[j].memory_gb * (1 + 1e-12));
    }
  }
  EXPECT_GT(chains_seen, effort(133, 2000));
}

// Given requests that come and go at random on 400 random placements; expects (Theorem 3.5) that the fastest free chain of GCA
// is always as fast as the fastest of all paths with room at that moment.
TEST(Gca, ChainsAreEnoughForJffc) {
  Rng rng(5, "theorem-3.5");
  int assigned = 0;
  for (int round = 0; round < effort(60, 400); ++round) {
    const Instance instance = random_instance(rng, {.max_servers = 6, .max_blocks = 6});
    const Placement placement = random_placement(rng, instance);
    const auto chains = gca(instance, placement);
    std::vector<long> slots = cache_slots(instance, placement);
    std::vector<int> busy(chains.size(), 0);
    for (int step = 0; step < 60; ++step) {
      const auto move = [&](std::size_t k, int sign) {
        busy[k] += sign;
        for (std::size_t hop = 0; hop < chains[k].servers.size(); ++hop) {
          slots[static_cast<std::size_t>(chains[k].servers[hop])] -= sign * chains[k].blocks[hop];
        }
      };
      if (rng.uniform() < 0.6) {
        std::size_t k = 0;
        while (k < chains.size() && busy[k] == chains[k].capacity) ++k;
        Path so_far, best;
        try_paths(instance, placement, slots, 1, so_far, 0, best);
        if (k == chains.size()) {
          ASSERT_EQ(best.time_s, kNever) << "round " << round;
          continue;
        }
        ASSERT_NEAR(chains[k].service_time_s, best.time_s, 1e-12) << "round " << round;
        move(k, 1);
        ++assigned;
      } else if (!chains.empty()) {
        const auto k = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(chains.size()) - 1));
        if (busy[k] > 0) move(k, -1);
      }
    }
  }
  EXPECT_GT(assigned, effort(200, 2000));
}

// Given random placements; expects no more requests than the servers' slots per block they hold, averaged over the first blocks
// of the model, allow: the search for c relies on this bound.
TEST(Gca, CapacityIsAtMostTheRoomOfTheFirstBlocks) {
  Rng rng(6, "first-blocks");
  int tight = 0;
  for (int round = 0; round < effort(400, 4000); ++round) {
    const Instance instance = random_instance(rng, {.max_servers = 9, .max_blocks = 9});
    const Placement placement = round % 2 == 0 ? random_placement(rng, instance)
                                               : gbp_cr(instance, static_cast<int>(rng.integer(1, 4)), kNever).placement;
    long capacity = 0;
    for (const ServerChain& chain : gca(instance, placement)) capacity += chain.capacity;
    for (int most = 1; most <= instance.blocks; ++most) {
      double room = 0;
      for (std::size_t j = 0; j < placement.size(); ++j) {
        const int held = std::min(placement[j].last(), most) - placement[j].first + 1;
        if (placement[j].blocks == 0 || held <= 0) continue;
        const auto slots = static_cast<double>(cache_slots(instance, static_cast<int>(j), placement[j].blocks));
        room += most == 1 ? std::floor(slots / placement[j].blocks) : slots * held / placement[j].blocks;
      }
      ASSERT_LE(static_cast<double>(capacity), room / most * (1 + 1e-12)) << "round " << round << ", block " << most;
      if (most == 1 && static_cast<double>(capacity) == room && capacity > 0) ++tight;
    }
  }
  EXPECT_GT(tight, effort(40, 400));
}

// Given two servers of the same speed that hold everything; expects the one listed first to be filled first.
TEST(Gca, TiesGoToTheServerListedFirst) {
  const Instance instance{2, 1, 1, 1, 0.7, {Server{"a", 6, 0.1, 0.1, 1, {}}, Server{"b", 8, 0.1, 0.1, 1, {}}}};
  const auto chains = gca(instance, {BlockRange{1, 2}, BlockRange{1, 2}});
  ASSERT_EQ(chains.size(), 2U);
  EXPECT_EQ(chains[0].servers, std::vector<int>{0});
  EXPECT_EQ(chains[0].capacity, 2);
  EXPECT_EQ(chains[1].servers, std::vector<int>{1});
  EXPECT_EQ(chains[1].capacity, 3);
}

// Given placements that miss a block, are empty, or leave no room for a cache; expects no chain.
TEST(Gca, FindsNoChainIfThereIsNone) {
  const Instance instance{2, 1, 1, 1, 0.7, {Server{"a", 6, 0.1, 0.1, 1, {}}, Server{"b", 2, 0.1, 0.1, 1, {}}}};
  EXPECT_TRUE(gca(instance, {BlockRange{1, 1}, BlockRange{1, 1}}).empty());
  EXPECT_TRUE(gca(instance, Placement(2)).empty());
  EXPECT_TRUE(gca(instance, {BlockRange{}, BlockRange{1, 2}}).empty());
}

}  // namespace
}  // namespace windlass::chain
