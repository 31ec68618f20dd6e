// Decides whether a change of configuration that only saves money is worth its cost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/policy/configuration.h"

namespace windlass::planner {

// A worker that the new configuration needs first.
struct FirstWorker {
  std::string accelerator;
  GpuSplit split = 1;
  double price_per_hour = 0;
  std::optional<int> max_gpus;  // of the class, for the whole service
};

[[nodiscard]] FirstWorker first_of(const Configuration& of);

// A change between two configurations: the cost of each for the same load, and the time the old workers need to drain.
struct CostlyChange {
  std::string names;  // "from 1 x h100 to 2 x a100"
  double running_cost_per_hour = 0;
  double winner_cost_per_hour = 0;
  double drain_s = 0;
  std::vector<FirstWorker> first;
};

// Why the new configuration's first workers cannot start next to the running ones (NoRoomForChange); an empty code means that
// they can. `gain`: what the change is for, "would save 2 per hour".
[[nodiscard]] Reason objection_to_room(const ConfigurationInput& input, const CostlyChange& change, const std::string& gain);
// Why not to make a change that only saves money; an empty code means make it.
[[nodiscard]] Reason objection_to_change(const ConfigurationInput& input, const CostlyChange& change);

}  // namespace windlass::planner
