// HexGen-2's first phase (Section 3.2): GPUs into K groups, and a phase for each group.
//
// (i) Spectral partitioning (Alpert and Yao 1995): nodes of the cluster as points in the space of the Laplacian's first
// eigenvectors, strung into an order of neighbours and cut into K groups of like memory; then Kernighan-Lin passes over pairs
// of groups, which raise the bandwidth inside groups and even out their memory. (ii) Groups are merged to points, and these
// divided into prefill and decode with as much bandwidth between the two as can be. (iii) The division is read back to the
// GPUs. GPUs of one node are alike: the graph is of nodes, weighted by their GPUs (the eigenvectors of the GPUs' graph that are
// constant on nodes). Pure.
#pragma once

#include <vector>

#include "planner/strategies/hexgen2/hexgen2_placement.h"

namespace windlass::hetero {

// The cluster's nodes, neighbours next to each other.
[[nodiscard]] std::vector<int> spectral_order(const GpuCluster& cluster, int groups);

// Step (i): the groups. REQUIRES: 1 <= groups <= GPUs of the cluster.
[[nodiscard]] std::vector<Composition> initial_partition(const GpuCluster& cluster, const LinkTable& links, int groups);

// Sum over pairs of GPUs of one group of the bandwidth between them, bytes/s.
[[nodiscard]] double bandwidth_inside(const LinkTable& links, const std::vector<Composition>& groups);

// Step (ii): true for prefill. At least one of each where there are two groups.
[[nodiscard]] std::vector<bool> secondary_partition(const LinkTable& links, const std::vector<Composition>& groups);

// All steps.
[[nodiscard]] Placement first_phase(StrategyTable& table, int groups);

}  // namespace windlass::hetero
