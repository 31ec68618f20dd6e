// Small seeded instances for the tests of server chains.
#pragma once

#include <string>

#include "planner/base/rng.h"
#include "planner/chain/instance.h"

namespace windlass::chain {

struct InstanceShape {
  int max_servers = 6;
  int max_blocks = 6;
  bool equal_memories = false;
  double arrival_rate_per_s = 0;  // 0: random
};

inline Instance random_instance(Rng& rng, const InstanceShape& shape = {}) {
  Instance instance;
  instance.blocks = static_cast<int>(rng.integer(1, shape.max_blocks));
  instance.block_gb = rng.uniform(0.5, 2);
  instance.cache_gb = rng.uniform(0.05, 0.5);
  instance.arrival_rate_per_s = shape.arrival_rate_per_s > 0 ? shape.arrival_rate_per_s : rng.uniform(0.05, 5);
  instance.max_load = rng.uniform(0.3, 0.95);
  const auto servers = rng.integer(1, shape.max_servers);
  const double memory_gb = rng.uniform(1, 10);
  for (std::int64_t j = 0; j < servers; ++j) {
    Server server;
    server.name = "s" + std::to_string(j);
    server.memory_gb = shape.equal_memories ? memory_gb : rng.uniform(0.5, 10);
    server.communication_s = rng.uniform(0.01, 0.5);
    server.block_s = rng.uniform(0.01, 0.3);
    instance.servers.push_back(server);
  }
  return instance;
}

}  // namespace windlass::chain
