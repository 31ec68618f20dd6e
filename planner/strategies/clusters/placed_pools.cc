// See placed_pools.h.
#include "planner/strategies/clusters/placed_pools.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

namespace windlass::hetero {

std::vector<std::string> gpu_names(const GpuCluster& cluster, std::vector<int> gpus) {
  std::sort(gpus.begin(), gpus.end());
  std::vector<std::string> names;
  int first = 0;  // GPU of the node
  std::size_t at = 0;
  for (const ClusterNode& node : cluster.nodes) {
    std::string indices;
    while (at < gpus.size() && gpus[at] < first + node.gpus) {
      std::size_t last = at;
      while (last + 1 < gpus.size() && gpus[last + 1] == gpus[last] + 1 && gpus[last + 1] < first + node.gpus) ++last;
      indices += indices.empty() ? "" : ",";
      indices += last == at ? fmt::format("{}", gpus[at] - first) : fmt::format("{}-{}", gpus[at] - first, gpus[last] - first);
      at = last + 1;
    }
    if (!indices.empty()) names.push_back(fmt::format("{}[{}]", node.name, indices));
    first += node.gpus;
  }
  return names;
}

std::vector<int> gpus_of(const Group& group) {
  std::vector<int> gpus;
  for (const Stage& stage : group.stages) gpus.insert(gpus.end(), stage.gpus.begin(), stage.gpus.end());
  std::sort(gpus.begin(), gpus.end());
  return gpus;
}

std::vector<PlacedPool> pools_of(const GpuCluster& cluster, const ClusterPlan& plan) {
  const std::vector<int> node_of = cluster.node_of_each_gpu();
  std::vector<PlacedPool> pools;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const Group& group = plan.groups[g];
    PlacedPool pool;
    pool.role = group.role;
    pool.gpus = group.gpus();
    pool.tensor_parallel = group.tensor_parallel();
    pool.stages = static_cast<int>(group.stages.size());
    for (const int gpu : gpus_of(group)) {
      const auto node = static_cast<std::size_t>(node_of[static_cast<std::size_t>(gpu)]);
      const std::string& name = cluster.nodes[node].accelerator.name;
      auto& counts = pool.gpus_by_accelerator;
      const auto at = std::find_if(counts.begin(), counts.end(), [&](const auto& count) { return count.first == name; });
      if (at == counts.end()) {
        counts.emplace_back(name, 1);
      } else {
        ++at->second;
      }
    }
    const auto key = [](const PlacedPool& of) {
      return std::tie(of.role, of.gpus_by_accelerator, of.tensor_parallel, of.stages);
    };
    auto at = std::find_if(pools.begin(), pools.end(), [&](const PlacedPool& other) { return key(other) == key(pool); });
    if (at == pools.end()) at = pools.insert(at, std::move(pool));
    at->groups.push_back(static_cast<int>(g));
  }
  return pools;
}

std::string accelerators_text(const PlacedPool& pool) {
  std::string text;
  for (const auto& [name, count] : pool.gpus_by_accelerator) text += (text.empty() ? "" : " + ") + name;
  return text;
}

std::string describe(const GpuCluster& cluster, const ClusterPlan& plan) {
  std::string text;
  for (const PlacedPool& pool : pools_of(cluster, plan)) {
    std::string group;
    if (pool.gpus_by_accelerator.size() == 1) {
      group = fmt::format("{}-{}", pool.gpus_by_accelerator.front().first, pool.gpus);
    } else {
      for (const auto& [name, count] : pool.gpus_by_accelerator) {
        group += fmt::format("{}{} {}", group.empty() ? "(" : ", ", count, name);
      }
      group += ")";
    }
    if (!text.empty()) text += " + ";
    if (pool.role != dispatch::Role::kUnified) text += fmt::format("{} ", dispatch::to_string(pool.role));
    text += fmt::format("{} x {}", pool.groups.size(), group);
    if (pool.stages > 1) text += fmt::format(" (PP {})", pool.stages);
  }
  return text;
}

}  // namespace windlass::hetero
