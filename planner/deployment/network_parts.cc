// Finds the connected parts of a network; see network_parts.h.
#include "planner/deployment/network_parts.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace windlass::hetero {
namespace {

constexpr std::size_t kNamed = 8;

bool there_is(const Link& link) { return link.bytes_per_s > 0; }

}  // namespace

std::vector<std::vector<int>> network_parts(const GpuCluster& cluster) {
  const std::size_t nodes = cluster.nodes.size();
  std::vector<std::vector<int>> stated(nodes);  // nodes that a node has its own link to, or explicitly no link
  for (const auto& [pair, link] : cluster.between) {
    stated[static_cast<std::size_t>(pair.first)].push_back(pair.second);
    stated[static_cast<std::size_t>(pair.second)].push_back(pair.first);
  }
  std::vector<int> left(nodes);  // nodes not yet in a part, ascending
  std::iota(left.begin(), left.end(), 0);
  std::vector<std::vector<int>> parts;
  while (!left.empty()) {
    std::vector<int>& part = parts.emplace_back(1, left.front());
    left.erase(left.begin());
    for (std::size_t next = 0; next < part.size() && !left.empty(); ++next) {
      const int from = part[next];
      const auto reached = [&](int to) { return there_is(cluster.link(from, to)); };
      if (there_is(cluster.default_link)) {
        const auto end = std::stable_partition(left.begin(), left.end(), [&](int to) { return !reached(to); });
        part.insert(part.end(), end, left.end());
        left.erase(end, left.end());
        continue;
      }
      for (const int to : stated[static_cast<std::size_t>(from)]) {
        const auto at = std::lower_bound(left.begin(), left.end(), to);
        if (at == left.end() || *at != to || !reached(to)) continue;
        part.push_back(to);
        left.erase(at);
      }
    }
    std::sort(part.begin(), part.end());
  }
  return parts;
}

double memory_bytes(const GpuCluster& cluster, const std::vector<int>& nodes) {
  double bytes = 0;
  for (const int node : nodes) {
    const ClusterNode& at = cluster.nodes[static_cast<std::size_t>(node)];
    bytes += at.gpus * at.accelerator.memory_bytes;
  }
  return bytes;
}

std::string names_text(const GpuCluster& cluster, const std::vector<int>& nodes) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, nodes.size()); ++i) {
    text += (i == 0 ? "" : ", ") + cluster.nodes[static_cast<std::size_t>(nodes[i])].name;
  }
  if (nodes.size() > kNamed) text += fmt::format(" and {} more", nodes.size() - kNamed);
  return text;
}

}  // namespace windlass::hetero
