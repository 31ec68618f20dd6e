// Places blocks and routes requests as PETALS does; see petals.h.
#include "planner/chain/petals.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "planner/chain/lowest_window.h"

namespace windlass::chain {

int petals_blocks(const Instance& instance, int server, const PetalsOptions& options) {
  const double memory_gb = instance.servers[static_cast<std::size_t>(server)].memory_gb - options.reserved_gb;
  const double blocks = std::floor(memory_gb / (instance.block_gb + options.cache_sessions_per_block * instance.cache_gb));
  return static_cast<int>(std::clamp(blocks, 0.0, static_cast<double>(instance.blocks)));
}

Placement petals_placement(const Instance& instance, const PetalsOptions& options) {
  const auto servers = instance.servers.size();
  assert(options.blocks.empty() || options.blocks.size() == servers);
  assert(options.block_rates.empty() || options.block_rates.size() == servers);
  std::vector<int> order = options.join_order;
  std::vector<bool> joins(servers, false);
  for (const int server : order) {
    assert(!joins[static_cast<std::size_t>(server)]);
    joins[static_cast<std::size_t>(server)] = true;
  }
  for (std::size_t j = 0; j < servers; ++j) {
    if (!joins[j]) order.push_back(static_cast<int>(j));
  }

  Placement placement(servers);
  std::vector<double> throughput(static_cast<std::size_t>(instance.blocks), 0);
  for (const int server : order) {
    const auto j = static_cast<std::size_t>(server);
    BlockRange& range = placement[j];
    range.blocks = options.blocks.empty() ? petals_blocks(instance, server, options) : options.blocks[j];
    if (range.blocks == 0) continue;
    range.first = 1 + lowest_window(throughput, range.blocks);
    const double mean_blocks_used = (range.blocks + 1) / 2.0;
    const double own = options.block_rates.empty() ? 1 / (instance.servers[j].block_s * mean_blocks_used)
                                                   : options.block_rates[j] / mean_blocks_used;
    for (int block = range.first; block <= range.last(); ++block) throughput[static_cast<std::size_t>(block - 1)] += own;
  }
  return placement;
}

std::vector<long> petals_cache_slots(const Instance& instance, const Placement& placement, const PetalsOptions& options) {
  std::vector<long> slots = cache_slots(instance, placement);
  if (!options.only_cache_share) return slots;
  for (std::size_t j = 0; j < placement.size(); ++j) {
    slots[j] = std::min(slots[j], static_cast<long>(std::floor(options.cache_sessions_per_block * placement[j].blocks)));
  }
  return slots;
}

PetalsRouting::PetalsRouting(const Instance& instance, const RouteGraph& graph, const PetalsOptions& options)
    : graph_(graph), no_room_penalty_s_(options.no_room_penalty_s) {
  assert(options.output_tokens > 0);
  const auto servers = instance.servers.size();
  assert(!options.pings || (options.pings->client_s.size() == servers && options.pings->server_s.size() == servers));
  std::vector<double> own_hops_s;  // without pings: the same from everywhere
  for (std::size_t j = 0; j < servers; ++j) {
    const Server& server = instance.servers[j];
    block_s_.push_back(server.token_times ? server.token_times->block_decode_s_per_token
                                          : server.block_s / options.output_tokens);
    own_hops_s.push_back(server.token_times ? server.token_times->communication_s_per_token
                                            : server.communication_s / options.output_tokens);
    way_back_s_.push_back(options.pings ? options.pings->client_s[j] / 2 : 0);
    if (graph.blocks_on(static_cast<int>(j)) > 0) by_last_block_.push_back(static_cast<int>(j));
  }
  for (std::size_t from = 0; from <= servers; ++from) {
    if (!options.pings) {
      hops_s_.push_back(own_hops_s);
      continue;
    }
    std::vector<double> hops_s = from < servers ? options.pings->server_s[from] : options.pings->client_s;
    assert(hops_s.size() == servers);
    for (double& hop_s : hops_s) hop_s = hop_s / 2 + options.hop_overhead_s;
    hops_s_.push_back(std::move(hops_s));
  }
  std::stable_sort(by_last_block_.begin(), by_last_block_.end(),
                   [&](int a, int b) { return graph.range_on(a).last() > graph.range_on(b).last(); });
}

std::optional<Route> PetalsRouting::route(std::span<const long> free_slots) const {
  assert(static_cast<int>(free_slots.size()) == graph_.servers());
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto client = static_cast<std::size_t>(graph_.servers());
  std::vector<double> cost_from_s(client + 1, kInfinity);  // from the end of a server's blocks
  std::vector<int> next(client + 1, -1);
  // A path leaves every server after its last block, so only later servers can follow, and they are known first.
  const auto choose_next = [&](std::size_t from, int next_block) {
    for (int server = 0; server < graph_.servers(); ++server) {
      const BlockRange& range = graph_.range_on(server);
      if (!range.holds(next_block)) continue;
      const int blocks = range.last() - next_block + 1;
      if (!std::isfinite(graph_.times_s()[graph_.link(server, blocks)])) continue;
      const auto j = static_cast<std::size_t>(server);
      const double penalty_s = free_slots[j] < range.blocks ? no_room_penalty_s_ : 0;
      const double cost_s = hops_s_[from][j] + block_s_[j] * blocks + penalty_s + cost_from_s[j];
      if (cost_s < cost_from_s[from]) {
        cost_from_s[from] = cost_s;
        next[from] = server;
      }
    }
  };
  const int all_blocks = graph_.blocks();
  for (const int server : by_last_block_) {
    const auto j = static_cast<std::size_t>(server);
    if (graph_.range_on(server).last() == all_blocks) {
      cost_from_s[j] = way_back_s_[j];
    } else {
      choose_next(j, graph_.range_on(server).last() + 1);
    }
  }
  choose_next(client, 1);
  if (cost_from_s[client] == kInfinity) return std::nullopt;
  Route route;
  route.cost_s = cost_from_s[client];
  int next_block = 1;
  for (int server = next[client]; server >= 0; server = next[static_cast<std::size_t>(server)]) {
    const int last = graph_.range_on(server).last();
    route.servers.push_back(server);
    route.blocks.push_back(last - next_block + 1);
    route.time_s += graph_.times_s()[graph_.link(server, route.blocks.back())];
    next_block = last + 1;
  }
  return route;
}

}  // namespace windlass::chain
