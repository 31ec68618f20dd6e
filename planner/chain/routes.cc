// Builds the graph of routes and finds the cheapest one; see routes.h.
#include "planner/chain/routes.h"

#include <cassert>
#include <limits>

namespace windlass::chain {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

RouteGraph::RouteGraph(const Instance& instance, const Placement& placement, std::span<const long> slots,
                       std::span<const double> communication_s)
    : blocks_(instance.blocks), placement_(placement), servers_with_(static_cast<std::size_t>(instance.blocks)) {
  assert(placement.size() == instance.servers.size());
  assert(slots.empty() || slots.size() == placement.size());
  assert(communication_s.empty() || communication_s.size() == placement.size());
  for (std::size_t j = 0; j < placement.size(); ++j) {
    const BlockRange& range = placement[j];
    const Server& server = instance.servers[j];
    first_link_.push_back(times_s_.size());
    if (range.blocks == 0) continue;
    assert(range.first >= 1 && range.blocks > 0 && range.last() <= instance.blocks);
    for (int blocks = 1; blocks <= range.blocks; ++blocks) {
      const double communication = communication_s.empty() ? server.communication_s : communication_s[j];
      const bool fits = slots.empty() || blocks <= slots[j];
      times_s_.push_back(fits ? communication + server.block_s * blocks : kInfinity);
    }
    for (int block = range.first; block <= range.last(); ++block) {
      servers_with_[static_cast<std::size_t>(block - 1)].push_back(static_cast<int>(j));
    }
  }
}

std::optional<Route> RouteGraph::cheapest(std::span<const double> costs_s) const {
  assert(costs_s.size() == links());
  const auto nodes = static_cast<std::size_t>(blocks_) + 1;
  std::vector<double> cost_from(nodes, kInfinity);  // by block - 1
  std::vector<int> next_server(nodes, -1);
  cost_from[nodes - 1] = 0;
  for (int block = blocks_; block >= 1; --block) {
    const auto node = static_cast<std::size_t>(block - 1);
    for (const int server : servers_with_[node]) {
      const int last = placement_[static_cast<std::size_t>(server)].last();
      const double cost = costs_s[link(server, last - block + 1)] + cost_from[static_cast<std::size_t>(last)];
      if (cost < cost_from[node]) {
        cost_from[node] = cost;
        next_server[node] = server;
      }
    }
  }
  if (cost_from[0] == kInfinity) return std::nullopt;
  Route route;
  for (int block = 1; block <= blocks_;) {
    const int server = next_server[static_cast<std::size_t>(block - 1)];
    const int last = placement_[static_cast<std::size_t>(server)].last();
    route.servers.push_back(server);
    route.blocks.push_back(last - block + 1);
    route.time_s += times_s_[link(server, last - block + 1)];
    block = last + 1;
  }
  route.cost_s = cost_from[0];
  return route;
}

std::optional<Route> shortest_route(const Instance& instance, const Placement& placement, const LinkPenalty& penalty_s) {
  const RouteGraph graph(instance, placement);
  if (!penalty_s) return graph.cheapest(graph.times_s());
  std::vector<double> costs_s = graph.times_s();
  for (int server = 0; server < graph.servers(); ++server) {
    for (int blocks = 1; blocks <= graph.blocks_on(server); ++blocks) {
      costs_s[graph.link(server, blocks)] += penalty_s(server, blocks);
    }
  }
  return graph.cheapest(costs_s);
}

}  // namespace windlass::chain
