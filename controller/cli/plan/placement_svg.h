// Draws chains on a cluster as SVG: the GPUs they use, and the flow between prefill and decode chains. Pure.
#pragma once

#include <string>

#include "planner/deployment/deployment.h"
#include "planner/deployment/gpu_cluster.h"

namespace windlass::cli {

// One row per node with its GPUs; each GPU shows its chain's number in the colour of the role.
[[nodiscard]] std::string placement_svg(const hetero::GpuCluster& cluster, const planner::Deployment& deployment);

// Prefill chains on the left and decode chains on the right, joined by bands whose width is the rate of shared requests. Empty
// if they share none.
[[nodiscard]] std::string flow_svg(const hetero::GpuCluster& cluster, const planner::Deployment& deployment);

}  // namespace windlass::cli
