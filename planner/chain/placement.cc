// Computes cache slots, service times and coverage of a placement; see placement.h.
#include "planner/chain/placement.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace windlass::chain {

long cache_slots(const Instance& instance, int server, int blocks) {
  if (blocks <= 0) return 0;
  const double left_gb = instance.servers[static_cast<std::size_t>(server)].memory_gb - instance.block_gb * blocks;
  return std::max(0L, static_cast<long>(std::floor(left_gb / instance.cache_gb)));
}

std::vector<long> cache_slots(const Instance& instance, const Placement& placement) {
  std::vector<long> slots;
  for (std::size_t j = 0; j < placement.size(); ++j) {
    slots.push_back(cache_slots(instance, static_cast<int>(j), placement[j].blocks));
  }
  return slots;
}

double service_time_s(const Instance& instance, const std::vector<int>& servers, const std::vector<int>& blocks) {
  assert(servers.size() == blocks.size());
  double time_s = 0;
  for (std::size_t hop = 0; hop < servers.size(); ++hop) {
    const Server& server = instance.servers[static_cast<std::size_t>(servers[hop])];
    time_s += server.communication_s + server.block_s * blocks[hop];
  }
  return time_s;
}

bool covers_all_blocks(const Instance& instance, const Placement& placement) {
  std::vector<bool> covered(static_cast<std::size_t>(instance.blocks) + 1, false);
  for (const BlockRange& range : placement) {
    for (int block = range.first; block <= range.last(); ++block) covered[static_cast<std::size_t>(block)] = true;
  }
  return std::all_of(covered.begin() + 1, covered.end(), [](bool is) { return is; });
}

}  // namespace windlass::chain
