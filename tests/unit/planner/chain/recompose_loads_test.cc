// Tests of reassigning the ranges of a composition: fewer loads, never a worse objective, compared with every exchange among
// identical servers.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "planner/chain/fewest_loads.h"
#include "tests/effort.h"
#include "tests/unit/planner/chain/mip_random_instances.h"

namespace windlass::chain {
namespace {

// Servers of few kinds, so that some can be exchanged.
Instance instance_of_kinds(Rng& rng, int max_servers) {
  Instance instance = random_instance(rng, {.max_servers = 1, .max_blocks = 8, .max_memory_gb = 6});
  std::vector<Server> kinds;
  for (int k = 0; k < 2; ++k) kinds.push_back(random_server(rng, k, {.max_servers = 1, .max_blocks = 8, .max_memory_gb = 6}));
  instance.servers.clear();
  const auto servers = rng.integer(2, max_servers);
  for (int j = 0; j < servers; ++j) {
    instance.servers.push_back(kinds[static_cast<std::size_t>(rng.integer(0, 1))]);
    instance.servers.back().name = fmt::format("s{}", j);
  }
  return instance;
}

// Given two identical servers whose ranges the composition exchanged; expects them exchanged back, nothing to load, and
// matching chains.
TEST(FewestLoads, ExchangesIdenticalServers) {
  Instance instance;
  instance.blocks = 2;
  instance.block_gb = 1;
  instance.cache_gb = 0.25;
  instance.arrival_rate_per_s = 0.1;
  for (const char* name : {"a", "b"}) instance.servers.push_back(Server{name, 1.5, 1, 1, 1, std::nullopt});
  const auto composed = compose(instance, 1);
  ASSERT_TRUE(composed.ok());
  ASSERT_EQ(composed->placement, (Placement{{1, 1}, {2, 1}}));
  const Placement held = {{2, 1}, {1, 1}};
  const Composition moved = with_fewest_loads(instance, *composed, held);
  EXPECT_EQ(moved.placement, held);
  EXPECT_EQ(moved.disjoint_chains, (std::vector<std::vector<int>>{{1, 0}}));
  EXPECT_EQ(moved.capacity, 1);
  ASSERT_EQ(moved.chains.size(), 1u);
  EXPECT_EQ(moved.chains[0].servers, (std::vector<int>{1, 0}));
  EXPECT_EQ(moved.total_service_rate_per_s, composed->total_service_rate_per_s);
}

// Given a chain of three different servers that hold ranges in reverse order; expects the reverse order, because the chain
// takes as long either way.
TEST(FewestLoads, ReordersAChain) {
  Instance instance;
  instance.blocks = 6;
  instance.block_gb = 1;
  instance.cache_gb = 0.25;
  instance.arrival_rate_per_s = 0.01;
  instance.servers = {Server{"a", 2.6, 1, 1, 1, std::nullopt}, Server{"b", 2.7, 1, 2, 1, std::nullopt},
                      Server{"c", 2.8, 1, 3, 1, std::nullopt}};
  const auto composed = compose(instance, 1);
  ASSERT_TRUE(composed.ok());
  ASSERT_EQ(composed->placement, (Placement{{1, 2}, {3, 2}, {5, 2}}));
  const Placement held = {{5, 2}, {3, 2}, {1, 2}};
  EXPECT_EQ(with_fewest_loads(instance, *composed, held).placement, held);
  EXPECT_EQ(blocks_to_load(held, composed->placement), 4);
}

// Given random compositions and held ranges; expects never more to load, never a worse service, the ranges and chains of the
// composition up to who holds them, and memory kept; a composition that is already held stays unchanged.
TEST(FewestLoads, NeverLoadsMoreNorServesWorse) {
  int fewer = 0;
  for (std::uint64_t seed = 0; seed < effort(300U, 3000U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "loads");
    const Instance instance = instance_of_kinds(rng, 7);
    const auto composed = compose(instance, Tuning::kLowerBound);
    if (!composed.ok()) continue;
    const Placement held = random_placement(rng, instance);
    const Composition moved = with_fewest_loads(instance, *composed, held);
    ASSERT_LE(blocks_to_load(held, moved.placement), blocks_to_load(held, composed->placement));
    ASSERT_TRUE(serves_no_worse(moved, *composed));
    ASSERT_TRUE(covers_all_blocks(instance, moved.placement));
    for (std::size_t j = 0; j < instance.servers.size(); ++j) {
      ASSERT_LE(moved.placement[j].blocks * instance.block_gb, instance.servers[j].memory_gb);
    }
    ASSERT_EQ(moved.disjoint_chains.size(), composed->disjoint_chains.size());
    for (const auto& chain : moved.disjoint_chains) {
      int next = 1;
      for (const int j : chain) {
        const BlockRange& range = moved.placement[static_cast<std::size_t>(j)];
        ASSERT_LE(range.first, next);
        next = std::max(next, range.last() + 1);
      }
      ASSERT_EQ(next, instance.blocks + 1);
    }
    const Composition fresh = compose_on(instance, moved.placement);
    ASSERT_EQ(fresh.chains, moved.chains);
    ASSERT_EQ(fresh.total_service_rate_per_s, moved.total_service_rate_per_s);
    ASSERT_EQ(with_fewest_loads(instance, *composed, composed->placement).placement, composed->placement);
    fewer += blocks_to_load(held, moved.placement) < blocks_to_load(held, composed->placement);
  }
  EXPECT_GT(fewer, effort(33, 500));
}

// Given every exchange among up to 6 identical servers; expects that no exchange with equal or better service loads less.
TEST(FewestLoads, AgreesWithEveryExchange) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < effort(100U, 1000U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "exchange");
    Instance instance = instance_of_kinds(rng, 6);
    for (Server& server : instance.servers) {
      const std::string name = server.name;
      server = instance.servers.front();
      server.name = name;
    }
    const auto composed = compose(instance, Tuning::kLowerBound);
    if (!composed.ok()) continue;
    ++compared;
    const Placement held = random_placement(rng, instance);
    std::vector<std::size_t> takes(held.size());
    std::iota(takes.begin(), takes.end(), std::size_t{0});
    long least = blocks_to_load(held, composed->placement);
    do {
      Placement placement(held.size());
      for (std::size_t j = 0; j < takes.size(); ++j) placement[j] = composed->placement[takes[j]];
      const long loads = blocks_to_load(held, placement);
      if (loads < least && serves_no_worse(compose_on(instance, placement), *composed)) least = loads;
    } while (std::next_permutation(takes.begin(), takes.end()));
    ASSERT_LE(blocks_to_load(held, with_fewest_loads(instance, *composed, held).placement), least);
  }
  EXPECT_GT(compared, effort(20, 300));
}

}  // namespace
}  // namespace windlass::chain
