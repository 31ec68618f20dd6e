// See policy_autoscaler.h.
#include "planner/sim/policy_autoscaler.h"

#include <algorithm>
#include <cassert>
#include <set>
#include <tuple>

#include "planner/policy/make_plan.h"

namespace windlass::sim {
namespace {

planner::WorkerState state_of(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kStarting: return planner::WorkerState::kStarting;
    case WorkerPhase::kReady: return planner::WorkerState::kReady;
    case WorkerPhase::kDraining:
    case WorkerPhase::kEnded: return planner::WorkerState::kDraining;
  }
  return planner::WorkerState::kDraining;
}

}  // namespace

PolicyAutoscaler::PolicyAutoscaler(PolicyAutoscalerOptions options)
    : options_(std::move(options)), history_(options_.services.size()) {
  snapshot_.accelerators = options_.accelerators;
  snapshot_.services = options_.services;
}

const PolicyAutoscaler::Totals& PolicyAutoscaler::before(std::size_t service, double seconds) const {
  const auto& history = history_[service];
  const double from_s = history.back().time_s - seconds;
  // The latest that is at least so old, or else the oldest.
  auto at = std::upper_bound(history.begin(), history.end(), from_s + 1e-9,
                             [](double time_s, const Totals& totals) { return time_s < totals.time_s; });
  return at == history.begin() ? history.front() : *(at - 1);
}

planner::Demand PolicyAutoscaler::demand(std::size_t service, double now_s) const {
  planner::Demand demand;
  const double at_s = now_s - options_.metrics_age_s;
  const Totals& now = history_[service].back();
  demand.arrivals_window_s = options_.arrivals_window_s;
  demand.queued = planner::Reading{static_cast<double>(now.seen.queued), at_s};
  if (now.seen.last_arrival_s >= 0) demand.last_arrival_at_s = now.seen.last_arrival_s;
  const Totals& earlier = before(service, options_.arrivals_window_s);
  if (now.time_s > earlier.time_s) {
    const double rate = static_cast<double>(now.seen.arrived - earlier.seen.arrived) / (now.time_s - earlier.time_s);
    demand.arrivals_per_s = planner::Reading{rate, at_s};
  }
  const Totals& measured = before(service, options_.lengths_window_s);
  const auto count = static_cast<double>(now.seen.completed - measured.seen.completed);
  if (count >= options_.min_measured) {
    demand.input_tokens =
        planner::Reading{static_cast<double>(now.seen.input_tokens - measured.seen.input_tokens) / count, at_s};
    demand.output_tokens =
        planner::Reading{static_cast<double>(now.seen.output_tokens - measured.seen.output_tokens) / count, at_s};
  }
  const Totals& judged = before(service, options_.services[service].slo.window_s);
  const auto ended = static_cast<double>(now.seen.completed + now.seen.failed - judged.seen.completed - judged.seen.failed);
  if (ended > 0)
    demand.attainment = planner::Reading{static_cast<double>(now.seen.attained - judged.seen.attained) / ended, at_s};
  return demand;
}

ClusterOrders PolicyAutoscaler::decide(const ClusterObservation& observation) {
  assert(observation.services.size() == options_.services.size());
  snapshot_.now_s = observation.now_s;
  for (std::size_t s = 0; s < observation.services.size(); ++s) {
    const ObservedService& seen = observation.services[s];
    Totals totals{observation.now_s, seen};
    totals.seen.workers.clear();
    auto& history = history_[s];
    history.push_back(std::move(totals));
    const double longest_s =
        std::max({options_.arrivals_window_s, options_.lengths_window_s, options_.services[s].slo.window_s});
    while (history.size() > 2 && history[1].time_s <= observation.now_s - longest_s) history.pop_front();

    planner::Service& service = snapshot_.services[s];
    service.demand = demand(s, observation.now_s);
    service.workers.clear();
    std::map<std::string, int> next_slot;
    for (const ObservedWorker& worker : seen.workers) {
      planner::Worker described;
      described.name = "worker-" + std::to_string(worker.worker);
      described.pool = worker.pool->name;
      described.slot = next_slot[worker.pool->name]++;
      described.accelerator = worker.pool->accelerator;
      described.gpus = worker.pool->gpus_per_worker;
      described.state = state_of(worker.phase);
      described.created_s = worker.created_s;
      described.max_concurrency = worker.pool->engine.max_sequences;
      if (worker.phase != WorkerPhase::kStarting) {
        const double at_s = observation.now_s - options_.metrics_age_s;
        described.ready_s = worker.ready_s;
        described.running = planner::Reading{static_cast<double>(worker.running), at_s};
        described.waiting = planner::Reading{static_cast<double>(worker.waiting), at_s};
      }
      service.workers.push_back(std::move(described));
    }
  }

  plan_ = planner::make_plan(snapshot_);
  ClusterOrders orders;
  for (std::size_t s = 0; s < plan_.services.size(); ++s) {
    planner::Service& service = snapshot_.services[s];
    const planner::ServicePlan& plan = plan_.services[s];
    carry_out(static_cast<int>(s), plan, observation.services[s], orders);
    service.memory = plan.memory;
    service.last_desired = plan.desired_workers();
  }
  for (const planner::Denied& denied : plan_.denied)
    denied_worker_s_[denied.code] += (denied.wanted_workers - denied.granted_workers) * options_.interval_s;
  return orders;
}

const ServingPool* PolicyAutoscaler::find_or_make(int service, const planner::PoolPlan& plan) {
  auto& made = pools_[{service, plan.name}];
  if (made) return made.get();
  auto pool = options_.pool(service, plan.accelerator, plan.gpus_per_worker);
  if (!pool.ok()) {
    if (problem_.ok()) problem_ = pool.error();
    return nullptr;
  }
  made = std::make_unique<ServingPool>(std::move(pool).value());
  made->name = plan.name;
  made->accelerator = plan.accelerator;
  made->engine.max_sequences = plan.max_concurrency;
  return made.get();
}

void PolicyAutoscaler::carry_out(int service, const planner::ServicePlan& plan, const ObservedService& seen,
                                 ClusterOrders& orders) {
  std::map<std::string, std::vector<const ObservedWorker*>> active;
  for (const ObservedWorker& worker : seen.workers) {
    if (worker.phase == WorkerPhase::kStarting || worker.phase == WorkerPhase::kReady)
      active[worker.pool->name].push_back(&worker);
  }
  std::map<std::string, int> wanted;
  for (const planner::PoolPlan& pool : plan.pools) {
    wanted[pool.name] = pool.workers;
    const int there = static_cast<int>(active[pool.name].size());
    if (pool.workers > there) {
      if (const ServingPool* made = find_or_make(service, pool)) orders.start.push_back({service, made, pool.workers - there});
    }
    int& slots = slots_[{service, pool.name}];
    if (slots != pool.slots) {
      slots = pool.slots;
      orders.slots.push_back({service, pool.name, pool.slots});
    }
    int& desired = desired_.try_emplace({service, pool.name}, -1).first->second;
    if (std::exchange(desired, pool.workers) != pool.workers)
      decisions_.push_back({snapshot_.now_s, service, pool.name, pool.workers, plan.reasons});
  }
  for (auto& [name, workers] : active) {
    const int surplus = static_cast<int>(workers.size()) - (wanted.contains(name) ? wanted.at(name) : 0);
    // Those that give least go first: not ready, then fewest requests, then the latest.
    std::sort(workers.begin(), workers.end(), [](const ObservedWorker* a, const ObservedWorker* b) {
      const auto worth = [](const ObservedWorker& w) {
        return std::tuple(w.phase == WorkerPhase::kReady, w.running + w.waiting, -w.worker);
      };
      return worth(*a) < worth(*b);
    });
    for (int i = 0; i < surplus; ++i) orders.drain.push_back(workers[static_cast<std::size_t>(i)]->worker);
    if (!wanted.contains(name)) {
      int& desired = desired_.try_emplace({service, name}, -1).first->second;
      if (std::exchange(desired, 0) != 0) decisions_.push_back({snapshot_.now_s, service, name, 0, plan.reasons});
    }
  }
}

}  // namespace windlass::sim
