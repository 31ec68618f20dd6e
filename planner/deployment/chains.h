// Describes the chains of a deployment for people: GPUs by node and index, and identical chains grouped together. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "planner/deployment/deployment.h"
#include "planner/deployment/gpu_cluster.h"

namespace windlass::planner {

// "n0[0-1]", "n1[0,2-3]": one text per node, in node order.
[[nodiscard]] std::vector<std::string> gpu_names(const hetero::GpuCluster& cluster, std::vector<int> gpus);

// Chains with the same role, GPUs and split.
struct AlikeChains {
  dispatch::Role role = dispatch::Role::kUnified;
  std::vector<std::pair<std::string, int>> gpus_by_accelerator;  // of one chain, in GPU order
  int gpus = 0;                                                  // of one chain
  int tensor_parallel = 1;                                       // of the largest hop
  int hops = 1;
  std::vector<int> chains;  // indices into Deployment::chains

  [[nodiscard]] std::string accelerators_text() const;  // "h100-80gb", "h100-80gb + a100-80gb"
};

// In the order of their first chains.
[[nodiscard]] std::vector<AlikeChains> alike_chains(const Deployment& deployment);

}  // namespace windlass::planner
