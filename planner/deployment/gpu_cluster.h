// GpuCluster: machines with GPUs and the network between them; the input of heterogeneous placement.
//
// GPUs are numbered 0 .. gpus() - 1, in node order; the GPUs of a node are consecutive. Plain data; pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/accelerator.h"

namespace windlass::hetero {

// From one GPU to another, in one direction.
struct Link {
  double bytes_per_s = 0;  // 0: no link
  double latency_s = 0;    // per message

  bool operator==(const Link&) const = default;
};

struct ClusterNode {
  std::string name;
  planner::AcceleratorSpec accelerator;  // of all its GPUs; price and power are per GPU
  int gpus = 1;
  Link within;  // between two of its GPUs
};

class GpuCluster {
 public:
  std::vector<ClusterNode> nodes;
  Link default_link;                            // between GPUs of two nodes
  std::map<std::pair<int, int>, Link> between;  // overrides default_link for two nodes; smaller index first

  [[nodiscard]] int gpus() const;
  // REQUIRES: 0 <= gpu < gpus(). O(nodes); use node_of_each_gpu() in loops.
  [[nodiscard]] int node_of(int gpu) const;
  [[nodiscard]] std::vector<int> node_of_each_gpu() const;
  // Between a GPU of node `a` and another one of node `b`; `within` if both nodes are the same.
  [[nodiscard]] const Link& link(int a, int b) const;
  // Of all GPUs together.
  [[nodiscard]] double cost_per_hour() const;
  [[nodiscard]] double power_watts() const;
};

// Refuses an empty cluster, duplicate node names, a node without GPUs, a link to a missing node or from a node to itself, and
// an accelerator refused by validate(). Errors name the field, what was found and what is allowed.
[[nodiscard]] Result<void> validate(const GpuCluster& cluster);

}  // namespace windlass::hetero
