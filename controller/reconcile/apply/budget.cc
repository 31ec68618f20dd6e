// budget computes how many of a service's workers must stay ready while nodes are being emptied (minAvailable of its
// PodDisruptionBudget).
//
// At least as many ready workers stay as the plan wants. The exception: with two or more ready workers, one may always be
// evicted, so that a node can be emptied. A single worker stays until its replacement is ready; the replacement starts as soon
// as the worker's node is cordoned. Kubernetes counts draining workers as ready too, so the minimum includes them; they end
// when their drain does. So does it count ready servers of chains that are not complete. Each eviction may break another chain,
// so as many pods may be evicted as ready workers may go.
#include <algorithm>

#include "controller/reconcile/apply/step.h"

namespace windlass::controller {

DisruptionBudget disruption_budget(const ServiceStep& own) {
  int ready = 0, alive = 0, ready_pods = 0;
  for (const Worker& worker : own.workers) {
    if (worker.finished || worker.terminating) continue;
    ++alive;
    if (worker.ready && !worker.draining_since_s) ++ready;
    ready_pods += worker.stages > 1 ? worker.ready_servers : worker.ready ? 1 : 0;
  }
  const int keep = std::min(own.plan.desired_workers(), std::max(1, ready - 1));
  const api::ObjectMeta& metadata = own.service.metadata;
  return {metadata.name_space, metadata.name, metadata.uid, alive == 0 ? 0 : std::max(1, ready_pods - ready + keep)};
}

}  // namespace windlass::controller
