// budget computes how many of a service's workers may be evicted at the same time, for its PodDisruptionBudget.
//
// As many ready workers as the plan wants must remain, except that one of several may always be evicted, so that a node can be
// emptied. A single worker stays until its replacement is ready; that starts as soon as the worker's node is cordoned. Draining
// workers count as ready in Kubernetes, so they are added, and they end by themselves.
#include <algorithm>

#include "controller/reconcile/apply/step.h"

namespace windlass::controller {

DisruptionBudget disruption_budget(const ServiceStep& own) {
  int ready = 0, leaving = 0, alive = 0;
  for (const Worker& worker : own.workers) {
    if (worker.finished || worker.terminating) continue;
    ++alive;
    if (worker.ready) ++(worker.draining_since_s ? leaving : ready);
  }
  const int keep = std::min(own.plan.desired_workers(), std::max(1, ready - 1));
  const api::ObjectMeta& metadata = own.service.metadata;
  return {metadata.name_space, metadata.name, metadata.uid, alive == 0 ? 0 : std::max(1, keep + leaving)};
}

}  // namespace windlass::controller
