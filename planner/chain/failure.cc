// Computes what the surviving servers serve; see failure.h.
#include "planner/chain/failure.h"

#include <cassert>
#include <string_view>
#include <unordered_map>

namespace windlass::chain {

Composition surviving(const Instance& instance, Placement placement, const std::vector<int>& failed) {
  assert(placement.size() == instance.servers.size());
  for (const int server : failed) placement.at(static_cast<std::size_t>(server)) = BlockRange{1, 0};
  return compose_on(instance, std::move(placement));
}

Placement carried_over(const Instance& previous, const Placement& placement, const Instance& next) {
  assert(placement.size() == previous.servers.size());
  std::unordered_map<std::string_view, std::size_t> by_name;
  for (std::size_t j = 0; j < previous.servers.size(); ++j) by_name.emplace(previous.servers[j].name, j);
  Placement carried(next.servers.size());
  for (std::size_t j = 0; j < next.servers.size(); ++j) {
    const auto known = by_name.find(next.servers[j].name);
    if (known == by_name.end()) continue;
    const BlockRange& range = placement[known->second];
    if (range.blocks > 0 && next.block_gb * range.blocks <= next.servers[j].memory_gb) carried[j] = range;
  }
  return carried;
}

}  // namespace windlass::chain
