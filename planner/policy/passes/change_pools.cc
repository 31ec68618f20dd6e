// The "Change" pass: decides which workers of an earlier configuration stay until the new ones are ready. See passes.h.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/policy/passes/claims.h"
#include "planner/policy/passes/fit_on_nodes.h"
#include "planner/policy/passes/passes.h"
#include "planner/policy/side_pools.h"
#include "planner/policy/trouble.h"

namespace windlass::planner {
namespace {

int count_ready(const Service& service, const PoolId& pool) {
  return static_cast<int>(std::count_if(service.workers.begin(), service.workers.end(),
                                        [&](const Worker& w) { return w.pool_id() == pool && serves(w); }));
}

bool allows(const Service& service, const std::string& accelerator) {
  return service.accelerators.empty() ||
         std::any_of(service.accelerators.begin(), service.accelerators.end(),
                     [&](const AllowedAccelerator& one) { return one.accelerator == accelerator; });
}

// Whether its workers have just started: nothing is lost if they go at once.
bool is_fresh_pool(const Service& service, const PoolId& pool, double now_s) {
  return std::all_of(service.workers.begin(), service.workers.end(), [&](const Worker& worker) {
    return worker.pool_id() != pool || worker.state == WorkerState::kDraining || is_fresh(worker, now_s);
  });
}

// Keeps workers of earlier configurations that the service still needs, within the free and draining GPUs.
void keep_needed(Draft& draft, const FleetDraft& fleet) {
  const Service& service = *draft.service;
  int still_needed = std::max(0, std::max(1, draft.target.allowed) - count_ready(service, draft.chosen->pool.id()));
  if (draft.target.allowed == 0) still_needed = 0;
  std::map<std::string, int> left = free_or_coming(fleet);
  for (Configuration pool : draft.as_is) {
    if (draft.is_planned(pool.pool.id())) continue;
    const Configuration* second = second_class(draft, pool.pool.id());
    const bool only_one = count_existing(service, draft.chosen->pool.id()) == 0;  // then it need not be a second class
    if ((second == nullptr || only_one) && is_fresh_pool(service, pool.pool.id(), fleet.snapshot->now_s)) continue;
    const int affordable = std::max(0, left[pool.pool.spec.accelerator]) / std::max(1, pool.pool.spec.gpus());
    const bool held = !draft.view.complete && draft.target.allowed > 0 && allows(service, pool.pool.spec.accelerator);
    const int existing = count_existing(service, pool.pool.id());
    // A slower class needs more workers for the same demand.
    const double worth = second != nullptr ? std::min(1.0, worth_of(draft, *second)) : 1.0;
    const int of_these = worth > 0 ? static_cast<int>(std::min(1e6, std::ceil(still_needed / worth - 1e-9))) : still_needed;
    pool.pool.workers = std::min({held ? existing : of_these, existing, affordable});
    still_needed = std::max(0, still_needed - static_cast<int>(std::floor(pool.pool.workers * (worth > 0 ? worth : 1) + 1e-9)));
    left[pool.pool.spec.accelerator] -= gpus_of(pool);
    if (pool.pool.workers > 0) draft.retiring.push_back(std::move(pool));
  }
}

// GPUs of a class being drained, by any service. They will be free soon, so they must not cost another worker at every plan
// until then.
int coming_gpus(const Draft& draft, const FleetDraft& fleet, const std::string& accelerator) {
  int own = 0;
  for (const Worker& worker : draft.service->workers) {
    if (worker.state == WorkerState::kDraining && worker.accelerator == accelerator) own += worker.gpus;
  }
  const auto all = fleet.coming_gpus.find(accelerator);
  return all == fleet.coming_gpus.end() ? own : std::max(own, all->second);
}

// How many of `workers` of the new configuration have a node, or find one next to the retiring workers.
int workers_on_nodes(const Draft& draft, const FleetDraft& fleet, int workers) {
  const NodeFit fit = fit_on_nodes(fleet, {claim_of(draft, fleet.snapshot->now_s)}, {workers}, true);
  return std::min(workers, fit.most.front());
}

// Workers of the new configuration that must have room now: the first, and another one whenever all of them serve. At most as
// many as the service's limits, the GPUs that no other service holds and the nodes allow. REQUIRES: no pool retires.
int workers_due(const Draft& draft, const FleetDraft& fleet) {
  const Service& service = *draft.service;
  const Pool& pool = draft.chosen->pool;
  const int existing = count_existing(service, pool.id());
  const bool all_serve = draft.view.complete && count_ready(service, pool.id()) == existing;
  const int gpus =
      available_to(service, fleet.capacities, pool.spec.accelerator) + coming_gpus(draft, fleet, pool.spec.accelerator);
  const int most = workers_on_nodes(draft, fleet, std::min(draft.target.allowed, gpus / std::max(1, pool.spec.gpus())));
  return std::clamp(existing + (all_serve ? 1 : 0), 1, std::max(1, most));
}

// Whether retiring workers keep this many of the new configuration from their GPUs, or exceed the service's own limits.
bool blocks(const Draft& draft, const FleetDraft& fleet, int due) {
  const Configuration& chosen = *draft.chosen;
  const std::string& accelerator = chosen.pool.spec.accelerator;
  const Retiring sum = sum_retiring(draft);
  const int held = sum.gpus_of(accelerator);
  const int left = fleet.free_gpus.at(accelerator) + coming_gpus(draft, fleet, accelerator) - held;
  // The first worker starts without its share of the side pools.
  const std::vector<int> beside = due > 1 ? draft.sides.workers(due) : std::vector<int>(draft.sides.pools.size(), 0);
  return (held > 0 && (left < due * chosen.pool.spec.gpus() || workers_on_nodes(draft, fleet, due) < due)) ||
         !objection_to(*draft.service, chosen, draft.sides, sum, due, beside).code.empty();
}

void change(Draft& draft, FleetDraft& fleet) {
  keep_needed(draft, fleet);
  if (draft.retiring.empty()) return;
  std::vector<Configuration> retiring = std::exchange(draft.retiring, {});
  const int due = workers_due(draft, fleet);
  draft.retiring = std::move(retiring);
  while (!draft.retiring.empty() && blocks(draft, fleet, due)) {
    if (--draft.retiring.back().pool.workers == 0) draft.retiring.pop_back();
  }
  const Configuration& chosen = *draft.chosen;
  for (const Configuration& pool : draft.retiring) {
    if (second_class(draft, pool.pool.id()) == nullptr) fleet.free_gpus[pool.pool.spec.accelerator] -= gpus_of(pool);
    draft.plan.reasons.push_back(Reason{"ConfigurationChange",
                                        fmt::format("{} workers of pool {} stay until the same number of pool {} are ready",
                                                    pool.pool.workers, title(pool.pool.id()), title(chosen.pool.id())),
                                        {{"from", pool.pool.name}, {"to", chosen.pool.name}}});
  }
}

}  // namespace

void change_pools(FleetDraft& fleet) {
  // Services that stay unchanged keep their GPUs before any other changes or grows.
  for (const Draft& draft : fleet.services) {
    if (draft.applies()) continue;
    for (const Configuration& pool : draft.as_is) fleet.free_gpus[pool.pool.spec.accelerator] -= gpus_of(pool);
  }
  for (Draft& draft : fleet.services) {
    if (!draft.applies()) continue;
    change(draft, fleet);
    if (!draft.retiring.empty()) set_target(draft, fleet.snapshot->now_s);
  }
}

}  // namespace windlass::planner
