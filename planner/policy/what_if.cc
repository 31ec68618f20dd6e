// Bisection over the arrival rate; each question is a whole plan.
#include "planner/policy/what_if.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "planner/policy/demand_view.h"
#include "planner/policy/make_plan.h"

namespace windlass::planner {
namespace {

constexpr double kMostTimes = 16;
constexpr double kLeastRatePerS = 0.01;  // a service without requests: the search begins here
constexpr double kPrecision = 0.01;

// The snapshot with the service as if `rate_per_s` had come for longer than every window, and nothing waited.
Snapshot settled(const Snapshot& snapshot, std::size_t index, double rate_per_s) {
  Snapshot out = snapshot;
  Service& service = out.services[index];
  const Scaling& scaling = service.scaling;
  service.scaling.mode = Mode::kApply;
  service.demand.arrivals_per_s = Reading{rate_per_s, out.now_s};
  service.demand.arrivals_total.reset();  // its history is another rate's
  service.demand.queued = Reading{0, out.now_s};
  service.demand.last_arrival_at_s = out.now_s;
  if (!service.last_desired) {
    service.last_desired = static_cast<int>(std::count_if(service.workers.begin(), service.workers.end(), [](const Worker& w) {
      return w.state == WorkerState::kReady || w.state == WorkerState::kStarting;
    }));
  }
  const double window_s = std::max(scaling.scale_down_stabilization_s, scaling.scale_up_stabilization_s);
  service.memory = {};
  service.memory.history_since_s = out.now_s - 2 * window_s - 86'400;
  service.memory.desired = service.last_desired;
  // A worker's readings belong to the load that it has.
  for (Worker& worker : service.workers) {
    worker.running.reset();
    worker.waiting.reset();
    if (worker.ready_s) worker.running = worker.waiting = Reading{0, out.now_s};
  }
  return out;
}

int wanted_at(const Snapshot& snapshot, std::size_t index, double rate_per_s) {
  const Plan plan = make_plan(settled(snapshot, index, rate_per_s));
  const ServicePlan& decided = plan.services[index];
  return std::max(snapshot.services[index].scaling.min_workers, decided.memory.desired.value_or(decided.desired_workers()));
}

}  // namespace

std::optional<WhatIf> what_if(const Snapshot& snapshot, std::size_t index) {
  const Service& service = snapshot.services[index];
  if (!is_usable(service.demand.arrivals_per_s, snapshot.now_s)) return std::nullopt;
  const double rate_per_s = service.demand.arrivals_per_s->value;
  if (make_plan(settled(snapshot, index, rate_per_s)).services[index].feasible.status != Truth::kTrue) return std::nullopt;

  WhatIf out;
  out.workers = wanted_at(snapshot, index, rate_per_s);
  // Narrows [unchanged, changed] until both are within the precision of each other, and returns the changed end.
  const auto narrow = [&](double unchanged, double changed, const std::function<bool(int)>& differs) {
    while (std::abs(changed - unchanged) > kPrecision * std::max(changed, unchanged) &&
           std::max(changed, unchanged) > kLeastRatePerS) {
      const double middle = (unchanged + changed) / 2;
      (differs(wanted_at(snapshot, index, middle)) ? changed : unchanged) = middle;
    }
    return changed;
  };
  const double most_per_s = std::max(rate_per_s, kLeastRatePerS) * kMostTimes;
  const auto is_more = [&](int workers) { return workers > out.workers; };
  if (is_more(wanted_at(snapshot, index, most_per_s))) {
    out.more_at_per_s = narrow(rate_per_s, most_per_s, is_more);
    out.more_workers = wanted_at(snapshot, index, *out.more_at_per_s);
  }
  const auto is_fewer = [&](int workers) { return workers < out.workers; };
  if (rate_per_s > 0 && is_fewer(wanted_at(snapshot, index, 0))) {
    out.fewer_at_per_s = narrow(rate_per_s, 0, is_fewer);
    out.fewer_workers = wanted_at(snapshot, index, *out.fewer_at_per_s);
  }
  return out;
}

}  // namespace windlass::planner
