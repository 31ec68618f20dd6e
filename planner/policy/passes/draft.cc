// See draft.h.
#include "planner/policy/passes/draft.h"

#include <algorithm>
#include <cmath>

#include "planner/policy/side_pools.h"

namespace windlass::planner {

FleetDraft draft_of(const Snapshot& snapshot) {
  FleetDraft fleet;
  fleet.snapshot = &snapshot;
  fleet.capacities = capacity_by_class(snapshot);
  for (const auto& [name, capacity] : fleet.capacities) {
    fleet.free_gpus[name] = capacity.limit - capacity.draining;
    fleet.coming_gpus[name] = capacity.coming;
  }
  fleet.services.resize(snapshot.services.size());
  for (std::size_t i = 0; i < snapshot.services.size(); ++i) {
    Draft& draft = fleet.services[i];
    draft.service = &snapshot.services[i];
    draft.plan.id = draft.service->id;
    draft.plan.generation = draft.service->generation;
  }
  return fleet;
}

std::map<std::string, int> free_or_coming(const FleetDraft& fleet) {
  std::map<std::string, int> gpus = fleet.free_gpus;
  for (const auto& [name, coming] : fleet.coming_gpus) gpus[name] += coming;
  return gpus;
}

const char* shortage_of(const FleetDraft& fleet, const WorkerSpec& spec) {
  const auto nodes = fleet.free_on_nodes.find(spec.accelerator);
  if (nodes == fleet.free_on_nodes.end() || fleet.free_gpus.at(spec.accelerator) < spec.gpus()) return "InsufficientCapacity";
  int free = 0, largest = 0;
  for (const auto& [name, gpus] : nodes->second) {
    free += std::max(0, gpus);
    largest = std::max(largest, gpus);
  }
  return free >= spec.gpus() && largest < spec.tensor_parallel ? "NoRoomOnOneNode" : "InsufficientCapacity";
}

bool is_refused(const Service& service, double now_s) { return service.refused && now_s < service.refused->until_s; }

int gpus_of(const Configuration& configuration) { return configuration.pool.workers * configuration.pool.spec.gpus(); }

Retiring sum_retiring(const Draft& draft) {
  Retiring sum;
  for (const Configuration& pool : draft.retiring) {
    sum.cost_per_hour += pool.pool.workers * pool.price_per_hour;
    sum.gpus[pool.pool.spec.accelerator] += gpus_of(pool);
  }
  return sum;
}

void set_target(Draft& draft, double now_s) {
  const Retiring retiring = sum_retiring(draft);
  const Service& service = *draft.service;
  const bool over = starts_over(service, draft.memory, now_s, draft.view);
  if (draft.sides.empty()) {
    draft.target = decide_target(service, draft.memory, now_s, draft.view, *draft.chosen, retiring, over);
  } else {
    const Service side = chosen_side(service, draft.sides);
    draft.target = decide_target(side, draft.memory, now_s, draft.view, *draft.chosen, retiring, over);
    draft.sides_wanted = limit_units(service, *draft.chosen, draft.sides, retiring, draft.target);
  }
  draft.sides_granted.assign(draft.sides.pools.size(), 0);
  for (Reason& reason : draft.target.reasons) reason.pass = "Target";  // also if retiring pools make it run again
}

const Configuration* second_class(const Draft& draft, const PoolId& pool) {
  const auto found = std::find_if(draft.others.begin(), draft.others.end(),
                                  [&](const Configuration& other) { return other.pool.id() == pool; });
  return found == draft.others.end() ? nullptr : &*found;
}

double worth_of(const Draft& draft, const Configuration& other) {
  const double chosen = requests_per_s(*draft.chosen), its = requests_per_s(other);
  return chosen > 0 && its > 0 && std::isfinite(its / chosen) ? its / chosen : 0;
}

double missing_workers(const Draft& draft, int chosen_workers) {
  double missing = std::max(draft.target.allowed, draft.target.on_any_class) - chosen_workers;
  for (const Configuration& pool : draft.retiring) {
    const Configuration* second = second_class(draft, pool.pool.id());
    missing -= pool.pool.workers * (second != nullptr ? worth_of(draft, *second) : 1.0);
  }
  return missing;
}

int needed_now(const Draft& draft) { return std::min(draft.target.allowed, draft.target.needed); }

}  // namespace windlass::planner
