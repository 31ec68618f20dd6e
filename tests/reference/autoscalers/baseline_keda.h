// BaselineKeda: KEDA's ScaledObject on the requests per replica (in flight, waiting ones included), for comparisons.
//
// As published: kedacore/keda-docs content/docs/*/{concepts/scaling-deployments,reference/scaledobject-spec}.md. Between one
// and the most replicas KEDA leaves the work to a HorizontalPodAutoscaler that it makes (baseline_hpa.h) with the trigger's
// threshold as AverageValue. Only where minReplicaCount is 0 it acts itself, every pollingInterval (30 s): the first replica is
// started when the metric is above activationThreshold (0), and the last goes when it has not been so for cooldownPeriod
// (300 s).
#pragma once

#include "tests/reference/autoscalers/baseline_hpa.h"

namespace windlass::sim {

struct KedaOptions {
  HpaOptions hpa;  // target: the trigger's threshold; min_replicas: minReplicaCount, where 0 means to zero and back
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
