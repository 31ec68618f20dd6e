// A ClusterPlan for people: its GPUs by node and index, and groups that are alike together. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "planner/strategies/clusters/cluster_plan.h"

namespace windlass::hetero {

// "n0[0-1]", "n1[0,2-3]": one a node, in the order of the nodes.
[[nodiscard]] std::vector<std::string> gpu_names(const GpuCluster& cluster, std::vector<int> gpus);
[[nodiscard]] std::vector<int> gpus_of(const Group& group);  // of all its stages, ascending

// Groups of one role with as many GPUs of each accelerator, cut alike.
struct PlacedPool {
  dispatch::Role role = dispatch::Role::kUnified;
  std::vector<std::pair<std::string, int>> gpus_by_accelerator;  // of one group, in the order of the nodes
  int gpus = 0;                                                  // of one group
  int tensor_parallel = 1;                                       // of the largest stage
  int stages = 1;
  std::vector<int> groups;  // indices in ClusterPlan::groups
};

// In the order of their first groups.
[[nodiscard]] std::vector<PlacedPool> pools_of(const GpuCluster& cluster, const ClusterPlan& plan);

// "h100-80gb", "h100-80gb + a100-80gb".
[[nodiscard]] std::string accelerators_text(const PlacedPool& pool);

// "prefill 2 x h100-80gb-2 + decode 1 x (1 h100-80gb, 3 a100-80gb) (PP 2)".
[[nodiscard]] std::string describe(const GpuCluster& cluster, const ClusterPlan& plan);

}  // namespace windlass::hetero
