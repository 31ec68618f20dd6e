// Implements baseline_schedule.h.
#include "tests/reference/autoscalers/baseline_schedule.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace windlass::sim {

BaselineSchedule::BaselineSchedule(BaselineDeployment deployment, std::vector<ScheduleStep> steps, double interval_s)
    : deployment_(deployment), steps_(std::move(steps)), interval_s_(interval_s) {
  assert(!steps_.empty() && interval_s_ > 0);
}

int BaselineSchedule::max_within(double from_s, double to_s) const {
  auto step = std::upper_bound(steps_.begin(), steps_.end(), from_s + 1e-6,
                               [](double time_s, const ScheduleStep& at) { return time_s < at.from_s; });
  if (step != steps_.begin()) --step;
  int most = step->workers;
  for (++step; step != steps_.end() && step->from_s <= to_s + 1e-6; ++step) most = std::max(most, step->workers);
  return most;
}

// Workers that must be ready within the start-up time must exist or start by now; a worker that would be needed again sooner
// than that stays.
ClusterOrders BaselineSchedule::decide(const ClusterObservation& observation) {
  const double now_s = observation.now_s;
  return deployment_.scale_to(observation.services.front(), max_within(now_s, now_s + deployment_.pool().start_s));
}

}  // namespace windlass::sim
