// change roles lets workers take the other role of a split service while they run, as the plan lists it
// (docs/decisions/2026-12-01-roles-at-run-time.md).
//
// A worker is marked first, drains, and is then told. From the mark on it counts for its new pool.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/reconcile/apply/step.h"
#include "controller/reconcile/routes.h"

namespace windlass::controller {
namespace {

constexpr double kCallTimeoutS = 1;  // a worker answers at once
constexpr double kTriesS = 60;       // after its drain; then it counts as one that refuses

enum class Told { kYes, kLater, kNever };

// Tells the worker its new role. kNever: it refuses for good.
Told tell(ApplyStep& step, const Worker& worker) {
  const std::string what = "changing the role of " + chain_id(worker);
  kube::HttpRequest request{.method = "POST",
                            .url = fmt::format("http://{}/role", worker.address),
                            .headers = {{"Authorization", "Bearer " + worker.duty_token}, {"Content-Type", "application/json"}},
                            .body = nlohmann::json{{"role", worker.role}}.dump(),
                            .timeout_s = kCallTimeoutS};
  const auto answer = step.context.workers.send(request);
  if (answer.ok() && answer->status == 200) return Told::kYes;
  step.applied.errors.push_back(answer.ok() ? fmt::format("{}: status {}: {}", what, answer->status, answer->body)
                                            : answer.error().within(what).message);
  constexpr int kClientError = 400, kTimeout = 408, kTooMany = 429, kServerError = 500;
  const int status = answer.ok() ? answer->status : 0;
  const bool refused = kClientError <= status && status < kServerError && status != kTimeout && status != kTooMany;
  return refused ? Told::kNever : Told::kLater;
}

// The workers that may change to the wanted pool, the least busy first.
std::vector<const Worker*> candidates(const ApplyStep& step, const ServiceStep& own, const planner::RoleChange& change,
                                      const Wanted& wanted) {
  std::vector<const Worker*> found;
  for (const Worker* worker : own.active) {
    const bool may = !worker->duty_token.empty() && !worker->address.empty() && !worker->node_leaving;
    const bool healthy = worker->serves_its_role() && worker->trouble == planner::WorkerTrouble::kNone;
    const bool of_pool =
        pool_of(*worker) == planner::PoolId{change.pool, change.from} && worker->max_concurrency >= wanted.spec.max_concurrency;
    if (may && healthy && of_pool && Launch::matches(worker->spec_hash, wanted.hashes)) found.push_back(worker);
  }
  sort_for_draining(step, found);
  return found;
}

}  // namespace

bool begin_role_changes(ApplyStep& step, const ServiceStep& own, const std::vector<Wanted>& pools) {
  bool begun = false;
  for (const planner::RoleChange& change : own.plan.role_changes) {
    const auto to = std::find_if(pools.begin(), pools.end(), [&](const Wanted& wanted) {
      return wanted.pool.id() == planner::PoolId{change.pool, change.to};
    });
    if (to == pools.end()) continue;
    std::vector<const Worker*> workers = candidates(step, own, change, *to);
    workers.resize(std::min(workers.size(), static_cast<std::size_t>(std::max(0, change.workers))));
    for (const Worker* worker : workers) {
      if (!step.may_write()) return true;
      const auto marked = step.context.runtime.begin_role_change(*worker, dispatch::to_string(change.to), step.context.now);
      step.note(marked, "changing the role of " + chain_id(*worker));
      begun = begun || marked.ok() || marked.error().code == ErrorCode::kConflict;
      if (!marked.ok()) continue;
      step.applied.happenings.push_back(
          {&own.service, false, "RoleChanging",
           fmt::format("worker {} changes from {} to {}: {}", worker->name, dispatch::to_string(change.from),
                       dispatch::to_string(change.to), change.why)});
    }
  }
  return begun;
}

void go_on_changing_role(ApplyStep& step, const api::ModelService& service, const Worker& worker) {
  const double drain_timeout_s = service.spec.scaling.drain_timeout_s;
  const double drained_s = drained_for_s(step, worker, *worker.changing_role_since_s, drain_timeout_s);
  step.applied.waiting = true;
  // What it still holds after the timeout, it finishes in its new role. One that is not ready would not answer.
  if (!is_quiet(step, worker) && drained_s < drain_timeout_s) return;
  if (!worker.ready || !step.may_write()) return;
  WorkerRuntime& runtime = step.context.runtime;
  const Told answered = worker.duty_token.empty() ? Told::kNever : tell(step, worker);
  const Told told = answered == Told::kLater && drained_s > drain_timeout_s + kTriesS ? Told::kNever : answered;
  if (told == Told::kYes) {
    const auto ended = runtime.end_role_change(worker);
    step.note(ended, "ending the role change of " + chain_id(worker));
    if (ended.ok()) {
      step.applied.happenings.push_back(
          {&service, false, "RoleChanged", fmt::format("worker {} is a {} worker now", worker.name, worker.role)});
    }
  } else if (told == Told::kNever) {
    const auto drained = runtime.begin_drain(worker, step.context.now);
    step.note(drained, "draining " + chain_id(worker));
    if (drained.ok()) {
      step.applied.happenings.push_back(
          {&service, true, "RoleChangeRefused",
           fmt::format("worker {} cannot become a {} worker while it runs; another one replaces it", worker.name,
                       worker.role)});
    }
  }
}

}  // namespace windlass::controller
