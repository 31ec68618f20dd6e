// The "Change" pass: decides which workers of an earlier configuration stay until the new ones are ready. See passes.h.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "planner/policy/passes/claims.h"
#include "planner/policy/passes/fit_on_nodes.h"
#include "planner/policy/passes/passes.h"
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

// Whether the first worker of the new configuration has a node, or finds one next to the retiring workers.
bool first_has_node(const Draft& draft, const FleetDraft& fleet) {
  const WorkerSpec& spec = draft.chosen->pool.spec;
  const ClassCapacity& capacity = fleet.capacities.at(spec.accelerator);
  // A node with room next to all workers saves the look at each of them, unless one without a node may take that room.
  if (!capacity.nodes || (spec.pipeline_stages == 1 && capacity.pending.empty() && capacity.largest_free >= spec.gpus()))
    return true;
  return fit_on_nodes(fleet, {claim_of(draft, fleet.snapshot->now_s)}, {1}, true).most.front() >= 1;
}

// The retiring pool that must give up a worker, so that the first worker of the new configuration gets its GPUs on a node, its
// share of them, or its money; the end if none stands in its way.
std::vector<Configuration>::iterator in_the_way(Draft& draft, const FleetDraft& fleet) {
  const Service& service = *draft.service;
  const Configuration& chosen = *draft.chosen;
  const std::string& accelerator = chosen.pool.spec.accelerator;
  const int gpus = chosen.pool.spec.gpus();
  const Retiring sum = sum_retiring(draft);
  const auto& budget = service.scaling.max_cost_per_hour;
  if (budget && sum.cost_per_hour + chosen.price_per_hour > *budget + 1e-9) return draft.retiring.end() - 1;
  const auto last = std::find_if(draft.retiring.rbegin(), draft.retiring.rend(),
                                 [&](const Configuration& pool) { return pool.pool.spec.accelerator == accelerator; });
  if (last == draft.retiring.rend()) return draft.retiring.end();  // others hold the GPUs, and no worker here can free them
  // GPUs already being drained, by any service, will be free soon: they must not cost another worker at every plan until then.
  int coming = 0;
  for (const Worker& worker : service.workers) {
    if (worker.state == WorkerState::kDraining && worker.accelerator == accelerator) coming += worker.gpus;
  }
  if (const auto all = fleet.coming_gpus.find(accelerator); all != fleet.coming_gpus.end())
    coming = std::max(coming, all->second);
  const int retiring = sum.gpus_of(accelerator);
  const bool no_gpus = fleet.free_gpus.at(accelerator) + coming - retiring < gpus;
  const bool no_share = chosen.max_gpus && *chosen.max_gpus - retiring < gpus;
  return no_gpus || no_share || !first_has_node(draft, fleet) ? std::prev(last.base()) : draft.retiring.end();
}

void change(Draft& draft, FleetDraft& fleet) {
  keep_needed(draft, fleet);
  if (draft.retiring.empty()) return;
  while (!draft.retiring.empty()) {
    const auto pool = in_the_way(draft, fleet);
    if (pool == draft.retiring.end()) break;
    if (--pool->pool.workers == 0) draft.retiring.erase(pool);
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
