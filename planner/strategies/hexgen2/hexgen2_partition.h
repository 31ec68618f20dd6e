// HexGen-2's first phase (Section 3.2): partitions GPUs into K groups and assigns a phase to each.
//
// - Spectral partitioning (Alpert and Yao 1995): the nodes of the cluster become points in the space of the Laplacian's first
//   eigenvectors. They are ordered so that neighbours are adjacent, and cut into K groups of similar memory. Kernighan-Lin
//   passes over pairs of groups then raise the bandwidth within groups and even out their memory.
// - Each group becomes one point. The points are divided into prefill and decode with as much bandwidth between the two as
//   possible.
// - That division is applied to the GPUs.
//
// GPUs of one node are interchangeable, so the graph has nodes weighted by their GPUs (the eigenvectors of the GPUs' graph that
// are constant on nodes). Pure.
#pragma once

#include <vector>

#include "planner/strategies/hexgen2/hexgen2_placement.h"

namespace windlass::hetero {

// The cluster's nodes, ordered so that neighbours are adjacent.
[[nodiscard]] std::vector<int> spectral_order(const GpuCluster& cluster, int groups);

// Step (i): the groups. REQUIRES: 1 <= groups <= GPUs of the cluster.
[[nodiscard]] std::vector<Composition> initial_partition(const GpuCluster& cluster, const LinkTable& links, int groups);

// Total bandwidth over pairs of GPUs in the same group, bytes/s.
[[nodiscard]] double bandwidth_inside(const LinkTable& links, const std::vector<Composition>& groups);

// Step (ii): true for prefill. At least one of each if there are two groups.
[[nodiscard]] std::vector<bool> secondary_partition(const LinkTable& links, const std::vector<Composition>& groups);

// All steps.
[[nodiscard]] Placement first_phase(StrategyTable& table, int groups);

}  // namespace windlass::hetero
