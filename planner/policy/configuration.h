// Configuration: on which accelerator, with how many GPUs each, a service's workers run. From the spec alone (its assumed
// workload), so that load never restarts a worker; and sticky: what runs is kept unless it breaks the objective or something
// costs clearly less.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/policy/capacity.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"
#include "planner/search/worker_config.h"

namespace windlass::planner {

struct Configuration {
  PoolPlan pool;                // workers: 0
  WorkerTimes times;            // at pool.slots, for the lengths that are believed now
  double price_per_hour = 0;    // of one worker
  std::optional<int> max_gpus;  // of the class, for the whole service
};

struct ConfigurationChoice {
  std::optional<Configuration> chosen;
  Hint feasible;
  std::vector<Reason> reasons;
};

// `believed`: lengths for slots and rates; the configuration itself follows the spec's.
[[nodiscard]] ConfigurationChoice choose_configuration(const Service& service, const Snapshot& snapshot,
                                                       const CapacityByClass& capacities, const Lengths& believed);

// A configuration that runs already, whether or not the search would choose it.
[[nodiscard]] Configuration describe_running(const Service& service, const Snapshot& snapshot, const Worker& worker,
                                             const Lengths& believed);

// "h100-2": a DNS label of at most 30 characters.
[[nodiscard]] std::string pool_name(const std::string& accelerator, int gpus);

// A figure in Reason::inputs.
[[nodiscard]] std::string figure(double value);

}  // namespace windlass::planner
