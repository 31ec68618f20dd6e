// Small random instances and placements for comparing integer programs with enumeration.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "planner/base/rng.h"
#include "planner/chain/placement.h"

namespace windlass::chain {

struct InstanceShape {
  int max_servers = 4;
  int max_blocks = 5;
  double max_memory_gb = 4;  // blocks are 1 GB
};

inline Server random_server(Rng& rng, int index, const InstanceShape& shape) {
  Server server;
  server.name = "s" + std::to_string(index);
  server.memory_gb = rng.uniform(1.1, shape.max_memory_gb);
  // Two orders of magnitude: if all chains were about equally fast, any allocation would do.
  server.communication_s = std::exp(rng.uniform(-4, 1));
  server.block_s = std::exp(rng.uniform(-4, 1));
  server.load_gb_per_s = rng.uniform(0.2, 2);
  return server;
}

inline Instance random_instance(Rng& rng, const InstanceShape& shape = {}) {
  Instance instance;
  instance.blocks = static_cast<int>(rng.integer(2, shape.max_blocks));
  instance.block_gb = 1;
  instance.cache_gb = rng.uniform(0.1, 0.5);
  instance.arrival_rate_per_s = rng.uniform(0.05, 1.5);
  instance.max_load = rng.uniform(0.5, 0.9);
  const auto servers = rng.integer(1, shape.max_servers);
  for (int j = 0; j < servers; ++j) instance.servers.push_back(random_server(rng, j, shape));
  return instance;
}

// The largest number of blocks that fit without caches.
inline int max_blocks(const Instance& instance, std::size_t server) {
  const double fit = std::floor(instance.servers[server].memory_gb / instance.block_gb);
  return static_cast<int>(std::min(fit, static_cast<double>(instance.blocks)));
}

inline Placement random_placement(Rng& rng, const Instance& instance) {
  Placement placement(instance.servers.size());
  for (std::size_t j = 0; j < placement.size(); ++j) {
    const auto blocks = static_cast<int>(rng.integer(0, max_blocks(instance, j)));
    if (blocks == 0) continue;
    placement[j] = BlockRange{static_cast<int>(rng.integer(1, instance.blocks - blocks + 1)), blocks};
  }
  return placement;
}

// Calls visit(placement) for every placement in which server j holds between `fewest` and max_blocks(j) blocks, or as many as
// fit.
template <class Visit>
void each_placement(const Instance& instance, int fewest, const Visit& visit) {
  Placement placement(instance.servers.size());
  const auto place = [&](const auto& self, std::size_t j) -> void {
    if (j == placement.size()) return visit(placement);
    const int most = max_blocks(instance, j);
    for (int blocks = std::min(fewest, most); blocks <= most; ++blocks) {
      const int last_first = blocks == 0 ? 1 : instance.blocks - blocks + 1;
      for (int first = 1; first <= last_first; ++first) {
        placement[j] = BlockRange{first, blocks};
        self(self, j + 1);
      }
    }
  };
  place(place, 0);
}

}  // namespace windlass::chain
