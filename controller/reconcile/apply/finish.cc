// finish decides when a draining worker is ended, and removes ended workers.
//
// A drain is complete when nobody needs the worker: every gateway knows that it drains, and metrics read after that show no
// requests in flight. A worker that exceeds its drainTimeout is ended anyway. A worker that changes its role drains in the same
// way, but stays.
#include <algorithm>

#include <fmt/format.h>

#include "controller/reconcile/apply/step.h"
#include "controller/reconcile/routes.h"

namespace windlass::controller {
namespace {

constexpr double kOverdueGraceS = 5;  // for a worker that exceeded its drainTimeout
constexpr double kSettleS = 5;        // after becoming leader: time for the gateways to find us before any worker is ended
constexpr double kStuckS = 60;        // report a worker that still exists this long after its drainTimeout
// a drain begun by another leader is watched at least this long before it counts as overdue
constexpr double kDrainWatchS = 60;

// The worker ended by itself (evicted, rejected by its node), so its replacement must back off instead of following immediately
// each time.
void back_off_if_failed(ApplyStep& step, const api::ModelService& service, const Worker& worker) {
  const bool by_itself = worker.failed && !worker.terminating && worker.trouble != planner::WorkerTrouble::kNodeLost;
  const Backoffs::Place place{pool_of(worker), worker.slot, FailureKind::kEnded};
  Backoffs& backoffs = step.state.services[service.metadata.uid].backoffs;
  const Backoff* before = backoffs.find(place);
  if (!by_itself || (before != nullptr && step.now_s() < before->until_s)) return;
  const std::string what = fmt::format("worker {} failed: {}", worker.name, worker.message);
  if (before == nullptr || before->message != what) {
    step.applied.happenings.push_back({&service, true, "WorkerFailed", what});
  }
  (void)backoffs.failed(place, step.now_s(), "WorkerFailed", what);
}

void tell_if_stuck(ApplyStep& step, const api::ModelService& service, const Worker& worker, double drained_s) {
  const double drain_timeout_s = service.spec.scaling.drain_timeout_s;
  if (drained_s < drain_timeout_s + kOverdueGraceS + kStuckS || step.state.drains[worker.uid].told) return;
  step.state.drains[worker.uid].told = true;
  step.applied.happenings.push_back(
      {&service, true, "DrainStuck",
       fmt::format("worker {} has been draining for {:.0f} s, its drainTimeout is {:.0f} s; it holds its GPUs{}{}", worker.name,
                   drained_s, drain_timeout_s, worker.message.empty() ? "" : ": ", worker.message)});
}

void end_worker(ApplyStep& step, const Worker& worker, std::optional<double> grace_s) {
  step.note(step.context.runtime.terminate(worker, grace_s), "ending " + chain_id(worker));
}

}  // namespace

// By our own clock since we first saw it drain. Draining time under an earlier leader is known only from that leader's wall
// clock. It is trusted only as far as at least a minute remains, so that a clock that is hours off neither ends requests
// immediately nor keeps the worker for more than one drainTimeout.
double drained_for_s(ApplyStep& step, const Worker& worker, double since_s, double drain_timeout_s) {
  const auto [drain, is_new] = step.state.drains.try_emplace(worker.uid);
  if (is_new) {
    // The table in force was built from the observation in which the worker drains, so it is the first table that can say so.
    drain->second.version = step.context.table;
    drain->second.seen_s = step.now_s();
    const double max_s = drain_timeout_s - std::min(kDrainWatchS, drain_timeout_s);
    drain->second.inherited_s = std::clamp(step.context.now.wall_s - since_s, 0.0, max_s);
  }
  return drain->second.inherited_s + step.now_s() - drain->second.seen_s;
}

bool is_quiet(ApplyStep& step, const Worker& worker) {
  const ApplyContext& context = step.context;
  if (step.now_s() - step.state.leading_since_s < kSettleS) return false;
  const auto drain = step.state.drains.find(worker.uid);
  const bool all_know = std::all_of(context.gateways.begin(), context.gateways.end(),
                                    [&](const GatewayPeer& gateway) { return gateway.acknowledged >= drain->second.version; });
  if (!all_know) return false;
  if (!drain->second.acknowledged_s) drain->second.acknowledged_s = step.now_s();
  // Only pages read after the acknowledgement count; an older page may have missed the last request.
  const double since_s = *drain->second.acknowledged_s;
  const auto in_flight = context.signals.in_flight(context.gateways, chain_id(worker));
  if (!in_flight || in_flight->at_s <= since_s || in_flight->value > 0) return false;
  const WorkerLoad* load = context.signals.worker_load(worker.uid);
  const auto inside = load == nullptr ? std::nullopt : load->requests();
  // The worker never reported its load, or it does not run, so only the gateways' data is available.
  if (!inside || worker.failed) return true;
  return inside->at_s > since_s && inside->value <= 0;
}

void release(ApplyStep& step, const Worker& worker) {
  step.note(step.context.runtime.release(worker), "releasing " + chain_id(worker));
}

void finish(ApplyStep& step, const api::ModelService& service, const Worker& worker) {
  if (worker.finished) {
    back_off_if_failed(step, service, worker);
    if (step.may_write()) release(step, worker);
    return;
  }
  const double drain_timeout_s = service.spec.scaling.drain_timeout_s;
  const bool draining = worker.draining_since_s.has_value();
  const double drained_s = draining ? drained_for_s(step, worker, *worker.draining_since_s, drain_timeout_s) : 0;
  if (draining) tell_if_stuck(step, service, worker, drained_s);
  if (!draining && !worker.terminating) {
    if (worker.changing_role_since_s) go_on_changing_role(step, service, worker);
    return;
  }
  step.applied.waiting = true;
  if (worker.terminating || !step.may_write()) return;
  if (drained_s >= drain_timeout_s) {
    end_worker(step, worker, kOverdueGraceS);
  } else if (is_quiet(step, worker)) {
    end_worker(step, worker, std::max(kQuietGraceS, drain_timeout_s - drained_s + kExitS));
  }
}

// A worker without a service. It is asked to end and finishes its requests.
void let_go(ApplyStep& step, const Worker& worker) {
  if (!step.may_write()) return;
  if (worker.finished) {
    release(step, worker);
  } else if (!worker.terminating) {
    end_worker(step, worker, std::nullopt);
  } else {
    step.applied.waiting = true;
  }
}

}  // namespace windlass::controller
