// Implements baseline_wva.h.
#include "tests/reference/autoscalers/baseline_wva.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace windlass::sim {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

HpaOptions on_wanted_replicas(HpaOptions options) {
  options.target = 1;
  return options;
}

}  // namespace

double WvaRule::compute_capacity(const WvaReplica& replica, const WvaLengths& lengths) {
  if (replica.waiting >= options_.queue_length_threshold && replica.tokens_in_use > 0) {
    observed_.push_back(replica.tokens_in_use);
    if (static_cast<int>(observed_.size()) > options_.compute_samples) observed_.pop_front();
    return replica.tokens_in_use;
  }
  if (!observed_.empty())
    return std::accumulate(observed_.begin(), observed_.end(), 0.0) / static_cast<double>(observed_.size());
  if (lengths.output_tokens <= 0) return engine_.kv_capacity_tokens;
  const double steady = engine_.max_batch_tokens * lengths.output_tokens / (lengths.input_tokens + lengths.output_tokens);
  return std::min(steady, static_cast<double>(engine_.max_sequences)) * (lengths.input_tokens + lengths.output_tokens / 2);
}

int WvaRule::decide(const std::vector<WvaReplica>& replicas, int pending, int queued, const WvaLengths& lengths) {
  const int ready = static_cast<int>(replicas.size());
  double demand = queued * (lengths.input_tokens + lengths.output_tokens);
  std::vector<double> capacities;
  for (const WvaReplica& replica : replicas) {
    demand += replica.tokens_in_use + replica.waiting * lengths.input_tokens;
    capacities.push_back(
        std::min(options_.kv_cache_threshold * engine_.kv_capacity_tokens, compute_capacity(replica, lengths)));
  }
  const double capacity = median(std::move(capacities));
  const int now = ready + pending;
  if (capacity <= 0) return now;
  const double required = demand / options_.scale_up_threshold - now * capacity;
  if (required > kRounding) return now + static_cast<int>(std::ceil(required / capacity - kRounding));
  const double spare = ready * capacity - demand / options_.scale_down_boundary;
  if (spare > kRounding) return now - std::min(now - 1, static_cast<int>(std::floor(spare / capacity + kRounding)));
  return now;
}

BaselineWva::BaselineWva(BaselineDeployment deployment, const WvaOptions& options)
    : deployment_(deployment),
      options_(options),
      engine_{deployment.pool().model->kv_capacity_tokens(), deployment.slots(),
              deployment.pool().spec.engine.max_batch_tokens},
      rule_(options, engine_),
      hpa_(on_wanted_replicas(options.hpa)) {}

void BaselineWva::look(double now_s, const ObservedService& seen) {
  std::map<int, std::deque<Look>> looks;
  for (const ObservedWorker& worker : seen.workers) {
    if (worker.phase != WorkerPhase::kReady) continue;
    std::deque<Look>& of = looks[worker.worker];
    if (const auto before = looks_.find(worker.worker); before != looks_.end()) of = std::move(before->second);
    of.push_back({now_s, worker.kv_use * engine_.kv_capacity_tokens, worker.waiting});
    while (of.front().at_s <= now_s - options_.metrics_window_s) of.pop_front();
  }
  looks_ = std::move(looks);
  totals_.push_back({now_s, seen.completed, seen.input_tokens, seen.output_tokens});
  while (totals_.size() > 2 && totals_[1].at_s <= now_s - options_.lengths_window_s) totals_.pop_front();
}

WvaLengths BaselineWva::lengths() const {
  const Totals& from = totals_.front();
  const Totals& to = totals_.back();
  const auto count = static_cast<double>(to.completed - from.completed);
  if (count <= 0) return {};
  return {static_cast<double>(to.input_tokens - from.input_tokens) / count,
          static_cast<double>(to.output_tokens - from.output_tokens) / count};
}

ClusterOrders BaselineWva::decide(const ClusterObservation& observation) {
  const ObservedService& seen = observation.services.front();
  look(observation.now_s, seen);
  const ReplicaCount count = count_replicas(seen);
  if (observation.now_s >= next_s_ - 1e-6) {
    next_s_ = observation.now_s + options_.interval_s;
    std::vector<WvaReplica> replicas;
    for (const auto& [worker, looks] : looks_) {
      WvaReplica peak;
      for (const Look& at : looks) {
        peak.tokens_in_use = std::max(peak.tokens_in_use, at.tokens_in_use);
        peak.waiting = std::max(peak.waiting, at.waiting);
      }
      replicas.push_back(peak);
    }
    wanted_ = rule_.decide(replicas, count.starting, seen.queued, lengths());
  }
  return deployment_.scale_to(seen, hpa_.decide(observation.now_s, count.all(), wanted_));
}

}  // namespace windlass::sim
