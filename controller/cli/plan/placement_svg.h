// Pictures of chains on a cluster: which nodes they stand on, and what flows between prefill and decode chains. Pure.
#pragma once

#include <string>

#include "planner/deployment/deployment.h"
#include "planner/deployment/gpu_cluster.h"

namespace windlass::cli {

// Nodes in a row each with their GPUs, each GPU with its chain's number and in its role's colour; SVG.
[[nodiscard]] std::string placement_svg(const hetero::GpuCluster& cluster, const planner::Deployment& deployment);

// Prefill chains on the left, decode chains on the right, between them bands as wide as the requests that they share; SVG.
// Empty where they share none.
[[nodiscard]] std::string flow_svg(const hetero::GpuCluster& cluster, const planner::Deployment& deployment);

}  // namespace windlass::cli
