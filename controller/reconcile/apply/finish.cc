// finish: decides when a worker that drains is ended, and lets go of one that has ended.
//
// A drain is over once nobody needs the worker: every gateway knows that it drains, and what was read after that shows nothing
// in flight. A worker that outlives its drainTimeout is ended anyway.
#include <algorithm>

#include <fmt/format.h>

#include "controller/reconcile/apply/step.h"
#include "controller/reconcile/routes.h"

namespace windlass::controller {
namespace {

constexpr double kOverdueGraceS = 5;  // for a worker that has outlived its drainTimeout
constexpr double kSettleS = 5;        // after taking the lead: time for the gateways to find us before anything is ended
constexpr double kStuckS = 60;        // people hear of a worker that is still there this long after its drainTimeout
constexpr double kDrainWatchS = 60;   // a drain that another leader began is watched at least this long before it is overdue

// Ended by itself (evicted, refused by its node): its successor must not follow at once, again and again.
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

// How long the worker has drained, by our own clock since we first saw it. What it had drained before under another leader is
// known by that one's wall clock alone; so it is believed only as far as a minute remains, and a clock that is hours off
// neither ends a request at once nor holds the worker for longer than one drainTimeout.
double drained_for_s(ApplyStep& step, const Worker& worker, double drain_timeout_s) {
  const auto [drain, is_new] = step.state.drains.try_emplace(worker.uid);
  if (is_new) {
    // The table in force was made from the observation that shows the worker draining, so it is the first that can say so.
    drain->second.version = step.context.table;
    drain->second.seen_s = step.now_s();
    const double most_s = drain_timeout_s - std::min(kDrainWatchS, drain_timeout_s);
    drain->second.inherited_s = std::clamp(step.context.now.wall_s - *worker.draining_since_s, 0.0, most_s);
  }
  return drain->second.inherited_s + step.now_s() - drain->second.seen_s;
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

// Whether every gateway knows that the worker drains, and since then neither they nor it have a request in flight.
bool is_quiet(ApplyStep& step, const Worker& worker) {
  const ApplyContext& context = step.context;
  if (step.now_s() - step.state.leading_since_s < kSettleS) return false;
  const auto drain = step.state.drains.find(worker.uid);
  const bool all_know = std::all_of(context.gateways.begin(), context.gateways.end(),
                                    [&](const GatewayPeer& gateway) { return gateway.acknowledged >= drain->second.version; });
  if (!all_know) return false;
  if (!drain->second.acknowledged_s) drain->second.acknowledged_s = step.now_s();
  // Only what was read after the acknowledgement counts: an older page may have missed the last request.
  const double since_s = *drain->second.acknowledged_s;
  const auto in_flight = context.signals.in_flight(context.gateways, chain_id(worker));
  if (!in_flight || in_flight->at_s <= since_s || in_flight->value > 0) return false;
  const WorkerLoad* load = context.signals.worker_load(worker.uid);
  const auto inside = load == nullptr ? std::nullopt : load->requests();
  // A worker that never told its load, or one that does not run: the gateways' word is all there is.
  if (!inside || worker.failed) return true;
  return inside->at_s > since_s && inside->value <= 0;
}

void end_worker(ApplyStep& step, const Worker& worker, std::optional<double> grace_s) {
  step.note(step.context.runtime.terminate(worker, grace_s), "ending " + chain_id(worker));
}

}  // namespace

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
  const double drained_s = draining ? drained_for_s(step, worker, drain_timeout_s) : 0;
  if (draining) tell_if_stuck(step, service, worker, drained_s);
  if (!draining && !worker.terminating) return;
  step.applied.waiting = true;
  if (worker.terminating || !step.may_write()) return;
  if (drained_s >= drain_timeout_s) {
    end_worker(step, worker, kOverdueGraceS);
  } else if (is_quiet(step, worker)) {
    end_worker(step, worker, std::max(kQuietGraceS, drain_timeout_s - drained_s));
  }
}

// Nobody's worker any more. It is asked to end, and finishes what it has in flight.
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
