// Places blocks and routes requests as PETALS does; see petals.h.
#include "planner/chain/petals.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>

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
  std::vector<double> throughput_per_s(static_cast<std::size_t>(instance.blocks), 0);
  for (const int server : order) {
    const auto j = static_cast<std::size_t>(server);
    BlockRange& range = placement[j];
    range.blocks = options.blocks.empty() ? petals_blocks(instance, server, options) : options.blocks[j];
    if (range.blocks == 0) continue;
    range.first = 1 + lowest_window(throughput_per_s, range.blocks);
    const double mean_blocks_used = (range.blocks + 1) / 2.0;
    const double own_per_s = 1 / (instance.servers[j].block_s * mean_blocks_used);
    for (int block = range.first; block <= range.last(); ++block)
      throughput_per_s[static_cast<std::size_t>(block - 1)] += own_per_s;
  }
  return placement;
}

std::vector<long> petals_cache_slots(const Instance& instance, const Placement& placement, const PetalsOptions& options) {
  std::vector<long> slots = cache_slots(instance, placement);
  if (!options.only_cache_share || !options.blocks.empty()) return slots;
  for (std::size_t j = 0; j < placement.size(); ++j) {
    slots[j] = std::min(slots[j], static_cast<long>(std::floor(options.cache_sessions_per_block * placement[j].blocks)));
  }
  return slots;
}

PetalsRouting::PetalsRouting(const Instance& instance, const RouteGraph& graph, const PetalsOptions& options)
    : graph_(graph), no_room_penalty_s_(options.no_room_penalty_s), weights_s_(graph.links()) {
  assert(options.output_tokens > 0);
  for (int server = 0; server < graph.servers(); ++server) {
    const Server& properties = instance.servers[static_cast<std::size_t>(server)];
    for (int blocks = 1; blocks <= graph.blocks_on(server); ++blocks) {
      const auto link = graph.link(server, blocks);
      const double time_s = options.communication_weight * properties.communication_s + properties.block_s * blocks;
      const bool exists = std::isfinite(graph.times_s()[link]);
      weights_s_[link] = exists ? time_s / options.output_tokens : std::numeric_limits<double>::infinity();
    }
  }
}

std::optional<Route> PetalsRouting::route(std::span<const long> free_slots) const {
  assert(static_cast<int>(free_slots.size()) == graph_.servers());
  std::vector<double> weights_s = weights_s_;
  for (int server = 0; server < graph_.servers(); ++server) {
    const int held = graph_.blocks_on(server);
    if (free_slots[static_cast<std::size_t>(server)] >= held) continue;
    for (int blocks = 1; blocks <= held; ++blocks) weights_s[graph_.link(server, blocks)] += no_room_penalty_s_;
  }
  return graph_.cheapest(weights_s);
}

}  // namespace windlass::chain
