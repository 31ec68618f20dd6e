// Implements baseline_keda.h.
#include "tests/reference/autoscalers/baseline_keda.h"

#include <algorithm>

namespace windlass::sim {
namespace {

HpaOptions from_one(HpaOptions options) {
  options.min_replicas = std::max(1, options.min_replicas);
  return options;
}

}  // namespace

BaselineKeda::BaselineKeda(BaselineDeployment deployment, const KedaOptions& options)
    : deployment_(deployment), options_(options), rule_(from_one(options.hpa)) {}

ClusterOrders BaselineKeda::decide(const ClusterObservation& observation) {
  const ObservedService& seen = observation.services.front();
  const double now_s = observation.now_s;
  const double metric = value_of(HpaMetric::kInFlight, seen);
  const int replicas = count_replicas(seen).all();
  int desired = replicas > 0 ? rule_.decide(now_s, replicas, metric) : 0;
  if (now_s >= next_poll_s_ - 1e-6) {
    next_poll_s_ = now_s + options_.polling_s;
    if (metric > options_.activation) {
      last_active_s_ = now_s;
      desired = std::max(1, desired);
    } else if (options_.hpa.min_replicas == 0 && now_s - last_active_s_ >= options_.cooldown_s) {
      desired = 0;
    }
  }
  return deployment_.scale_to(seen, std::max(desired, options_.hpa.min_replicas));
}

}  // namespace windlass::sim
