// Formats a strategy's placement of chains on a cluster for people. Pure.
#pragma once

#include <string>
#include <vector>

#include "planner/deployment/deployment.h"
#include "planner/deployment/gpu_cluster.h"

namespace windlass::cli {

// One line per chain ("group"), and one per pair that shares requests.
[[nodiscard]] std::string placement_table(const hetero::GpuCluster& cluster, const planner::Deployment& deployment);

// "n0[0-1] n1[3]".
[[nodiscard]] std::string gpus_text(const hetero::GpuCluster& cluster, const std::vector<int>& gpus);

// "and 3 more (-o json lists them)" as a line; empty if all are shown.
[[nodiscard]] std::string more_text(std::size_t there, std::size_t shown);

}  // namespace windlass::cli
