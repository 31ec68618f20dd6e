// BaselineHpa: the formula of Kubernetes' HorizontalPodAutoscaler (autoscaling/v2) on a metric of requests, for comparisons.
//
// As published: kubernetes/website content/en/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale.md and
// kubernetes/kubernetes pkg/controller/podautoscaler/{horizontal,replica_calculator}.go. For an External metric with an
// AverageValue target:
//
//   every 15 s: ratio = metric / (target * replicas);  |ratio - 1| <= 0.1: unchanged, otherwise  desired = ceil(metric /
//   target)
//
// Scale-down uses the largest desired number of the last 300 s (the initial number counts as one), scale-up the latest. Within
// 15 s at most the larger of 4 pods and 100 % is added; any number down to the minimum is removed. Replicas are the wanted
// ones: starting workers count.
#pragma once

#include <deque>
#include <limits>

#include "tests/reference/autoscalers/baseline_deployment.h"

namespace windlass::sim {

struct HpaOptions {
  double target = 1;  // of the metric, per replica
  int min_replicas = 1;
  int max_replicas = std::numeric_limits<int>::max();
  double tolerance = 0.1;
  double sync_s = 15;
  double scale_up_window_s = 0;
  double scale_down_window_s = 300;
  double policy_period_s = 15;
  int scale_up_pods = 4;
  double scale_up_percent = 100;
};

// The formula alone. Call decide() every sync_s.
class HpaRule {
 public:
  explicit HpaRule(const HpaOptions& options) : options_(options) {}  // REQUIRES: target > 0

  // The desired replicas. `metric`: summed over the replicas. REQUIRES: now_s never decreases.
  [[nodiscard]] int decide(double now_s, int replicas, double metric);

 private:
  struct Recommendation {
    double at_s;
    int replicas;
  };
  [[nodiscard]] int formula(int replicas, double metric) const;
  [[nodiscard]] int stabilised(double now_s, int replicas, int desired);
  [[nodiscard]] int max_by_policies(double now_s, int replicas);

  HpaOptions options_;
  std::deque<Recommendation> recommended_;  // within the longer window
  std::deque<Recommendation> added_;        // within the policies' period: how many, and when
};

enum class HpaMetric {
  kWaiting,   // waiting requests, at the gateway and inside workers
  kInFlight,  // waiting and running requests
};

[[nodiscard]] double value_of(HpaMetric metric, const ObservedService& seen);

class BaselineHpa final : public ClusterController {
 public:
  BaselineHpa(BaselineDeployment deployment, HpaMetric metric, const HpaOptions& options)
      : deployment_(deployment), metric_(metric), options_(options), rule_(options) {}

  [[nodiscard]] double interval_s() const override { return options_.sync_s; }
  [[nodiscard]] ClusterOrders decide(const ClusterObservation& observation) override;

 private:
  BaselineDeployment deployment_;
  HpaMetric metric_;
  HpaOptions options_;
  HpaRule rule_;
};

}  // namespace windlass::sim
