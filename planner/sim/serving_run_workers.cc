// Handles the workers of a simulation run: they start, drain, fail and change roles, and follow the controller's orders. See
// serving_run.h.
#include <algorithm>
#include <cassert>
#include <set>
#include <utility>

#include "planner/sim/event_time.h"
#include "planner/sim/serving_run.h"

namespace windlass::sim {
namespace {

// A request that has lost this many workers fails too; otherwise a request that takes longer than workers live would never end.
constexpr int kMaxAttempts = 16;

}  // namespace

int ServingRun::create(int s, const ServingPool& pool) {
  const int id = static_cast<int>(workers_.size());
  workers_.push_back(std::make_unique<ServingWorker>(id, s, pool, now_ns_));
  service(s).figures.worker_created();
  const double mean_s = options_.failures.mean_time_between_s;
  if (mean_s > 0) push(after(now_ns_, failures_.exponential(1 / mean_s)), ServingEventKind::kFail, id);
  return id;
}

void ServingRun::start_worker(int s, const ServingPool& pool) {
  assert((pool.role != dispatch::Role::kUnified) == service(s).two_roles);
  const int w = create(s, pool);
  longest_start_s_ = std::max(longest_start_s_, pool.start_s);
  push(after(now_ns_, pool.start_s), ServingEventKind::kReady, w);
}

void ServingRun::become_ready(int w) {
  worker(w).phase = WorkerPhase::kReady;
  worker(w).ready_ns = worker(w).role_since_ns = now_ns_;
}

// Workers that become ready at the same time share the waiting requests.
void ServingRun::ready(int w) {
  std::set<int> changed;
  for (;;) {
    if (worker(w).phase == WorkerPhase::kStarting) {
      become_ready(w);
      changed.insert(worker(w).service);
    }
    if (events_.empty() || events_.top().time_ns != now_ns_ || events_.top().kind != ServingEventKind::kReady) break;
    w = events_.top().index;
    events_.pop();
  }
  for (const int s : changed) welcome(s);
}

void ServingRun::welcome(int s) {
  find_candidates(s);
  offer_orphans(s);
  serve_queue(s);
}

void ServingRun::find_candidates(int s) {
  ServiceState& of = service(s);
  std::vector<WorkerChooser::Candidate> first, second;
  for (const auto& at : workers_) {
    if (at->service != s || !at->takes_requests()) continue;
    int slots = at->pool->spec.engine.max_sequences * static_cast<int>(at->lanes.size());
    if (const auto ordered = of.slots.find(at->pool->name); ordered != of.slots.end()) slots = ordered->second;
    const bool decodes = at->role == dispatch::Role::kDecode;
    const int in_flight = at->role == dispatch::Role::kPrefill ? at->prompts : at->decodes;
    (decodes ? second : first).push_back({at->id, slots, in_flight});
  }
  of.first.reset(workers_, first);
  of.second.reset(workers_, second);
}

void ServingRun::drain(int w) {
  ServingWorker& at = worker(w);
  if (at.phase == WorkerPhase::kStarting) return end_worker(w);
  if (at.phase != WorkerPhase::kReady) return;
  at.phase = WorkerPhase::kDraining;
  find_candidates(at.service);
  leave_if_empty(w);
}

void ServingRun::end_worker(int w) {
  assert(worker(w).failed || worker(w).rests());
  worker(w).end(now_ns_);
  service_of(worker(w)).figures.worker_ended();
}

void ServingRun::leave_if_empty(int w) {
  ServingWorker& at = worker(w);
  if (at.phase == WorkerPhase::kDraining && at.empty()) end_worker(w);
  if (at.phase == WorkerPhase::kReady && at.flipping && !at.flip_awaited && at.empty()) {
    at.flip_awaited = true;
    push(after(now_ns_, service_of(at).options->dispatch.flip->flip_s), ServingEventKind::kFlipped, w);
  }
}

bool ServingRun::interrupt(int request, int failed) {
  LiveRequest& of = live(request);
  const bool prefill_lost = of.prefill_worker == failed;
  const int decode = of.decode_worker;
  switch (of.stage) {
    case RequestStage::kPrefill: leave_decode_worker(request); return prefill_lost;
    case RequestStage::kTransfer:
      of.transfer = -1;
      if (prefill_lost) {
        worker(decode).account_pages(now_ns_);
        engine(decode, of.decode_lane).release(of.reserved);
      } else {
        worker(of.prefill_worker).handed.push_back(request);
      }
      [[fallthrough]];
    case RequestStage::kHanded:
      if (decode >= 0) std::erase(worker(decode).to_pull, request);
      std::erase(service(of.service).orphans, request);
      leave_decode_worker(request);
      of.stage = RequestStage::kHanded;
      if (prefill_lost) {
        lose(request);
      } else {
        service(of.service).orphans.push_back(request);
      }
      return false;
    case RequestStage::kDecode:
      leave_decode_worker(request);
      lose(request);
      return false;
    case RequestStage::kQueued:
    case RequestStage::kGone: return false;
  }
  return false;
}

void ServingRun::fail(int w) {
  if (w >= static_cast<int>(workers_.size()) || worker(w).phase == WorkerPhase::kEnded) return;
  ServingWorker& at = worker(w);
  const int s = at.service;
  const bool replaced = options_.failures.restart && at.phase != WorkerPhase::kDraining;
  at.failed = true;
  at.phase = WorkerPhase::kDraining;
  find_candidates(s);
  std::vector<int> affected;
  for (int request = 0; request < static_cast<int>(live_.size()); ++request) {
    const LiveRequest& of = live(request);
    if (of.stage == RequestStage::kGone || of.stage == RequestStage::kQueued) continue;
    if (of.decode_worker == w || (of.prefill_worker == w && of.stage != RequestStage::kDecode)) affected.push_back(request);
  }
  std::sort(affected.begin(), affected.end(), [&](int a, int b) { return live(a).number < live(b).number; });
  std::vector<int> again;
  std::set<int> others;  // workers that were involved with them
  for (const int request : affected) {
    others.insert({live(request).prefill_worker, live(request).decode_worker});
    if (interrupt(request, w)) again.push_back(request);
  }
  end_worker(w);
  if (replaced) start_worker(s, *at.pool);
  for (auto request = again.rbegin(); request != again.rend(); ++request) {
    LiveRequest& of = live(*request);
    of.stage = RequestStage::kQueued;
    of.prefill_worker = of.decode_worker = -1;
    if (++of.attempts == kMaxAttempts) {
      lose(*request);
      continue;
    }
    ++service(s).figures.counts.retried;
    wait(*request);
  }
  offer_orphans(s);
  serve_queue(s);
  for (const int other : others) {
    if (other < 0 || worker(other).phase == WorkerPhase::kEnded) continue;
    pull(other);
    start(other);
    leave_if_empty(other);
  }
}

void ServingRun::leave_decode_worker(int request) {
  LiveRequest& of = live(request);
  const int decode = std::exchange(of.decode_worker, -1);
  if (decode < 0) return;
  ServiceState& in = service(of.service);
  ServingWorker& at = worker(decode);
  at.promised_tokens -= of.input + of.output;
  if (!counts_as_decode(of)) return;
  --at.decodes;
  if (of.heavy) --at.heavy_decodes;
  WorkerChooser& chooser = in.two_roles ? in.second : in.first;
  chooser.changed(decode, -1);
  chooser.ended(static_cast<std::uint64_t>(of.number), 0);
}

void ServingRun::join_decode_worker(int request, int decode) {
  LiveRequest& of = live(request);
  ServiceState& in = service(of.service);
  ServingWorker& at = worker(decode);
  of.decode_worker = decode;
  at.promised_tokens += of.input + of.output;
  if (!counts_as_decode(of)) return;
  ++at.decodes;
  if (of.heavy) ++at.heavy_decodes;
  WorkerChooser& chooser = in.two_roles ? in.second : in.first;
  chooser.changed(decode, 1);
  chooser.placed(decode, lengths_of(of));
}

bool ServingRun::give_up() {
  bool lost = false;
  for (ServiceState& of : services_) {
    for (const auto& waiting : of.queue.take_all()) {
      lose(static_cast<int>(waiting.id));
      lost = true;
    }
    while (!of.orphans.empty()) {
      // Its cache goes too, so that its worker can continue.
      const int request = of.orphans.front(), prefill = live(request).prefill_worker;
      of.orphans.pop_front();
      std::erase(worker(prefill).handed, request);
      release_held(request);
      lose(request);
      lost = true;
      pull(prefill);
      start(prefill);
      leave_if_empty(prefill);
    }
  }
  return lost;
}

void ServingRun::check_flips(int s) {
  ServiceState& of = service(s);
  const dispatch::FlipPolicy& policy = *of.options->dispatch.flip;
  push(after(now_ns_, policy.window_s), ServingEventKind::kFlipCheck, s);
  struct Side {
    int workers = 0;
    int idlest = -1;
    double least = 2, most = 0;  // busy share of the window
  } prefill, decode;
  for (const auto& at : workers_) {
    if (at->service != s || at->phase == WorkerPhase::kEnded) continue;
    const double busy_s = at->busy_s(now_ns_);
    const double share = (busy_s - std::exchange(at->busy_s_at_check, busy_s)) / policy.window_s;
    if (!at->takes_requests()) continue;
    Side& side = at->role == dispatch::Role::kPrefill ? prefill : decode;
    ++side.workers;
    side.most = std::max(side.most, share);
    const bool whole_window = after(at->role_since_ns, policy.window_s) <= now_ns_;
    if (!whole_window || share >= side.least) continue;
    side.least = share;
    side.idlest = at->id;
  }
  for (const auto& [own, other] : {std::pair{prefill, decode}, std::pair{decode, prefill}}) {
    if (own.workers < 2 || own.least >= policy.below || other.most < policy.below) continue;
    worker(own.idlest).flipping = true;
    find_candidates(s);
    leave_if_empty(own.idlest);
    return;
  }
}

void ServingRun::flipped(int w) {
  ServingWorker& at = worker(w);
  at.flip_awaited = false;
  if (at.phase != WorkerPhase::kReady) return;
  at.flipping = false;
  take_other_role(at);
}

void ServingRun::take_other_role(ServingWorker& at) {
  at.role = at.role == dispatch::Role::kPrefill ? dispatch::Role::kDecode : dispatch::Role::kPrefill;
  at.role_since_ns = now_ns_;
  ++service_of(at).figures.counts.flips;
  welcome(at.service);
}

void ServingRun::check_repurposing(int s) {
  const dispatch::RepurposePolicy& policy = *service(s).options->dispatch.repurpose;
  push(after(now_ns_, policy.window_s), ServingEventKind::kRepurposeCheck, s);
  int prefill = 0, decode = 0, max_mixed = -1;
  double most = policy.above;
  for (const auto& at : workers_) {
    if (at->service != s || at->phase == WorkerPhase::kEnded) continue;
    const double share = (at->mixed_s - std::exchange(at->mixed_s_at_check, at->mixed_s)) / policy.window_s;
    if (!at->takes_requests()) continue;
    ++(at->role == dispatch::Role::kPrefill ? prefill : decode);
    if (share <= most || after(at->role_since_ns, policy.window_s) > now_ns_) continue;
    most = share;
    max_mixed = at->id;
  }
  if (max_mixed < 0) return;
  ServingWorker& at = worker(max_mixed);
  if ((at.role == dispatch::Role::kPrefill ? prefill : decode) > 1) take_other_role(at);
}

void ServingRun::tick() {
  ClusterController& controller = *options_.controller;
  assert(controller.interval_s() > 0);
  push(after(now_ns_, controller.interval_s()), ServingEventKind::kTick, 0);
  ClusterObservation observation;
  observation.now_s = seconds_between(0, now_ns_);
  for (ServiceState& of : services_) {
    ObservedService seen;
    seen.arrived = of.figures.counts.requests;
    seen.completed = of.figures.counts.completed;
    seen.input_tokens = of.input_tokens;
    seen.output_tokens = of.output_tokens;
    seen.attained = of.figures.attained();
    seen.failed = of.figures.counts.failed;
    seen.queued = static_cast<int>(of.queue.size());
    if (of.last_arrival_ns >= 0) seen.last_arrival_s = seconds_between(0, of.last_arrival_ns);
    observation.services.push_back(std::move(seen));
  }
  for (const auto& at : workers_) {
    if (at->phase == WorkerPhase::kEnded) continue;
    ObservedWorker seen;
    seen.worker = at->id;
    seen.pool = at->pool;
    seen.phase = at->phase;
    seen.created_s = seconds_between(0, at->created_ns);
    if (at->phase != WorkerPhase::kStarting) seen.ready_s = seconds_between(0, at->ready_ns);
    seen.running = at->running();
    seen.waiting = at->waiting();
    seen.kv_use = at->kv_in_use();
    seen.waiting_tokens = at->waiting_tokens();
    seen.counted = at->counted;
    observation.services[static_cast<std::size_t>(at->service)].workers.push_back(seen);
  }
  const ClusterOrders orders = controller.decide(observation);
  for (const auto& [s, pool, slots] : orders.slots) service(s).slots[pool] = slots;
  for (const int w : orders.drain) {
    assert(w >= 0 && w < static_cast<int>(workers_.size()));
    drain(w);
  }
  for (const auto& [s, pool, count] : orders.start) {
    for (int i = 0; i < count; ++i) start_worker(s, *pool);
  }
  for (const auto& changed : orders.slots) {
    find_candidates(changed.service);
    serve_queue(changed.service);
  }
}

}  // namespace windlass::sim
