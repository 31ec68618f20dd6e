// LinkTable looks up the links between a cluster's nodes in an array, for searches that need millions of lookups. Equal links
// have equal numbers. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/deployment/gpu_cluster.h"

namespace windlass::hetero {

class LinkTable {
 public:
  explicit LinkTable(const GpuCluster& cluster) : nodes_(cluster.nodes.size()), links_{cluster.default_link} {
    id_.assign(nodes_ * nodes_, 0);
    for (std::size_t node = 0; node < nodes_; ++node) id_[node * nodes_ + node] = number(cluster.nodes[node].within);
    for (const auto& [pair, link] : cluster.between) {
      const auto a = static_cast<std::size_t>(pair.first), b = static_cast<std::size_t>(pair.second);
      id_[a * nodes_ + b] = id_[b * nodes_ + a] = number(link);
    }
  }

  // As GpuCluster::link().
  [[nodiscard]] const Link& of(int a, int b) const { return links_[id(a, b)]; }
  [[nodiscard]] std::uint32_t id(int a, int b) const {
    return id_[static_cast<std::size_t>(a) * nodes_ + static_cast<std::size_t>(b)];
  }
  // Every distinct link of the cluster, once.
  [[nodiscard]] const std::vector<Link>& links() const { return links_; }

 private:
  std::uint32_t number(const Link& link) {
    const auto found = std::find(links_.begin(), links_.end(), link);
    const auto index = static_cast<std::uint32_t>(found - links_.begin());
    if (found == links_.end()) links_.push_back(link);
    return index;
  }

  std::size_t nodes_;
  std::vector<Link> links_;
  std::vector<std::uint32_t> id_;
};

}  // namespace windlass::hetero
