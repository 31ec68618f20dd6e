// See cluster_plan.h.
#include "planner/strategies/clusters/cluster_plan.h"

#include <algorithm>

namespace windlass::hetero {

int Group::gpus() const {
  int sum = 0;
  for (const Stage& stage : stages) sum += static_cast<int>(stage.gpus.size());
  return sum;
}

int Group::tensor_parallel() const {
  std::size_t most = 0;
  for (const Stage& stage : stages) most = std::max(most, stage.gpus.size());
  return static_cast<int>(most);
}

}  // namespace windlass::hetero
