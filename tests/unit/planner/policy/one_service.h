// Fixtures: one service on one class of accelerators, the starting point of the policy's tests.
#pragma once

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner::testing {

inline constexpr double kNow = 10'000;

inline Snapshot one(Service service, int gpus = 64) {
  Snapshot snapshot;
  snapshot.now_s = kNow;
  snapshot.accelerators = {with_gpus(h100(), gpus)};
  snapshot.services = {std::move(service)};
  return snapshot;
}

// Nodes of one class with these GPUs, named n0, n1, ...; the class has all of them.
inline Snapshot on_nodes(std::vector<Service> services, const std::vector<int>& gpus, const AcceleratorSpec& spec = h100()) {
  Snapshot snapshot;
  snapshot.now_s = kNow;
  snapshot.accelerators = {with_gpus(spec, std::accumulate(gpus.begin(), gpus.end(), 0))};
  snapshot.services = std::move(services);
  for (std::size_t i = 0; i < gpus.size(); ++i)
    snapshot.nodes.push_back({"n" + std::to_string(i), spec.name, gpus[i], 0, "", false});
  return snapshot;
}

// A service that has run `workers` workers for an hour and needed all of them, with matching signals. They start within a
// second, so no queue builds up during a start.
inline Service running_service(int workers, double arrivals_per_s, double queued = 0) {
  Service service = chat_service();
  service.last_desired = workers;
  for (int slot = 0; slot < workers; ++slot) service.workers.push_back(ready_worker("h100-1", "h100", 1, slot, kNow));
  service.memory.history_since_s = kNow - 3600;
  service.memory.recommendations = {Recommendation{kNow - 3600, workers}};
  service.memory.desired = workers;
  service.starts = StartTimes{1, 10};
  observe(service, kNow, arrivals_per_s, queued);
  return service;
}

}  // namespace windlass::planner::testing
