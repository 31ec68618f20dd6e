// create: decides whether the cluster would take a pool's workers, how many may be made now, and in which slots.
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

// Where a pool's workers cannot be made now.
struct Slots {
  std::set<int> held;   // their turn, but not yet
  std::set<int> taken;  // their names are in use, by workers that are going or have another role too
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
    // One that failed is followed in its own slot, where its failures are counted; the others need not wait for it.
    const bool failed_here = pool_of(worker) == pool && (worker.finished || worker.terminating) &&
                             worker.trouble != planner::WorkerTrouble::kNodeLost &&
                             (backoffs.find({pool, worker.slot, FailureKind::kEnded}) != nullptr ||
                              backoffs.find({pool, worker.slot, FailureKind::kFailing}) != nullptr);
    (failed_here ? slots.held : slots.taken).insert(worker.slot);
  }
  const api::ObjectMeta& metadata = own.service.metadata;
  const Observation& observation = step.context.observation;
  for (const std::vector<Worker>* former : {&observation.orphans, &observation.strays}) {
    for (const Worker& worker : *former) {  // of an earlier service of this name
      const bool same_name = worker.name_space == metadata.name_space && worker.service == metadata.name;
      if (same_name && worker.pool == pool.name) slots.taken.insert(worker.slot);
    }
  }
  return slots;
}

// Creates one worker. False: no further one of the pool can be made now.
bool create(ApplyStep& step, ServiceStep& own, const planner::Pool& pool, int slot, const Launch& spec) {
  Backoffs& backoffs = own.memory.backoffs;
  own.asked_for.push_back({spec.pool, slot, spec.accelerator, spec.gpus});
  const auto created = step.context.runtime.create(spec);
  if (created.ok()) {
    backoffs.accepted(pool.id(), slot);
    step.applied.changed = true;
    step.applied.happenings.push_back({&own.service, false, "WorkerCreated",
                                       fmt::format("created worker {} on {} x {}", spec.name, spec.gpus, spec.accelerator)});
    return true;
  }
  const ErrorCode code = created.error().code;
  // The name is there although we do not see it yet: a matter of this slot alone. It counts, so that a cache which lags
  // behind makes no worker too many.
  const bool of_slot = code == ErrorCode::kAlreadyExists;
  const FailureKind kind = code == ErrorCode::kResourceExhausted ? FailureKind::kQuota : FailureKind::kCreate;
  back_off(step, own, {pool.id(), of_slot ? slot : kWholePool, kind}, spec.name, created.error(),
           kind == FailureKind::kQuota ? "QuotaExceeded" : "CreateFailed");
  return of_slot && !backoffs.holds(pool.id(), step.now_s());
}

// Creates `count` workers in the lowest slots.
void create_some(ApplyStep& step, ServiceStep& own, const Wanted& wanted, int count) {
  const planner::Pool& pool = wanted.pool;
  if (own.memory.backoffs.holds(pool.id(), step.now_s())) {
    step.applied.waiting = true;
    return;
  }
  const Slots slots = slots_of(step, own, pool.id());
  for (int slot = 0; count > 0; ++slot) {
    if (slots.taken.contains(slot)) continue;
    const Launch spec = worker_spec(own.service, pool, slot, wanted.accelerator);
    if (step.context.runtime.name_taken(spec.name_space, spec.name)) continue;  // somebody else's
    if (!step.may_write()) return;
    --count;
    if (slots.held.contains(slot)) {  // its turn, but not yet; the others need not wait for it
      step.applied.waiting = true;
    } else if (!create(step, own, pool, slot, spec)) {
      return;
    }
  }
}

}  // namespace

// Whether the cluster would take workers of this pool as the spec has them now. Asked once for each new spec, before anything
// that runs is touched for it.
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
    // A quota is no word on what the worker is; creating it will meet it again, where that matters.
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

// `mine`: the pool's workers that are as it wants them, fewer than planned. Workers of this pool that are outdated stand in the
// new ones' place until they go: one more than planned at a time, and that only where every budget leaves it.
void create_missing(ApplyStep& step, ServiceStep& own, const Wanted& wanted, const std::vector<const Worker*>& mine) {
  const planner::Pool& pool = wanted.pool;
  const int missing = pool.workers - static_cast<int>(mine.size());
  const int live = static_cast<int>(
      std::count_if(own.active.begin(), own.active.end(), [&](const Worker* worker) { return pool_of(*worker) == pool.id(); }));
  const bool replacing = live > static_cast<int>(mine.size());
  // A surge comes on top of those that the plan is owed; next to a lost worker they come one by one.
  const int more = own.lost.empty() ? std::max(0, pool.workers - live) + 1 : 1;
  const bool room = (replacing || !own.lost.empty()) && has_room(step, own, wanted, more);
  const int surge = replacing && room ? 1 : 0;
  int may = std::clamp(pool.workers + surge - live, 0, missing);
  if (may > 0 && !own.lost.empty()) {
    // A successor elsewhere may stand next to the lost one only inside every budget.
    if (!room) give_up(step, own.service, *own.lost.front());
    may = room ? 1 : 0;
  }
  // What this pool is planned to have fits next to what others are planned to keep, but those that are to go may be there yet:
  // they make room first.
  int fits = 0;
  while (fits < may && inside_budget(step, own, pool, fits + 1)) ++fits;
  if (fits > 0) create_some(step, own, wanted, fits);
  // The next one makes room only once those that came before it serve.
  const bool all_serve = std::all_of(mine.begin(), mine.end(), [](const Worker* worker) { return worker->ready; });
  const bool none_fits = may > 0 && fits == 0;
  own.wants_room = own.wants_room || none_fits || (replacing && surge == 0 && fits == 0 && all_serve);
}

}  // namespace windlass::controller
