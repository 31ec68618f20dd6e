// BaselineKeda: KEDA's ScaledObject on the requests per replica (in flight, including waiting ones), for comparisons.
//
// As published: kedacore/keda-docs content/docs/*/{concepts/scaling-deployments,reference/scaledobject-spec}.md. Between one
// replica and the maximum KEDA delegates to a HorizontalPodAutoscaler that it creates (baseline_hpa.h), with the trigger's
// threshold as AverageValue. Only if minReplicaCount is 0 does it act itself, every pollingInterval (30 s): it starts the first
// replica when the metric is above activationThreshold (0), and removes the last one when it has not been above for
// cooldownPeriod (300 s).
#pragma once

#include "tests/reference/autoscalers/baseline_hpa.h"

namespace windlass::sim {

struct KedaOptions {
  HpaOptions hpa;  // target: the trigger's threshold; min_replicas: minReplicaCount; 0: scale to zero and back
  double polling_s = 30;
  double cooldown_s = 300;
  double activation = 0;
};

class BaselineKeda final : public ClusterController {
 public:
  BaselineKeda(BaselineDeployment deployment, const KedaOptions& options);

  [[nodiscard]] double interval_s() const override { return options_.hpa.sync_s; }
  [[nodiscard]] ClusterOrders decide(const ClusterObservation& observation) override;

 private:
  BaselineDeployment deployment_;
  KedaOptions options_;
  HpaRule rule_;
  double next_poll_s_ = 0;
  double last_active_s_ = 0;
};

}  // namespace windlass::sim
