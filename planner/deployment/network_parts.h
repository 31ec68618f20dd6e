// Finds the connected parts of a cluster's network: nodes that reach each other, directly or through others. A model can be
// split only between nodes of the same part. Pure.
#pragma once

#include <string>
#include <vector>

#include "planner/deployment/gpu_cluster.h"

namespace windlass::hetero {

// Nodes ascending within a part; parts sorted by their first node. O(nodes + links).
[[nodiscard]] std::vector<std::vector<int>> network_parts(const GpuCluster& cluster);

// Of all GPUs of these nodes together.
[[nodiscard]] double memory_bytes(const GpuCluster& cluster, const std::vector<int>& nodes);

// "n0, n1, n2 and 5 more".
[[nodiscard]] std::string names_text(const GpuCluster& cluster, const std::vector<int>& nodes);

}  // namespace windlass::hetero
