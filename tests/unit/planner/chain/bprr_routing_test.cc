// Tests of routes, waiting times (Eq. 20), WS-RR and PETALS' routing against an enumeration of all paths.
#include <cmath>
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "planner/chain/petals.h"
#include "planner/chain/routes.h"
#include "planner/chain/server_state.h"
#include "planner/chain/ws_rr.h"
#include "tests/effort.h"
#include "tests/unit/planner/chain/bprr_fixtures.h"

namespace windlass::chain {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Cheapest {
  std::vector<int> servers, blocks;
  double cost = kInfinity;
};

using PathCost = std::function<double(const std::vector<int>& servers, const std::vector<int>& blocks)>;

// The cheapest of all paths; on a tie the one with the lexicographically first servers.
Cheapest cheapest_path(const Instance& instance, const Placement& placement, const PathCost& path_cost) {
  Cheapest best;
  for_each_path(instance, placement, [&](const std::vector<int>& servers, const std::vector<int>& blocks) {
    const double cost = path_cost(servers, blocks);
    if (cost < best.cost || (cost == best.cost && cost < kInfinity && servers < best.servers)) best = {servers, blocks, cost};
  });
  return best;
}

Cheapest cheapest_by_enumeration(const Instance& instance, const Placement& placement,
                                 const std::function<double(int server, int blocks)>& link_cost) {
  return cheapest_path(instance, placement, [&](const std::vector<int>& servers, const std::vector<int>& blocks) {
    double cost = 0;
    for (std::size_t hop = 0; hop < servers.size(); ++hop) cost += link_cost(servers[hop], blocks[hop]);
    return cost;
  });
}

void expect_cheapest(const std::optional<Route>& route, const Cheapest& expected, int round) {
  ASSERT_EQ(route.has_value(), expected.cost < kInfinity) << "round " << round;
  if (!route) return;
  ASSERT_EQ(route->cost_s, expected.cost) << "round " << round;
  ASSERT_EQ(route->servers, expected.servers) << "round " << round;
  ASSERT_EQ(route->blocks, expected.blocks) << "round " << round;
}

double inference_s(const Instance& instance, int server, int blocks) {
  const Server& properties = instance.servers[static_cast<std::size_t>(server)];
  return properties.communication_s + properties.block_s * blocks;
}

std::vector<long> random_slots(const Instance& instance, Rng& rng) {
  std::vector<long> slots;
  for (std::size_t j = 0; j < instance.servers.size(); ++j) slots.push_back(rng.integer(0, 2 * instance.blocks));
  return slots;
}

// Given random placements and penalties, with ties; expects the cheapest of all paths, with the first servers on a tie.
TEST(Routes, CheapestOfAllPaths) {
  Rng rng(1, "routes");
  int found = 0;
  for (int round = 0; round < effort(500, 5000); ++round) {
    const Instance instance = random_instance(rng, 7, 7);
    const Placement placement = random_placement(instance, rng);
    std::vector<double> penalties(64);
    for (double& penalty : penalties) penalty = eighths(rng, 0, 3);
    const auto penalty_s = [&](int server, int blocks) { return penalties[static_cast<std::size_t>(server * 8 + blocks)]; };
    expect_cheapest(shortest_route(instance, placement),
                    cheapest_by_enumeration(instance, placement,
                                            [&](int server, int blocks) { return inference_s(instance, server, blocks); }),
                    round);
    const auto route = shortest_route(instance, placement, penalty_s);
    expect_cheapest(route,
                    cheapest_by_enumeration(instance, placement,
                                            [&](int server, int blocks) {
                                              return inference_s(instance, server, blocks) + penalty_s(server, blocks);
                                            }),
                    round);
    if (route) {
      ++found;
      ASSERT_EQ(route->time_s, service_time_s(instance, route->servers, route->blocks));
    }
  }
  EXPECT_GT(found, effort(100, 1500));
}

// Given a limit of cache slots; expects that links that need more do not exist.
TEST(Routes, LinksNeedTheirSlots) {
  Rng rng(2, "routes");
  for (int round = 0; round < effort(300, 3000); ++round) {
    const Instance instance = random_instance(rng, 7, 7);
    const Placement placement = random_placement(instance, rng);
    const auto slots = random_slots(instance, rng);
    const RouteGraph graph(instance, placement, slots);
    expect_cheapest(graph.cheapest(graph.times_s()),
                    cheapest_by_enumeration(instance, placement,
                                            [&](int server, int blocks) {
                                              return blocks > slots[static_cast<std::size_t>(server)]
                                                         ? kInfinity
                                                         : inference_s(instance, server, blocks);
                                            }),
                    round);
  }
}

struct Held {
  std::int64_t id;
  long slots;
  double end_s;
};

// Eq. 20 as written: sessions sorted by remaining time, the first whose end leaves enough.
double wait_by_definition(long slots, std::vector<Held> sessions, double now_s, long needed) {
  std::sort(sessions.begin(), sessions.end(), [](const Held& a, const Held& b) { return a.end_s < b.end_s; });
  long free = slots;
  for (const Held& session : sessions) free -= session.slots;
  if (free >= needed) return 0;
  for (const Held& session : sessions) {
    free += session.slots;
    if (free >= needed) return std::max(0.0, session.end_s - now_s);
  }
  return kInfinity;
}

// Given random histories of sessions, some with more claims than slots; expects the wait of Eq. 20, one by one and in one pass.
TEST(ServerState, WaitsAsEquationTwentySays) {
  Rng rng(3, "waits");
  int waits = 0;
  for (int round = 0; round < effort(300, 3000); ++round) {
    const long slots = rng.integer(0, 20);
    ServerState state(slots);
    std::vector<Held> held;
    double now_s = 0;
    for (int step = 0; step < 12; ++step) {
      now_s += eighths(rng, 0, 4);
      if (!held.empty() && rng.integer(0, 2) == 0) {
        const auto ended = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(held.size()) - 1));
        state.remove(held[ended].id, held[ended].end_s);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(ended));
      } else {
        held.push_back({step, rng.integer(1, 6), now_s + eighths(rng, 0, 40)});
        state.add(held.back().id, held.back().slots, held.back().end_s);
      }
      long claimed = 0;
      for (const Held& session : held) claimed += session.slots;
      ASSERT_EQ(state.unclaimed_slots(), slots - claimed);
      ASSERT_EQ(state.sessions(), held.size());
      std::vector<double> costs(24, 1);
      state.add_waits(now_s, costs);
      for (long needed = 1; needed <= 24; ++needed) {
        const double expected = wait_by_definition(slots, held, now_s, needed);
        ASSERT_EQ(state.wait_s(now_s, needed), expected) << "round " << round << " needed " << needed;
        ASSERT_EQ(costs[static_cast<std::size_t>(needed - 1)], 1 + expected) << "round " << round << " needed " << needed;
        waits += expected > 0 && expected < kInfinity;
      }
    }
  }
  EXPECT_GT(waits, effort(666, 10000));
}

// Given servers with sessions; expects WS-RR to take the path with the least sum of scaled inference time and waits, of all
// paths.
TEST(WsRr, CheapestOfAllPathsWithWaits) {
  Rng rng(4, "ws-rr");
  int waited = 0;
  for (int round = 0; round < effort(200, 2000); ++round) {
    const Instance instance = random_instance(rng, 6, 6);
    const Placement placement = random_placement(instance, rng);
    const auto slots = random_slots(instance, rng);
    const RouteGraph graph(instance, placement, slots);
    WsRr ws_rr(graph, slots);
    std::vector<std::vector<Held>> held(instance.servers.size());
    double now_s = 0;
    for (std::int64_t request = 0; request < 8; ++request) {
      now_s += eighths(rng, 0, 16);
      const double scale = eighths(rng, 1, 16);
      const auto wait = [&](int server, int blocks) {
        const auto j = static_cast<std::size_t>(server);
        return wait_by_definition(slots[j], held[j], now_s, blocks);
      };
      const auto route = ws_rr.route(now_s, scale);
      expect_cheapest(route,
                      cheapest_by_enumeration(instance, placement,
                                              [&](int server, int blocks) {
                                                return inference_s(instance, server, blocks) * scale + wait(server, blocks);
                                              }),
                      round);
      if (!route) break;
      double longest_wait_s = 0;
      for (std::size_t hop = 0; hop < route->servers.size(); ++hop) {
        longest_wait_s = std::max(longest_wait_s, wait(route->servers[hop], route->blocks[hop]));
      }
      ASSERT_EQ(ws_rr.wait_s(*route, now_s), longest_wait_s);
      waited += longest_wait_s > 0;
      const double end_s = now_s + longest_wait_s + route->time_s * scale;
      ws_rr.add(request, *route, end_s);
      for (std::size_t hop = 0; hop < route->servers.size(); ++hop) {
        held[static_cast<std::size_t>(route->servers[hop])].push_back({request, route->blocks[hop], end_s});
      }
    }
  }
  EXPECT_GT(waited, effort(33, 500));
}

// Given a session that was added and removed; expects the earlier state.
TEST(WsRr, RemovedSessionsLeaveNothing) {
  Instance instance{.blocks = 4, .block_gb = 1, .cache_gb = 1, .servers = {{"s", 8, 1, 1, 1, {}}}};
  const Placement placement{{1, 4}};
  const std::vector<long> slots{4};
  const RouteGraph graph(instance, placement, slots);
  WsRr ws_rr(graph, slots);
  const auto route = ws_rr.route(0);
  ASSERT_TRUE(route);
  EXPECT_EQ(route->cost_s, 5);
  ws_rr.add(7, *route, 5);
  EXPECT_EQ(ws_rr.route(2)->cost_s, 3 + 5);
  ws_rr.remove(7, *route, 5);
  EXPECT_EQ(ws_rr.route(2), route);
}

// Given random pings and free slots; expects PETALS to take the path with the least weight: half a ping and an overhead a hop,
// blocks by their time per token, a penalty for servers without slots for all their blocks, half a ping back. Without pings, a
// hop costs the server's communication time per token, and the way back nothing.
TEST(Petals, RoutesByItsWeights) {
  Rng rng(5, "petals routes");
  for (int round = 0; round < effort(600, 6000); ++round) {
    Instance instance = random_instance(rng, 7, 7);
    const Placement placement = random_placement(instance, rng);
    const auto slots = random_slots(instance, rng);
    std::vector<long> free;
    for (const long all : slots) free.push_back(rng.integer(0, all));
    PetalsOptions options;
    options.output_tokens = 4;
    options.hop_overhead_s = 0.125;
    options.no_room_penalty_s = eighths(rng, 0, 16);
    const bool has_pings = round % 2 == 0, by_tokens = round % 3 == 0;
    PetalsPings pings;
    for (std::size_t j = 0; j < instance.servers.size(); ++j) {
      pings.client_s.push_back(eighths(rng, 0, 16));
      pings.server_s.emplace_back();
      for (std::size_t to = 0; to < instance.servers.size(); ++to) pings.server_s[j].push_back(eighths(rng, 0, 16));
      if (by_tokens) instance.servers[j].token_times = TokenTimes{7, 7, eighths(rng, 1, 16), 7, eighths(rng, 0, 16)};
    }
    if (has_pings) options.pings = pings;
    const auto weight = [&](const std::vector<int>& servers, const std::vector<int>& blocks) {
      double cost = 0;
      for (std::size_t hop = 0; hop < servers.size(); ++hop) {
        const auto j = static_cast<std::size_t>(servers[hop]);
        const Server& server = instance.servers[j];
        if (blocks[hop] > slots[j]) return kInfinity;
        if (has_pings) {
          cost += 0.125 + (hop == 0 ? pings.client_s[j] : pings.server_s[static_cast<std::size_t>(servers[hop - 1])][j]) / 2;
        } else {
          cost += by_tokens ? server.token_times->communication_s_per_token : server.communication_s / 4;
        }
        cost += (by_tokens ? server.token_times->block_decode_s_per_token : server.block_s / 4) * blocks[hop];
        if (free[j] < placement[j].blocks) cost += options.no_room_penalty_s;
      }
      return cost + (has_pings ? pings.client_s[static_cast<std::size_t>(servers.back())] / 2 : 0);
    };
    const RouteGraph graph(instance, placement, slots);
    const PetalsRouting routing(instance, graph, options);
    const auto route = routing.route(free);
    expect_cheapest(route, cheapest_path(instance, placement, weight), round);
    if (route) {
      ASSERT_EQ(route->time_s, service_time_s(instance, route->servers, route->blocks));
    }
  }
}

}  // namespace
}  // namespace windlass::chain
