// Applies the plan to every service, one verb after another; see apply.h. Each verb is in its own file in apply/.
#include "controller/reconcile/apply.h"

#include <algorithm>
#include <utility>

#include "controller/reconcile/apply/step.h"
#include "controller/reconcile/spec.h"

namespace windlass::controller {
namespace {

ServiceStep service_step(ApplyStep& step, std::size_t i) {
  const api::ModelService& service = *step.context.observation.services[i];
  const std::string& uid = service.metadata.uid;
  ServiceStep own{service, step.context.plan.services.at(i), step.context.observation.workers.at(uid), step.state.services[uid],
                  step.context.observation.snapshot.services.at(i)};
  for (const Worker& worker : own.workers) {
    if (worker.finished || worker.terminating || worker.draining_since_s) continue;
    (worker.trouble == planner::WorkerTrouble::kNodeLost ? own.lost : own.active).push_back(&worker);
  }
  return own;
}

std::vector<Wanted> wanted_pools(const ApplyStep& step, const ServiceStep& own) {
  std::vector<Wanted> all;
  std::erase_if(own.memory.hashed, [&](const auto& one) {
    return std::none_of(own.plan.pools.begin(), own.plan.pools.end(),
                        [&](const planner::Pool& pool) { return pool.id() == one.first; });
  });
  for (const planner::Pool& pool : own.plan.pools) {
    const auto accelerator = step.context.observation.classes.find(pool.spec.accelerator);
    if (accelerator == step.context.observation.classes.end()) continue;  // removed since the plan was made
    Launch spec = worker_spec(own.service, pool, 0, *accelerator->second, own.layers());
    HashedLaunch& last = own.memory.hashed[pool.id()];
    if (last.hashes.empty() || last.launch != spec) last = {spec, spec.known_hashes()};
    all.push_back({pool, *accelerator->second, std::move(spec), last.hashes});
  }
  // Workers of one name may change their role, so each must hold what either role needs.
  for (Wanted& one : all) {
    for (const Wanted& other : all) {
      if (other.pool.name == one.pool.name && one.spec.has_phase() && other.spec.has_phase())
        one.spec.max_concurrency = std::max(one.spec.max_concurrency, other.spec.max_concurrency);
    }
  }
  return all;
}

// If a class cannot be read, it is unknown what its workers should be, so they stay as they are.
void keep_unreadable(const ApplyStep& step, ServiceStep& own) {
  for (const planner::Pool& pool : own.plan.pools) {
    if (step.context.observation.classes.contains(pool.spec.accelerator)) continue;
    for (const Worker* worker : own.active) {
      if (pool_of(*worker) != pool.id()) continue;
      own.current.insert(worker);
      own.ready_current += worker->serves_its_role() ? 1 : 0;
    }
  }
}

// Brings the pool to the planned number of workers.
void fill(ApplyStep& step, ServiceStep& own, const Wanted& wanted) {
  std::vector<const Worker*> mine;
  for (const Worker* worker : own.active) {
    // A worker on a node that is being emptied is replaced elsewhere, like an outdated one.
    if (wanted.is(*worker) && !worker->node_leaving) mine.push_back(worker);
  }
  own.current.insert(mine.begin(), mine.end());
  for (const Worker* worker : mine) {
    own.ready_current += worker->serves_its_role() ? 1 : 0;
    own.wants_room = own.wants_room || worker->unschedulable;
  }
  const int surplus = static_cast<int>(mine.size()) - wanted.pool.workers;
  if (surplus > 0) drain_some(step, own.service, mine, surplus);
  if (surplus < 0) create_missing(step, own, wanted, mine);
}

// Selects the back-off that the service's status reports.
void sum_up(const ApplyStep& step, ServiceMemory& memory, bool all_serve) {
  if (all_serve) memory.backoffs.forget_refusals(step.now_s());
  const Backoff* worst = all_serve ? memory.backoffs.refusal(step.now_s()) : memory.backoffs.worst();
  memory.create_backoff = worst == nullptr ? std::nullopt : std::optional(*worst);
}

void scale(ApplyStep& step, ServiceStep& own) {
  own.memory.backoffs.expire(step.now_s());
  const std::vector<Wanted> pools = wanted_pools(step, own);
  for (const Wanted& wanted : pools) {
    if (accepted(step, own, wanted)) continue;
    sum_up(step, own.memory, false);
    return;  // if new workers cannot be created, keep the running ones
  }
  if (begin_role_changes(step, own, pools)) return sum_up(step, own.memory, false);
  keep_unreadable(step, own);
  for (const Wanted& wanted : pools) fill(step, own, wanted);
  give_up_long_lost(step, own);
  replace_failing(step, own);
  sum_up(step, own.memory, own.ready_current == own.plan.desired_workers());
  replace_outdated(step, own);
}

// Returns the disruption budgets of the services that were handled.
std::vector<DisruptionBudget> act_on_services(ApplyStep& step) {
  const Observation& observation = step.context.observation;
  std::vector<DisruptionBudget> budgets;
  std::size_t& first_service = step.state.first_service;
  const std::size_t count = observation.services.size();
  const std::size_t first = count == 0 ? 0 : first_service % count;
  first_service = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t i = (first + k) % count;
    // Start next time with the first service that this step had no time for, so that none waits forever behind slow ones.
    if (first_service == 0 && step.out_of_time()) first_service = i;
    const api::ModelService& service = *observation.services[i];
    for (const Worker& worker : observation.workers.at(service.metadata.uid)) finish(step, service, worker);
    if (observation.snapshot.services[i].scaling.mode != planner::Mode::kApply) continue;
    ServiceStep own = service_step(step, i);
    scale(step, own);
    budgets.push_back(disruption_budget(own));
  }
  return budgets;
}

void forget_the_gone(ApplyStep& step) {
  std::set<std::string> there, draining;
  for (const auto& [uid, workers] : step.context.observation.workers) {
    for (const Worker& worker : workers) {
      there.insert(worker.uid);
      // One that has changed its role may drain again, and gateways must learn of that again.
      if (worker.draining_since_s || worker.changing_role_since_s) draining.insert(worker.uid);
    }
  }
  std::erase_if(step.state.drains, [&](const auto& one) { return !draining.contains(one.first); });
  std::erase_if(step.state.failing, [&](const std::string& uid) { return !there.contains(uid); });
}

}  // namespace

Applied apply(const ApplyContext& context, ControllerState& state) {
  ApplyStep step{context, state};
  look_for_lost_nodes(step);
  if (step.may_write()) {
    if (const auto settled = context.runtime.settle(context.now); !settled.ok()) {
      step.applied.errors.push_back(settled.error().within("ending the rest of chains").message);
    }
  }
  const std::vector<DisruptionBudget> budgets = act_on_services(step);
  if (const auto set = context.runtime.set_disruption_budgets(budgets); !set.ok()) {
    step.applied.errors.push_back(set.error().within("setting disruption budgets").message);
  }
  for (const Worker& orphan : context.observation.orphans) let_go(step, orphan);
  for (const Worker& stray : context.observation.strays) {
    if (stray.finished) release(step, stray);
  }
  forget_the_gone(step);
  return std::move(step.applied);
}

}  // namespace windlass::controller
