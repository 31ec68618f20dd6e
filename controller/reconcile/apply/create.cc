// create decides whether the cluster would accept a pool's workers, how many may be created now, and in which slots.
#include <algorithm>

#include <fmt/format.h>

#include "controller/reconcile/apply/step.h"
#include "controller/reconcile/spec.h"

namespace windlass::controller {
namespace {

void back_off(ApplyStep& step, ServiceStep& own, const Backoffs::Place& place, const std::string& worker, const Error& error,
              const char* code) {
  step.applied.errors.push_back(error.within("creating worker " + worker).message);
  step.applied.waiting = true;
  Backoffs& backoffs = own.memory.backoffs;
  const Backoff* before = backoffs.find(place);
  const bool news = before == nullptr || before->message != error.message;
  (void)backoffs.failed(place, step.now_s(), code, error.message, step.context.runtime.not_before_s() - step.now_s());
  if (news) step.applied.happenings.push_back({&own.service, true, code, error.message});
}

// Slots in which no worker of the pool can be created now.
struct Slots {
  std::set<int> held;   // in back-off
  std::set<int> taken;  // in use, by workers that are going or that have another role too
};

Slots slots_of(const ApplyStep& step, const ServiceStep& own, const planner::PoolId& pool) {
  const Backoffs& backoffs = own.memory.backoffs;
  Slots slots{backoffs.held_slots(pool, step.now_s()), {}};
  for (const planner::Pool& other : own.plan.pools) {
    if (other.name == pool.name && other.role != pool.role) slots.taken.merge(backoffs.held_slots(other.id(), step.now_s()));
  }
  for (const AskedFor& worker : own.asked_for) {
    if (worker.pool == pool.name) slots.taken.insert(worker.slot);
  }
  for (const Worker& worker : own.workers) {
    if (worker.pool != pool.name) continue;
    // A failed worker's successor uses the same slot, which counts the failures. Other slots need not wait for it.
    const bool failed_here = pool_of(worker) == pool && (worker.finished || worker.terminating) &&
                             worker.trouble != planner::WorkerTrouble::kNodeLost &&
                             (backoffs.find({pool, worker.slot, FailureKind::kEnded}) != nullptr ||
                              backoffs.find({pool, worker.slot, FailureKind::kFailing}) != nullptr);
    (failed_here ? slots.held : slots.taken).insert(worker.slot);
  }
  const api::ObjectMeta& metadata = own.service.metadata;
  const Observation& observation = step.context.observation;
  for (const std::vector<Worker>* former : {&observation.orphans, &observation.strays}) {
    for (const Worker& worker : *former) {  // of an earlier service with this name
      const bool same_name = worker.name_space == metadata.name_space && worker.service == metadata.name;
      if (same_name && worker.pool == pool.name) slots.taken.insert(worker.slot);
    }
  }
  return slots;
}

// Creates one worker. False: no more workers of the pool can be created now.
bool create(ApplyStep& step, ServiceStep& own, const planner::Pool& pool, int slot, const Launch& spec) {
  Backoffs& backoffs = own.memory.backoffs;
  own.asked_for.push_back({spec.pool, slot, spec.accelerator, {spec.gpus_of_server(), spec.stages}});
  const auto created = step.context.runtime.create(spec);
  if (created.ok()) {
    backoffs.accepted(pool.id(), slot);
    step.applied.changed = true;
    step.applied.happenings.push_back({&own.service, false, "WorkerCreated",
                                       fmt::format("created worker {} on {} x {}", spec.name, spec.gpus, spec.accelerator)});
    return true;
  }
  const ErrorCode code = created.error().code;
  // The name exists although we do not see the pod yet. Only this slot is affected. Count it, so that a lagging cache does not
  // make us create too many.
  const bool of_slot = code == ErrorCode::kAlreadyExists;
  const FailureKind kind = code == ErrorCode::kResourceExhausted ? FailureKind::kQuota : FailureKind::kCreate;
  back_off(step, own, {pool.id(), of_slot ? slot : kWholePool, kind}, spec.name, created.error(),
           kind == FailureKind::kQuota ? "QuotaExceeded" : "CreateFailed");
  return of_slot && !backoffs.holds(pool.id(), step.now_s());
}

// Creates `count` workers in the lowest slots.
void create_some(ApplyStep& step, ServiceStep& own, const Wanted& wanted, int count) {
  const planner::Pool& pool = wanted.pool;
  if (wanted.spec.stages > std::max(1, wanted.spec.layers)) return;  // the model's shape cannot be read now
  if (own.memory.backoffs.holds(pool.id(), step.now_s())) {
    step.applied.waiting = true;
    return;
  }
  const Slots slots = slots_of(step, own, pool.id());
  for (int slot = 0; count > 0; ++slot) {
    if (slots.taken.contains(slot)) continue;
    Launch spec = worker_spec(own.service, pool, slot, wanted.accelerator, own.layers());
    spec.max_concurrency = wanted.spec.max_concurrency;
    if (own.observed.shape) request_resources(wanted.accelerator, *own.observed.shape, spec);
    if (step.context.runtime.name_taken(spec.name_space, spec.name)) continue;  // not one of ours
    if (!step.may_write()) return;
    --count;
    if (slots.held.contains(slot)) {  // in back-off; other slots need not wait for it
      step.applied.waiting = true;
    } else if (!create(step, own, pool, slot, spec)) {
      return;
    }
  }
}

}  // namespace

// Whether the cluster would accept workers of this pool with the current spec. Checked once per new spec, before any running
// worker is touched for it.
bool accepted(ApplyStep& step, ServiceStep& own, const Wanted& wanted) {
  const planner::Pool& pool = wanted.pool;
  if (pool.workers == 0) return true;
  std::string& known = own.memory.accepted_specs[pool.id()];
  if (known == wanted.hashes) return true;
  Backoffs& backoffs = own.memory.backoffs;
  const bool runs = std::any_of(own.active.begin(), own.active.end(), [&](const Worker* worker) { return wanted.is(*worker); });
  if (!runs) {
    if (backoffs.holds(pool.id(), step.now_s()) || !step.may_write()) {
      step.applied.waiting = true;
      return false;
    }
    const auto checked = step.context.runtime.check(wanted.spec);
    // A quota says nothing about the spec itself. Creating the worker will run into it if it matters.
    if (!checked.ok() && checked.error().code != ErrorCode::kResourceExhausted) {
      const bool refused =
          checked.error().code == ErrorCode::kInvalidArgument || checked.error().code == ErrorCode::kPermissionDenied;
      const bool of_template = refused && !wanted.spec.pod_template_json.empty();
      back_off(step, own, {pool.id(), kWholePool, refused ? FailureKind::kTemplate : FailureKind::kCreate}, wanted.spec.name,
               checked.error(), of_template ? "PodTemplateInvalid" : "CreateFailed");
      return false;
    }
    backoffs.accepted(pool.id(), kWholePool);
  }
  known = wanted.hashes;
  return true;
}

// `mine`: the pool's workers that match the plan, fewer than planned. Outdated workers of this pool stand in for the new ones
// until they go. The pool may exceed its planned size by one, and only if every budget allows it.
void create_missing(ApplyStep& step, ServiceStep& own, const Wanted& wanted, const std::vector<const Worker*>& mine) {
  const planner::Pool& pool = wanted.pool;
  const int missing = pool.workers - static_cast<int>(mine.size());
  const int live = static_cast<int>(
      std::count_if(own.active.begin(), own.active.end(), [&](const Worker* worker) { return pool_of(*worker) == pool.id(); }));
  const bool replacing = live > static_cast<int>(mine.size());
  // A surge comes in addition to the workers that the plan lacks. Next to a lost worker, create them one at a time.
  const int more = own.lost.empty() ? std::max(0, pool.workers - live) + 1 : 1;
  const bool room = (replacing || !own.lost.empty()) && has_room(step, own, wanted, more);
  const int surge = replacing && room ? 1 : 0;
  int may = std::clamp(pool.workers + surge - live, 0, missing);
  if (may > 0 && !own.lost.empty()) {
    // A replacement may run in addition to the lost worker only within every budget.
    if (!room) give_up(step, own.service, *own.lost.front());
    may = room ? 1 : 0;
  }
  // This pool's planned size fits next to the planned sizes of others, but workers that must go may still be there; they make
  // room first.
  int fits = 0;
  while (fits < may && inside_budget(step, own, pool, fits + 1)) ++fits;
  if (fits > 0) create_some(step, own, wanted, fits);
  // Free room for the next worker only once the earlier new ones are ready.
  const bool all_serve = std::all_of(mine.begin(), mine.end(), [](const Worker* worker) { return worker->serves_its_role(); });
  const bool none_fits = may > 0 && fits == 0;
  own.wants_room = own.wants_room || none_fits || (replacing && surge == 0 && fits == 0 && all_serve);
}

}  // namespace windlass::controller
