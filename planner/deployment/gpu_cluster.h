// GpuCluster: machines with GPUs and the network between them: what heterogeneous placement is asked to use.
//
// GPUs are numbered 0 .. gpus() - 1, a node's next to each other, in the order of the nodes. Plain data; pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/accelerator.h"

namespace windlass::hetero {

// From one GPU to another, one direction.
struct Link {
  double bytes_per_s = 0;  // 0: there is none
  double latency_s = 0;    // of a message

  bool operator==(const Link&) const = default;
};

struct ClusterNode {
  std::string name;
  planner::AcceleratorSpec accelerator;  // of all its GPUs; price and power are of one
  int gpus = 1;
  Link within;  // between two of its GPUs
};

class GpuCluster {
 public:
  std::vector<ClusterNode> nodes;
  Link default_link;                            // between GPUs of two nodes
  std::map<std::pair<int, int>, Link> between;  // of two nodes, the smaller index first: instead of default_link

  [[nodiscard]] int gpus() const;
  // REQUIRES: 0 <= gpu < gpus(). O(nodes); node_of_each_gpu() for loops.
  [[nodiscard]] int node_of(int gpu) const;
  [[nodiscard]] std::vector<int> node_of_each_gpu() const;
  // Between a GPU of node `a` and another of node `b`; `within` where both are the same.
  [[nodiscard]] const Link& link(int a, int b) const;
  // Of all GPUs together.
  [[nodiscard]] double cost_per_hour() const;
  [[nodiscard]] double power_watts() const;
};

// No node, two nodes of one name, a node without GPUs, a link to a node that is not there or to itself, an accelerator that
// validate() refuses: the error names the field, what was found and what is allowed.
[[nodiscard]] Result<void> validate(const GpuCluster& cluster);

}  // namespace windlass::hetero
