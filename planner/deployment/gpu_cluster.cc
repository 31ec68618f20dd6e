// Validates clusters and finds links and nodes; see gpu_cluster.h.
#include "planner/deployment/gpu_cluster.h"

#include <algorithm>
#include <cassert>
#include <set>

#include <fmt/format.h>

namespace windlass::hetero {

int GpuCluster::gpus() const {
  int sum = 0;
  for (const ClusterNode& node : nodes) sum += node.gpus;
  return sum;
}

int GpuCluster::node_of(int gpu) const {
  int first = 0;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    first += nodes[node].gpus;
    if (gpu < first) return static_cast<int>(node);
  }
  assert(false);
  return -1;
}

std::vector<int> GpuCluster::node_of_each_gpu() const {
  std::vector<int> node_of;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    node_of.insert(node_of.end(), static_cast<std::size_t>(nodes[node].gpus), static_cast<int>(node));
  }
  return node_of;
}

const Link& GpuCluster::link(int a, int b) const {
  if (a == b) return nodes[static_cast<std::size_t>(a)].within;
  const auto found = between.find(std::minmax(a, b));
  return found == between.end() ? default_link : found->second;
}

double GpuCluster::cost_per_hour() const {
  double sum = 0;
  for (const ClusterNode& node : nodes) sum += node.gpus * node.accelerator.price_per_hour;
  return sum;
}

double GpuCluster::power_watts() const {
  double sum = 0;
  for (const ClusterNode& node : nodes) sum += node.gpus * node.accelerator.power_watts;
  return sum;
}

Result<void> validate(const GpuCluster& cluster) {
  const auto wrong = [](std::string what) { return Error{ErrorCode::kInvalidArgument, std::move(what)}; };
  if (cluster.nodes.empty()) return wrong("cluster.nodes: must be at least one (got none)");
  const auto checked = [&](const std::string& field, const Link& link) -> Result<void> {
    if (!(link.bytes_per_s >= 0))
      return wrong(fmt::format("{}: must be 0 (no link) or more bytes/s (got {})", field, link.bytes_per_s));
    if (!(link.latency_s >= 0)) return wrong(fmt::format("{}: latency: must be at least 0 s (got {})", field, link.latency_s));
    return {};
  };
  std::set<std::string> names;
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    const ClusterNode& node = cluster.nodes[i];
    const std::string field = fmt::format("cluster.nodes[{}]", i);
    if (!names.insert(node.name).second)
      return wrong(fmt::format("{}.name: must be unique (got '{}' twice)", field, node.name));
    if (node.gpus < 1) return wrong(fmt::format("{}.gpus: must be at least 1 (got {})", field, node.gpus));
    WINDLASS_RETURN_IF_ERROR(checked(field, node.within));
    if (auto valid = planner::validate(node.accelerator); !valid.ok()) return valid.error().within(field);
  }
  WINDLASS_RETURN_IF_ERROR(checked("cluster.links.default", cluster.default_link));
  const int nodes = static_cast<int>(cluster.nodes.size());
  for (const auto& [pair, link] : cluster.between) {
    const std::string field = fmt::format("cluster.links.between of nodes {} and {}", pair.first, pair.second);
    if (pair.first < 0 || pair.second >= nodes || pair.first >= pair.second) {
      return wrong(fmt::format("{}: must be two of the {} nodes, the smaller index first", field, nodes));
    }
    WINDLASS_RETURN_IF_ERROR(checked(field, link));
  }
  return {};
}

}  // namespace windlass::hetero
