// See cluster_plan_json.h.
#include "planner/whatif/cluster_plan_json.h"

#include "planner/strategies/clusters/placed_pools.h"
#include "planner/strategies/core/plan_json.h"

namespace windlass::hetero {
namespace {

using Json = nlohmann::ordered_json;

Json pools_json(const GpuCluster& cluster, const ClusterPlan& plan) {
  Json pools = Json::array();
  for (const PlacedPool& pool : pools_of(cluster, plan)) {
    const Group& first = plan.groups[static_cast<std::size_t>(pool.groups.front())];
    pools.push_back({{"role", dispatch::to_string(pool.role)},
                     {"accelerator", accelerators_text(pool)},
                     {"gpusPerWorker", pool.gpus},
                     {"tensorParallel", pool.tensor_parallel},
                     {"pipelineStages", pool.stages},
                     {"workers", pool.groups.size()},
                     {"maxSequences", first.batch}});
  }
  return pools;
}

Json groups_json(const GpuCluster& cluster, const ClusterPlan& plan) {
  Json groups = Json::array();
  for (const Group& group : plan.groups) {
    Json stages = Json::array();
    for (const Stage& stage : group.stages) {
      stages.push_back({{"gpus", gpu_names(cluster, stage.gpus)}, {"layers", stage.layers}});
    }
    groups.push_back({{"gpus", gpu_names(cluster, gpus_of(group))},
                      {"role", dispatch::to_string(group.role)},
                      {"tensorParallel", group.tensor_parallel()},
                      {"stages", std::move(stages)},
                      {"batch", group.batch},
                      {"latencySeconds", group.latency_s},
                      {"capacityRequestsPerSecond", group.capacity_requests_per_s}});
  }
  return groups;
}

}  // namespace

Json to_json(const ClusterProblem& problem, const ClusterPlan& plan, const ClusterTrial& trial, double wall_s) {
  Json json = {{"strategy", plan.strategy}, {"meetsObjectives", trial.meets_objectives}, {"servesRate", plan.holds}};
  json["pools"] = pools_json(problem.cluster, plan);
  json["costPerHour"] = plan.cost_per_hour;
  json["gpus"] = plan.gpus;
  json["powerWatts"] = plan.power_watts;
  json["predicted"] = search::to_json(trial.predicted);
  json["reasons"] = plan.reasons;
  Json considered = Json::array();
  for (const ClusterPlan::Runner& other : plan.considered) {
    considered.push_back({{"what", other.what},
                          {"capacityRequestsPerSecond", other.capacity_requests_per_s},
                          {"costPerHour", other.cost_per_hour},
                          {"rejectedBecause", other.rejected_because}});
  }
  json["considered"] = std::move(considered);
  json["groups"] = groups_json(problem.cluster, plan);
  Json edges = Json::array();
  for (const FlowEdge& edge : plan.flow) {
    edges.push_back({{"from", edge.from},
                     {"to", edge.to},
                     {"share", edge.share},
                     {"requestsPerSecond", edge.requests_per_s},
                     {"capacityRequestsPerSecond", edge.capacity_requests_per_s}});
  }
  json["flow"] = {{"value", plan.capacity_requests_per_s}, {"edges", std::move(edges)}};
  json["iterations"] = plan.iterations;
  json["stopped"] = plan.stopped;
  json["wallSeconds"] = wall_s;
  return json;
}

}  // namespace windlass::hetero
