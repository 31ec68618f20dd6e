// BaselineSchedule: a given number of ready workers over time: fixed at the peak, or computed by the clairvoyant
// (baseline_clairvoyant.h). Workers are started early enough to be ready in time.
#pragma once

#include <vector>

#include "tests/reference/autoscalers/baseline_deployment.h"

namespace windlass::sim {

struct ScheduleStep {
  double from_s = 0;
  int workers = 0;  // ready from then on until the next step

  bool operator==(const ScheduleStep&) const = default;
};

class BaselineSchedule final : public ClusterController {
 public:
  // REQUIRES: at least one step, in order of time. Times and the pool's start_s should be multiples of the interval; otherwise
  // a worker is ready up to an interval late.
  BaselineSchedule(BaselineDeployment deployment, std::vector<ScheduleStep> steps, double interval_s = 1);

  [[nodiscard]] double interval_s() const override { return interval_s_; }
  [[nodiscard]] ClusterOrders decide(const ClusterObservation& observation) override;

 private:
  [[nodiscard]] int max_within(double from_s, double to_s) const;

  BaselineDeployment deployment_;
  std::vector<ScheduleStep> steps_;
  double interval_s_;
};

}  // namespace windlass::sim
