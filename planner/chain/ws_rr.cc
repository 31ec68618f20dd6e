// Routes requests by WS-RR; see ws_rr.h.
#include "planner/chain/ws_rr.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

namespace windlass::chain {

WsRr::WsRr(const RouteGraph& graph, std::span<const long> slots) : graph_(graph), states_(slots.begin(), slots.end()) {
  assert(static_cast<int>(slots.size()) == graph.servers());
}

std::optional<Route> WsRr::route(double now_s, double scale) const {
  std::vector<double> costs_s = graph_.times_s();
  for (double& cost_s : costs_s) cost_s *= scale;
  for (int server = 0; server < graph_.servers(); ++server) {
    const int blocks = graph_.blocks_on(server);
    if (blocks == 0) continue;
    state(server).add_waits(now_s, std::span(costs_s).subspan(graph_.link(server, 1), static_cast<std::size_t>(blocks)));
  }
  return graph_.cheapest(costs_s);
}

double WsRr::wait_s(const Route& route, double now_s) const {
  double wait_s = 0;
  for (std::size_t hop = 0; hop < route.servers.size(); ++hop) {
    wait_s = std::max(wait_s, state(route.servers[hop]).wait_s(now_s, route.blocks[hop]));
  }
  return wait_s;
}

void WsRr::add(std::int64_t id, const Route& route, double end_s) {
  for (std::size_t hop = 0; hop < route.servers.size(); ++hop) {
    states_[static_cast<std::size_t>(route.servers[hop])].add(id, route.blocks[hop], end_s);
  }
}

void WsRr::remove(std::int64_t id, const Route& route, double end_s) {
  for (const int server : route.servers) states_[static_cast<std::size_t>(server)].remove(id, end_s);
}

}  // namespace windlass::chain
