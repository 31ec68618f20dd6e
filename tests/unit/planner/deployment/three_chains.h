// A fixture: three nodes with three chains on them, two of which are identical.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "planner/deployment/deployment.h"
#include "planner/deployment/gpu_cluster.h"

namespace windlass::planner {

// n0: 4 H100 (GPUs 0 to 3), n1: 2 A100 (4, 5), n2: 2 A100 (6, 7).
inline hetero::GpuCluster three_nodes() {
  hetero::GpuCluster cluster;
  for (const auto& [name, accelerator, gpus] :
       {std::tuple("n0", "h100-80gb", 4), std::tuple("n1", "a100-80gb", 2), std::tuple("n2", "a100-80gb", 2)}) {
    hetero::ClusterNode node;
    node.name = name;
    node.accelerator.name = accelerator;
    node.gpus = gpus;
    cluster.nodes.push_back(node);
  }
  return cluster;
}

inline Deployment three_chains() {
  Deployment deployment;
  const auto spec = [](const char* accelerator, int gpus) { return WorkerSpec{accelerator, gpus, 1, {}}; };
  add_chain(deployment, {dispatch::Role::kPrefill, {{0, 0, 48, {0, 1}}}, 6, 0.1, 1}, {spec("h100-80gb", 2)});
  for (const auto& [first, second] : {std::pair(2, std::vector{4, 5}), {3, {7, 6}}}) {
    add_chain(deployment, {dispatch::Role::kDecode, {{0, 0, 20, {first}}, {0, 0, 28, second}}, 4, 8, 32},
              {spec("h100-80gb", 1), spec("a100-80gb", 2)});
  }
  deployment.pairs = {{0, 1, 3, 10, 0.5}, {0, 2, 3, 1, 0.5}};
  return deployment;
}

}  // namespace windlass::planner
