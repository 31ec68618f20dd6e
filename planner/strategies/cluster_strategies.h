// The strategies for clusters by name, for people and objects that name one. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/strategies/clusters/cluster_plan.h"

namespace windlass::hetero {

struct NamedClusterStrategy {
  const char* name;   // "hexgen2"
  const char* about;  // a line for people
  ClusterStrategy plan;
};

// The one that plans where nobody names another comes first.
[[nodiscard]] const std::vector<NamedClusterStrategy>& cluster_strategies();

// Null: no strategy for clusters has this name.
[[nodiscard]] const NamedClusterStrategy* cluster_strategy_by_name(std::string_view name);

}  // namespace windlass::hetero
