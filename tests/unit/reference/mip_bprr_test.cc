// Tests of the MILP of joint block placement and request routing: worked cases, enumeration of small random instances, and the
// fast algorithms, which must not beat it.
#include <limits>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/chain/cg_bp.h"
#include "planner/chain/routes.h"
#include "tests/effort.h"
#include "tests/reference/papers/bprr_milp.h"
#include "tests/unit/planner/chain/mip_random_instances.h"

namespace windlass::chain {
namespace {

using ::testing::HasSubstr;

struct Case {
  Instance instance;
  OfflineDemand demand;
};

Server server(const char* name, double memory_gb, double block_s) {
  Server server;
  server.name = name;
  server.memory_gb = memory_gb;
  server.block_s = block_s;
  return server;
}

// Memory, caches and times are simple fractions, so that no floor depends on rounding.
Case random_case(Rng& rng, int max_servers, int max_blocks, int max_requests) {
  Case c;
  c.instance.blocks = static_cast<int>(rng.integer(1, max_blocks));
  c.instance.block_gb = 1;
  c.instance.cache_gb = 0.25;
  const auto servers = rng.integer(1, max_servers);
  for (int j = 0; j < servers; ++j) {
    c.instance.servers.push_back(
        server("s", static_cast<double>(rng.integer(2, 16)) / 4, static_cast<double>(rng.integer(1, 40)) / 16));
  }
  const auto clients = rng.integer(1, 2);
  for (int client = 0; client < clients; ++client) {
    auto& rtt_s = c.demand.rtt_s.emplace_back();
    for (int j = 0; j < servers; ++j) rtt_s.push_back(static_cast<double>(rng.integer(0, 40)) / 16);
  }
  const auto requests = rng.integer(1, max_requests);
  for (int r = 0; r < requests; ++r) c.demand.request_clients.push_back(static_cast<int>(rng.integer(0, clients - 1)));
  return c;
}

// All routes through a placement, ignoring memory.
std::vector<std::vector<int>> all_routes(const Instance& instance, const Placement& placement) {
  std::vector<std::vector<int>> routes;
  std::vector<int> route;
  const auto extend = [&](const auto& self, int next) -> void {
    if (next == instance.blocks + 1) {
      routes.push_back(route);
      return;
    }
    for (std::size_t j = 0; j < placement.size(); ++j) {
      if (!placement[j].holds(next)) continue;
      route.push_back(static_cast<int>(j));
      self(self, placement[j].last() + 1);
      route.pop_back();
    }
  };
  extend(extend, 1);
  return routes;
}

// Whether memory suffices: Eq. 5 for whole routes.
bool memory_holds(const Instance& instance, const Placement& placement, const std::vector<std::vector<int>>& routes) {
  std::vector<double> used_gb;
  for (const BlockRange& range : placement) used_gb.push_back(instance.block_gb * range.blocks);
  for (const auto& route : routes) {
    int next = 1;
    for (const int j : route) {
      const auto at = static_cast<std::size_t>(j);
      used_gb[at] += instance.cache_gb * (placement[at].last() - next + 1);
      next = placement[at].last() + 1;
    }
  }
  for (std::size_t j = 0; j < used_gb.size(); ++j) {
    if (used_gb[j] > instance.servers[j].memory_gb) return false;
  }
  return true;
}

// The least total time over all placements and all routings of the requests.
std::optional<double> best_by_enumeration(const Case& c) {
  std::optional<double> best;
  each_placement(c.instance, 0, [&](const Placement& placement) {
    const auto routes = all_routes(c.instance, placement);
    if (routes.empty()) return;
    std::vector<std::vector<int>> chosen;
    const auto assign = [&](const auto& self, double total_s) -> void {
      if (best && total_s >= *best) return;
      if (!memory_holds(c.instance, placement, chosen)) return;
      if (chosen.size() == c.demand.request_clients.size()) {
        best = total_s;
        return;
      }
      const auto client = static_cast<std::size_t>(c.demand.request_clients[chosen.size()]);
      for (const auto& route : routes) {
        chosen.push_back(route);
        self(self, total_s + *route_time_s(c.instance, placement, c.demand.rtt_s[client], route));
        chosen.pop_back();
      }
    };
    assign(assign, 0);
  });
  return best;
}

// Given one server that holds all blocks; expects one hop, RTT + tau L for each request.
TEST(BprrMilp, UsesTheOnlyServer) {
  Case c;
  c.instance.blocks = 3;
  c.instance.block_gb = 1;
  c.instance.cache_gb = 0.25;
  c.instance.servers = {server("only", 4.5, 0.5)};
  c.demand = {{{0.125}, {1}}, {0, 1}};
  const auto result = optimal_placement_and_routes(c.instance, c.demand);
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_TRUE(result->feasible && result->proved);
  EXPECT_EQ(result->placement, (Placement{{1, 3}}));
  EXPECT_EQ(result->routes, (std::vector<std::vector<int>>{{0}, {0}}));
  EXPECT_NEAR(result->total_s, 0.125 + 1 + 2 * 1.5, 1e-9);
  // Two requests need 6 caches of a quarter GB: with less than 4.5 GB of memory they do not fit.
  c.instance.servers[0].memory_gb = 4.25;
  const auto none = optimal_placement_and_routes(c.instance, c.demand);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->feasible);
  EXPECT_TRUE(none->proved);
}

// Given the memory contention of Theorem 3.2: two blocks, a fast server with room for one block and one request, a slow one
// with room for all; expects one request to use the fast server for a block, the other not.
TEST(BprrMilp, SharesScarceMemory) {
  Case c;
  c.instance.blocks = 2;
  c.instance.block_gb = 1;
  c.instance.cache_gb = 0.5;
  c.instance.servers = {server("fast", 1.5, 0.125), server("slow", 8, 1)};
  c.demand = {{{0, 0}}, {0, 0}};
  const auto result = optimal_placement_and_routes(c.instance, c.demand);
  ASSERT_TRUE(result.ok() && result->feasible && result->proved);
  EXPECT_NEAR(result->total_s, (0.125 + 1) + 2, 1e-9);
}

// Given random instances of up to 3 servers, 4 blocks and 3 requests of two clients; expects a result exactly if some placement
// and routing is feasible, with the same least time. The result is itself feasible and takes the reported time.
TEST(BprrMilp, AgreesWithEnumeration) {
  int feasible = 0, infeasible = 0, shared = 0;
  for (std::uint64_t seed = 0; seed < effort(30U, 300U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "bprr");
    const Case c = random_case(rng, 3, 4, 3);
    const auto best = best_by_enumeration(c);
    const auto result = optimal_placement_and_routes(c.instance, c.demand);
    ASSERT_TRUE(result.ok()) << result.error().message;
    ASSERT_TRUE(result->proved);
    ASSERT_EQ(result->feasible, best.has_value());
    if (!best) {
      ++infeasible;
      continue;
    }
    ++feasible;
    ASSERT_NEAR(result->total_s, *best, 1e-6 * (1 + *best));
    ASSERT_TRUE(memory_holds(c.instance, result->placement, result->routes));
    double total_s = 0;
    for (std::size_t r = 0; r < result->routes.size(); ++r) {
      const auto client = static_cast<std::size_t>(c.demand.request_clients[r]);
      const auto time_s = route_time_s(c.instance, result->placement, c.demand.rtt_s[client], result->routes[r]);
      ASSERT_TRUE(time_s.has_value());
      total_s += *time_s;
    }
    ASSERT_NEAR(result->total_s, total_s, 1e-9);
    shared += result->routes.size() > 1 && result->routes[0] != result->routes[1];
  }
  EXPECT_GT(feasible, effort(8, 120));
  EXPECT_GT(infeasible, effort(2, 30));
  EXPECT_GT(shared, effort(1, 10)) << "no instance in which requests had to part: memory was never scarce";
}

// Given CG-BP for |R| requests with each client's shortest path, which is feasible (Lemma 3.4); expects it never to beat the
// MILP. Given one client and memory for everything on the fastest server; expects equal results.
TEST(BprrMilp, IsNeverBeatenByCgBpWithShortestPaths) {
  int compared = 0, equal = 0;
  for (std::uint64_t seed = 0; seed < effort(40U, 300U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "cg-bp");
    const Case c = random_case(rng, 3, 4, 3);
    std::vector<double> largest_rtt_s(c.instance.servers.size(), 0.0);
    for (const auto& rtt_s : c.demand.rtt_s) {
      for (std::size_t j = 0; j < rtt_s.size(); ++j) largest_rtt_s[j] = std::max(largest_rtt_s[j], rtt_s[j]);
    }
    const auto conservative = cg_bp(c.instance, static_cast<int>(c.demand.request_clients.size()), largest_rtt_s);
    if (!conservative.time_bound_s) continue;
    double total_s = 0;
    std::vector<std::vector<int>> routes;
    for (const int client : c.demand.request_clients) {
      const RouteGraph graph(c.instance, conservative.placement, {}, c.demand.rtt_s[static_cast<std::size_t>(client)]);
      const auto route = graph.cheapest(graph.times_s());
      ASSERT_TRUE(route.has_value());
      total_s += route->time_s;
      routes.push_back(route->servers);
    }
    ASSERT_TRUE(memory_holds(c.instance, conservative.placement, routes));
    const auto result = optimal_placement_and_routes(c.instance, c.demand);
    ASSERT_TRUE(result.ok()) << result.error().message;
    ASSERT_TRUE(result->feasible && result->proved);
    ASSERT_LE(result->total_s, total_s + 1e-6);
    ++compared;
    equal += std::abs(result->total_s - total_s) < 1e-6;
  }
  EXPECT_GT(compared, effort(5, 50));
  EXPECT_GT(equal, effort(1, 10));
  EXPECT_LT(equal, compared);
}

// Given a demand that does not match the instance; expects an error that names it.
TEST(BprrMilp, RejectsBadDemand) {
  Case c;
  c.instance.blocks = 1;
  c.instance.block_gb = 1;
  c.instance.cache_gb = 0.25;
  c.instance.servers = {server("only", 4, 1)};
  const auto rtts = optimal_placement_and_routes(c.instance, {{{1, 2}}, {0}});
  ASSERT_FALSE(rtts.ok());
  EXPECT_THAT(rtts.error().message, HasSubstr("rtt_s of client 0: must have 1 servers (got 2)"));
  const auto client = optimal_placement_and_routes(c.instance, {{{1}}, {0, 1}});
  ASSERT_FALSE(client.ok());
  EXPECT_THAT(client.error().message, HasSubstr("client of request 1: must be 0 to 0 (got 1)"));
}

// Given routes; expects the time of hops in order with all blocks, or none.
TEST(BprrMilp, RouteTimesFollowEq4) {
  Instance instance;
  instance.blocks = 3;
  instance.servers = {server("a", 4, 0.5), server("b", 4, 0.25)};
  const Placement placement = {{1, 2}, {2, 2}};
  EXPECT_EQ(route_time_s(instance, placement, {1, 2}, {0, 1}), 1 + 2 * 0.5 + 2 + 0.25);
  EXPECT_EQ(route_time_s(instance, placement, {1, 2}, {1, 0}), std::nullopt);
  EXPECT_EQ(route_time_s(instance, placement, {1, 2}, {0}), std::nullopt);
}

}  // namespace
}  // namespace windlass::chain
