// budget: decides how many of a service's workers may be evicted at once, as its PodDisruptionBudget says.
//
// As many ready workers as the plan wants may not be evicted at once, but one always may where there are several: a node must
// be able to be emptied. The only one stays until its successor, which is started as soon as its node is cordoned, is ready.
// Workers that drain are ready for Kubernetes, so they come on top, and end by themselves.
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
