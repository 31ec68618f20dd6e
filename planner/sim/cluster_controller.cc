// See cluster_controller.h.
#include "planner/sim/cluster_controller.h"

#include <algorithm>
#include <tuple>

namespace windlass::sim {

void sort_for_draining(std::vector<const ObservedWorker*>& workers) {
  const auto worth = [](const ObservedWorker& w) {
    return std::tuple(w.phase == WorkerPhase::kReady, w.running + w.waiting, -w.worker);
  };
  std::sort(workers.begin(), workers.end(),
            [&](const ObservedWorker* a, const ObservedWorker* b) { return worth(*a) < worth(*b); });
}

}  // namespace windlass::sim
