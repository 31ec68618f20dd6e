// ClusterScenario: the CLUSTER file of `windlass plan`. It has a model, requests and objectives like a SCENARIO
// (planner/whatif/plan_scenario.h), plus the cluster's machines and links. question_of() turns it into a question for the
// strategies.
//
// cluster:
//     nodes:
//     - {name: n0, accelerator: h100-80gb, gpus: 4, intraGBps: 450, intraLatency: 5us, pricePerGpuHour: 3.69}
//     links: {default: {GBps: 0.6, latency: 100us}, between: [{nodes: [n0, n1], GBps: 12.5, latency: 5us}]}
//
// Three steps without file access: parse_cluster_scenario(); sim::files_of(scenario.plan.scenario), which the caller reads;
// question_of(). docs/plan.md lists the fields. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/known_accelerators.h"
#include "planner/deployment/gpu_cluster.h"
#include "planner/strategies/core/problem.h"
#include "planner/whatif/plan_scenario.h"

namespace windlass::hetero {

struct ClusterScenario {
  // Its accelerators are those of the nodes, each once with all its GPUs; its network is the slowest one in the cluster.
  search::PlanScenario plan;
  GpuCluster cluster;
  int line = 0;  // line of `cluster`
};

// Whether the text has a `cluster` to place on. False if it is not YAML, or if its `cluster` has pools, as for a simulation.
[[nodiscard]] bool holds_cluster(std::string_view yaml);

// Errors are "SOURCE:LINE: FIELD: RULE".
[[nodiscard]] Result<ClusterScenario> parse_cluster_scenario(std::string_view yaml, const std::string& source,
                                                             const planner::KnownAccelerators& known = {});

// `texts`: the content of each of sim::files_of(scenario.plan.scenario), by path. The problem has the file's shape, requests
// and objectives, the cluster, and the nodes' accelerators with their GPUs; its worker kinds ignore the network. Errors name
// the file and line, or the scenario's line and field; kNotFound if no connected part of the network has the memory for the
// model and one of its requests, with what is missing. It is no error if no single worker fits on a node: strategies for
// clusters split a model across nodes. Notes: defaults used for the cluster and the latencies, and the parts of a network that
// is not connected. `executor`: as in plan_scenario.h.
[[nodiscard]] Result<search::Question> question_of(ClusterScenario scenario, const std::map<std::string, std::string>& texts,
                                                   Executor* executor = nullptr);

}  // namespace windlass::hetero
