// The page of `windlass plan --report` for a cluster: one self-contained HTML file with the groups on their nodes and the flow
// between prefill and decode groups. Pure.
#pragma once

#include <string>
#include <vector>

#include "controller/cli/plan/cluster_text.h"

namespace windlass::cli {

[[nodiscard]] std::string cluster_page(const hetero::ClusterProblem& problem, const std::vector<ClusterOutcome>& outcomes,
                                       const std::vector<std::string>& notes);

// Nodes in a row each with their GPUs, each GPU with its group's number and in its role's colour; SVG.
[[nodiscard]] std::string placement_svg(const hetero::GpuCluster& cluster, const hetero::ClusterPlan& plan);

// Prefill groups on the left, decode groups on the right, between them bands as wide as the requests that they share; SVG.
// Empty where there is no flow.
[[nodiscard]] std::string flow_svg(const hetero::GpuCluster& cluster, const hetero::ClusterPlan& plan);

}  // namespace windlass::cli
