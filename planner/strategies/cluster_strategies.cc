// See strategies.h.
#include "planner/strategies/cluster_strategies.h"

#include "planner/strategies/hexgen2/hexgen2.h"
#include "planner/strategies/huawei/huawei.h"

namespace windlass::hetero {

const std::vector<NamedClusterStrategy>& cluster_strategies() {
  static const std::vector<NamedClusterStrategy> kStrategies = {
      {"hexgen2", "prefill and decode groups of unlike GPUs, cut by graph partition and refined by maximum flow (HexGen-2)",
       [](const ClusterProblem& problem, const search::Effort& effort) { return hexgen2_plan(problem, effort); }},
      {"huawei", "on each machine the tensor parallelism of the most throughput (Huawei)",
       [](const ClusterProblem& problem, const search::Effort& effort) { return huawei_plan(problem, effort); }},
  };
  return kStrategies;
}

const NamedClusterStrategy* cluster_strategy_by_name(std::string_view name) {
  for (const NamedClusterStrategy& strategy : cluster_strategies()) {
    if (name == strategy.name) return &strategy;
  }
  return nullptr;
}

}  // namespace windlass::hetero
