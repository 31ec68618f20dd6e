// Implements baseline_hpa.h.
#include "tests/reference/autoscalers/baseline_hpa.h"

#include <algorithm>
#include <cmath>

namespace windlass::sim {
namespace {}  // namespace

int HpaRule::formula(int replicas, double metric) const {
  if (replicas > 0) {
    const double ratio = metric / (options_.target * replicas);
    if (std::abs(ratio - 1) <= options_.tolerance + kRounding) return replicas;
  }
  const double desired = std::ceil(metric / options_.target - kRounding);
  return static_cast<int>(std::clamp(desired, 0.0, static_cast<double>(options_.max_replicas)));
}

// Up: at most the smallest recommendation within its window; down: at least the largest within its own.
int HpaRule::stabilised(double now_s, int replicas, int desired) {
  if (recommended_.empty()) recommended_.push_back({now_s, replicas});
  recommended_.push_back({now_s, desired});
  const double longest_s = std::max(options_.scale_up_window_s, options_.scale_down_window_s);
  while (recommended_.front().at_s < now_s - longest_s - kRounding) recommended_.pop_front();
  int up = desired, down = desired;
  for (const Recommendation& past : recommended_) {
    if (past.at_s > now_s - options_.scale_up_window_s + kRounding) up = std::min(up, past.replicas);
    if (past.at_s > now_s - options_.scale_down_window_s + kRounding) down = std::max(down, past.replicas);
  }
  if (replicas < up) return up;
  return std::min(replicas, down);
}

int HpaRule::max_by_policies(double now_s, int replicas) {
  while (!added_.empty() && added_.front().at_s <= now_s - options_.policy_period_s + kRounding) added_.pop_front();
  int before = replicas;
  for (const Recommendation& past : added_) before -= past.replicas;
  const double by_percent = std::ceil(before * (1 + options_.scale_up_percent / 100) - kRounding);
  return std::max(before + options_.scale_up_pods, static_cast<int>(by_percent));
}

int HpaRule::decide(double now_s, int replicas, double metric) {
  int desired = stabilised(now_s, replicas, formula(replicas, metric));
  if (desired > replicas) desired = std::max(replicas, std::min(desired, max_by_policies(now_s, replicas)));
  desired = std::clamp(desired, options_.min_replicas, options_.max_replicas);
  if (desired > replicas) added_.push_back({now_s, desired - replicas});
  return desired;
}

double value_of(HpaMetric metric, const ObservedService& seen) {
  double value = seen.queued;
  for (const ObservedWorker& worker : seen.workers) {
    value += worker.waiting;
    if (metric == HpaMetric::kInFlight) value += worker.running;
  }
  return value;
}

ClusterOrders BaselineHpa::decide(const ClusterObservation& observation) {
  const ObservedService& seen = observation.services.front();
  return deployment_.scale_to(seen, rule_.decide(observation.now_s, count_replicas(seen).all(), value_of(metric_, seen)));
}

}  // namespace windlass::sim
