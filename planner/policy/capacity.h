// What each AcceleratorClass has for our workers.
#pragma once

#include <map>
#include <string>

#include "planner/policy/snapshot.h"

namespace windlass::planner {

struct ClassCapacity {
  int limit = 0;     // GPUs that our workers, draining ones included, may hold
  int draining = 0;  // of these, held by workers that drain
  int coming = 0;    // and of these, what others may have once they are gone: not on a node that is being emptied
  int held = 0;      // and by the others, whoever's
};

using CapacityByClass = std::map<std::string, ClassCapacity>;

// Observed: what the nodes offer less what others use; never less than what workers that serve or drain hold, since a count of
// nodes may dip while they run. Elastic: maxGPUs less what others use, so that workers may be pending while nodes come.
[[nodiscard]] CapacityByClass capacity_by_class(const Snapshot& snapshot);

// GPUs of a class that workers of `service` hold, draining ones apart.
[[nodiscard]] int live_gpus(const Service& service, const std::string& accelerator);

[[nodiscard]] const AcceleratorState* find_accelerator(const Snapshot& snapshot, const std::string& name);

}  // namespace windlass::planner
