// Implements baseline_deployment.h.
#include "tests/reference/autoscalers/baseline_deployment.h"

#include <algorithm>
#include <utility>

namespace windlass::sim {

ReplicaCount count_replicas(const ObservedService& seen) {
  ReplicaCount count;
  for (const ObservedWorker& worker : seen.workers) {
    if (worker.phase == WorkerPhase::kReady) ++count.ready;
    if (worker.phase == WorkerPhase::kStarting) ++count.starting;
  }
  return count;
}

ClusterOrders BaselineDeployment::scale_to(const ObservedService& seen, int desired) {
  ClusterOrders orders;
  if (!std::exchange(slots_said_, true)) orders.slots.push_back({0, pool_->name, slots_});
  std::vector<const ObservedWorker*> active;
  for (const ObservedWorker& worker : seen.workers) {
    if (worker.phase == WorkerPhase::kStarting || worker.phase == WorkerPhase::kReady) active.push_back(&worker);
  }
  const int there = static_cast<int>(active.size());
  if (desired > there) orders.start.push_back({0, pool_, desired - there});
  if (desired < there) {
    sort_for_draining(active);
    for (int i = 0; i < there - std::max(0, desired); ++i) orders.drain.push_back(active[static_cast<std::size_t>(i)]->worker);
  }
  return orders;
}

}  // namespace windlass::sim
