// Computes how many GPUs of each AcceleratorClass our workers may use.
#pragma once

#include <map>
#include <string>

#include "planner/policy/snapshot.h"

namespace windlass::planner {

struct ClassCapacity {
  int limit = 0;     // GPUs that our workers may hold, including draining ones
  int draining = 0;  // part of it held by draining workers
  int coming = 0;    // part of `draining` that others can use afterwards: not on a node that is being emptied
  int held = 0;      // held by all other workers, of any service
};

using CapacityByClass = std::map<std::string, ClassCapacity>;

// Observed: what the nodes offer minus what others use, but at least what serving and draining workers hold, since the node
// count may dip while they run. Elastic: maxGPUs minus what others use, so workers may be pending while nodes are added.
[[nodiscard]] CapacityByClass capacity_by_class(const Snapshot& snapshot);

// GPUs of a class held by `service`'s workers, without draining ones.
[[nodiscard]] int live_gpus(const Service& service, const std::string& accelerator);
// GPUs available to this service: the class's total minus what other services' workers hold.
[[nodiscard]] int available_to(const Service& service, const CapacityByClass& capacities, const std::string& accelerator);

[[nodiscard]] const AcceleratorState* find_accelerator(const Snapshot& snapshot, const std::string& name);

}  // namespace windlass::planner
