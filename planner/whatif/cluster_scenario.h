// ClusterScenario: a CLUSTER file of `windlass plan`: a model, its requests and objectives as in a plan's SCENARIO
// (planner/whatif/plan_scenario.h), and the machines and links of the cluster; and the question that it asks.
//
//   cluster:
//     nodes:
//     - {name: n0, accelerator: h100-80gb, gpus: 4, intraGBps: 450, intraLatency: 5us, pricePerGpuHour: 3.69}
//     links: {default: {GBps: 0.6, latency: 100us}, between: [{nodes: [n0, n1], GBps: 12.5, latency: 5us}]}
//
// In three steps without paths: parse_cluster_scenario(), sim::files_of(scenario.plan.scenario) for the caller to read,
// question_of(). docs/plan.md lists the fields. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/deployment/gpu_cluster.h"
#include "planner/strategies/core/problem.h"
#include "planner/whatif/plan_scenario.h"

namespace windlass::hetero {

struct ClusterScenario {
  // Its accelerators are the nodes', each once with all its GPUs; its network is the slowest that there is in the cluster.
  search::PlanScenario plan;
  GpuCluster cluster;
  int line = 0;  // of `cluster`
};

// Whether the text has a `cluster` to place on. False for what is no YAML, and for the `cluster` with pools of a simulation.
[[nodiscard]] bool holds_cluster(std::string_view yaml);

// The error is "SOURCE:LINE: FIELD: found ..., allowed is ...".
[[nodiscard]] Result<ClusterScenario> parse_cluster_scenario(std::string_view yaml, const std::string& source);

// `texts`: of each of sim::files_of(scenario.plan.scenario), by path. The problem has the file's shape, requests and
// objectives, the cluster, and as accelerators the nodes' classes with their GPUs, whose kinds know nothing of the network.
// Errors name the file and line, or the scenario's line and field; kNotFound where no part of the network has the memory for
// the model and one of its requests, with what is missing. That no single worker of a node fits is no error: strategies for
// clusters cut a model between nodes. Notes: what the file left open of the cluster and the latencies, and the parts of a
// network that is in several.
[[nodiscard]] Result<search::Question> question_of(ClusterScenario scenario, const std::map<std::string, std::string>& texts);

}  // namespace windlass::hetero
