// See serving_simulation.h.
#include "planner/sim/serving_simulation.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <memory>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "planner/base/rng.h"
#include "planner/sim/event_time.h"
#include "planner/sim/serving_figures.h"
#include "planner/sim/serving_worker.h"
#include "planner/sim/worker_chooser.h"

namespace windlass::sim {
namespace {

// Where a request is.
enum class Stage {
  kQueued,    // in the central queue
  kPrefill,   // waits for its prefill or is in it
  kHanded,    // prefilled; its cache waits for room at the decode worker
  kTransfer,  // its cache is on its way there
  kDecode,
  kGone,
};

struct Live {
  std::int64_t number = 0;
  std::int64_t arrival_ns = 0;
  std::int64_t started_ns = -1;
  std::int64_t first_ns = 0;
  std::int64_t prefill_ns = 0;  // how long the iteration took that made the first token
  std::int64_t transfer = -1;   // id of the event that ends it
  int service = 0;
  int input = 0;
  int output = 0;
  int prefix = -1;
  int prefix_tokens = 0;
  int predicted = 0;   // output tokens that admission may know of
  bool heavy = false;  // predicted to be a heavy decode
  Stage stage = Stage::kGone;
  int prefill_worker = -1;
  int decode_worker = -1;          // -1: to be chosen
  int lane = 0;                    // of the prefill worker until it is decoded, then of the decode worker
  int decode_lane = 0;             // while its cache is on its way
  Engine::Sequence held = -1;      // at the prefill worker
  Engine::Sequence reserved = -1;  // at the decode worker
};

enum class EventKind : std::int16_t { kIterationEnd, kStageFree, kTransferEnd, kReady, kFail, kFlipCheck, kFlipped, kTick };

struct Event {
  std::int64_t time_ns;
  std::int64_t id;
  int index;  // worker, request or service
  std::int16_t lane;
  EventKind kind;

  bool operator>(const Event& other) const { return time_ns != other.time_ns ? time_ns > other.time_ns : id > other.id; }
};

// So many looks in a row at requests that wait and workers that never come, and the run is given up.
constexpr int kMostIdleLooks = 10'000;

// One model.
struct Service {
  Service(const ServingService& of, std::size_t index, std::uint64_t seed)
      : options(&of),
        first(of.dispatch, seed, stream("prefill", index)),
        second(of.dispatch, seed, stream("decode", index)),
        choice(seed, stream("two-choice", index)),
        prediction(seed, stream("length prediction", index)),
        figures(of) {}

  static std::string stream(const char* what, std::size_t index) {
    return index == 0 ? what : fmt::format("{}/{}", what, index);
  }

  const ServingService* options;
  bool two_roles = false;
  WorkerChooser first;                                    // unified or prefill workers
  WorkerChooser second;                                   // decode workers
  std::deque<int> queue;                                  // requests that no worker takes yet
  std::deque<int> orphans;                                // prefilled requests without a decode worker
  std::vector<std::pair<const ServingPool*, int>> slots;  // as ordered; else what the engines hold
  Rng choice;
  Rng prediction;
  ServingFigures figures;
  std::int64_t input_tokens = 0, output_tokens = 0;
  std::int64_t last_arrival_ns = -1;
};

class Simulation {
 public:
  Simulation(workload::RequestSource& source, const ClusterOptions& options)
      : source_(source), options_(options), failures_(options.seed, "failures") {
    services_.reserve(options.services.size());
    for (std::size_t s = 0; s < options.services.size(); ++s) {
      services_.emplace_back(options.services[s], s, options.seed);
      Service& service = services_.back();
      for (const ServingPool& pool : service.options->pools) {
        service.two_roles = service.two_roles || pool.role != WorkerRole::kUnified;
        for (int i = 0; i < pool.workers; ++i) become_ready(create(static_cast<int>(s), pool));
      }
      find_candidates(static_cast<int>(s));
      if (const auto& flip = service.options->flip) push(after(0, flip->window_s), EventKind::kFlipCheck, static_cast<int>(s));
    }
    for (const auto& failure : options.failures.at) push(after(0, failure.time_s), EventKind::kFail, failure.worker);
    if (options.controller != nullptr) push(0, EventKind::kTick, 0);
  }

  std::vector<ServingResult> run() {
    auto next = take();
    if (options_.observer != nullptr && options_.sample_interval_s > 0) next_sample_ns_ = 0;
    int idle_looks = 0;
    while (next || in_system_ > 0) {
      if (next && (events_.empty() || next->arrival_ns <= events_.top().time_ns)) {
        idle_looks = 0;
        advance(next->arrival_ns);
        arrive(*next);
        next = take();
        continue;
      }
      if (events_.empty() || idle_looks > kMostIdleLooks) {  // nobody will ever take those that wait
        give_up();
        idle_looks = 0;
        if (!next) break;
        continue;
      }
      const Event event = events_.top();
      events_.pop();
      advance(event.time_ns);
      const bool look = event.kind == EventKind::kTick || event.kind == EventKind::kFlipCheck || event.kind == EventKind::kFail;
      idle_looks = look && !next ? idle_looks + 1 : 0;
      handle(event);
    }
    return results();
  }

 private:
  struct Arrival {
    std::int64_t arrival_ns;
    workload::Request request;
  };

  ServingWorker& worker(int w) { return *workers_[static_cast<std::size_t>(w)]; }
  Engine& engine(int w, int lane) { return worker(w).lanes[static_cast<std::size_t>(lane)].engine; }
  Live& live(int request) { return live_[static_cast<std::size_t>(request)]; }
  Service& service(int s) { return services_[static_cast<std::size_t>(s)]; }
  Service& service_of(const ServingWorker& of) { return service(of.service); }

  std::int64_t push(std::int64_t time_ns, EventKind kind, int index, int lane = 0) {
    events_.push(Event{time_ns, next_id_, index, static_cast<std::int16_t>(lane), kind});
    return next_id_++;
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case EventKind::kIterationEnd: return end_iteration(event.index, event.lane);
      case EventKind::kStageFree: worker(event.index).stage_awaited = false; return start(event.index);
      case EventKind::kTransferEnd: return end_transfer(event.index, event.id);
      case EventKind::kReady:
        if (worker(event.index).phase != WorkerPhase::kStarting) return;
        become_ready(event.index);
        return welcome(event.index);
      case EventKind::kFail: return fail(event.index);
      case EventKind::kFlipCheck: return check_flips(event.index);
      case EventKind::kFlipped: return flipped(event.index);
      case EventKind::kTick: return tick();
    }
  }

  // Samples show the state before the event at their moment.
  void advance(std::int64_t to_ns) {
    while (next_sample_ns_ <= to_ns && next_sample_ns_ < kEndOfTimeNs) {
      sample();
      next_sample_ns_ = after(next_sample_ns_, options_.sample_interval_s);
    }
    now_ns_ = to_ns;
  }

  void sample() {
    for (const auto& at : workers_) {
      if (at->phase == WorkerPhase::kEnded) continue;
      WorkerSample sample;
      sample.time_s = seconds_between(0, next_sample_ns_);
      sample.service = at->service;
      sample.worker = at->id;
      sample.role = at->role;
      sample.phase = at->phase;
      sample.gpus = at->pool->gpus_per_worker;
      sample.busy = at->busy();
      sample.waiting = at->waiting();
      sample.running = at->running();
      sample.kv_in_use = at->kv_in_use();
      options_.observer->on_sample(sample);
    }
  }

  std::optional<Arrival> take() {
    if (arrived_ >= options_.max_requests) return std::nullopt;
    auto request = source_.next();
    if (!request || request->arrival_s > options_.arrivals_end_s) return std::nullopt;
    ++arrived_;
    request->input_tokens = std::max(1, request->input_tokens);
    request->output_tokens = std::max(1, request->output_tokens);
    return Arrival{after(0, request->arrival_s), *request};
  }

  // ---- workers come and go

  int create(int s, const ServingPool& pool) {
    const int id = static_cast<int>(workers_.size());
    workers_.push_back(std::make_unique<ServingWorker>(id, s, pool, now_ns_));
    service(s).figures.worker_created();
    const double mean_s = options_.failures.mean_time_between_s;
    if (mean_s > 0) push(after(now_ns_, failures_.exponential(1 / mean_s)), EventKind::kFail, id);
    return id;
  }

  void start_worker(int s, const ServingPool& pool) {
    const int w = create(s, pool);
    push(after(now_ns_, pool.start_s), EventKind::kReady, w);
  }

  void become_ready(int w) {
    worker(w).phase = WorkerPhase::kReady;
    worker(w).ready_ns = now_ns_;
  }

  // It takes requests from now on: those first that waited for one like it.
  void welcome(int w) {
    const int s = worker(w).service;
    find_candidates(s);
    for (std::size_t left = service(s).orphans.size(); left > 0; --left) {
      const int request = service(s).orphans.front();
      service(s).orphans.pop_front();
      offer_cache(request);
    }
    serve_queue(s);
  }

  void find_candidates(int s) {
    Service& of = service(s);
    std::vector<WorkerChooser::Candidate> first, second;
    for (const auto& at : workers_) {
      if (at->service != s || !at->takes_requests()) continue;
      int slots = at->pool->engine.max_sequences * static_cast<int>(at->lanes.size());
      for (const auto& [pool, ordered] : of.slots) {
        if (pool == at->pool) slots = ordered;
      }
      const bool decodes = at->role == WorkerRole::kDecode;
      const int in_flight = at->role == WorkerRole::kPrefill ? at->prompts : at->decodes;
      (decodes ? second : first).push_back({at->id, slots, in_flight});
    }
    of.first.reset(workers_, first);
    of.second.reset(workers_, second);
  }

  void drain(int w) {
    ServingWorker& at = worker(w);
    if (at.phase == WorkerPhase::kStarting) return end_worker(w);
    if (at.phase != WorkerPhase::kReady) return;
    at.phase = WorkerPhase::kDraining;
    find_candidates(at.service);
    leave_if_empty(w);
  }

  void end_worker(int w) {
    worker(w).end(now_ns_);
    service_of(worker(w)).figures.worker_ended();
  }

  // A draining worker has nothing left, or one that flips.
  void leave_if_empty(int w) {
    ServingWorker& at = worker(w);
    if (at.phase == WorkerPhase::kDraining && at.empty()) end_worker(w);
    if (at.phase == WorkerPhase::kReady && at.flipping && !at.flip_awaited && at.empty()) {
      at.flip_awaited = true;
      push(after(now_ns_, service_of(at).options->flip->flip_s), EventKind::kFlipped, w);
    }
  }

  void fail(int w) {
    if (w >= static_cast<int>(workers_.size()) || worker(w).phase == WorkerPhase::kEnded) return;
    ServingWorker& at = worker(w);
    const int s = at.service;
    at.failed = true;
    at.phase = WorkerPhase::kDraining;
    find_candidates(s);
    std::vector<int> affected;
    for (int request = 0; request < static_cast<int>(live_.size()); ++request) {
      const Live& of = live(request);
      if (of.stage == Stage::kGone || of.stage == Stage::kQueued) continue;
      if (of.decode_worker == w || (of.prefill_worker == w && of.stage != Stage::kDecode)) affected.push_back(request);
    }
    std::sort(affected.begin(), affected.end(), [&](int a, int b) { return live(a).number < live(b).number; });
    std::vector<int> again, touched;
    for (const int request : affected) {
      Live& of = live(request);
      const bool prefill_lost = of.prefill_worker == w;
      const int decode = of.decode_worker;
      if (decode >= 0 && decode != w) touched.push_back(decode);
      if (of.prefill_worker != w) touched.push_back(of.prefill_worker);
      switch (of.stage) {
        case Stage::kPrefill:
          leave_decode_worker(request);
          if (prefill_lost) again.push_back(request);
          break;
        case Stage::kTransfer:
          of.transfer = -1;
          if (prefill_lost) {
            engine(decode, of.decode_lane).release(of.reserved);
          } else {
            worker(of.prefill_worker).handed.push_back(request);
          }
          [[fallthrough]];
        case Stage::kHanded:
          if (decode >= 0) std::erase(worker(decode).to_pull, request);
          std::erase(service(s).orphans, request);
          leave_decode_worker(request);
          of.stage = Stage::kHanded;
          if (prefill_lost) {
            lose(request);
          } else {
            service(s).orphans.push_back(request);
          }
          break;
        case Stage::kDecode:
          leave_decode_worker(request);
          lose(request);
          break;
        case Stage::kQueued:
        case Stage::kGone: break;
      }
    }
    end_worker(w);
    if (options_.failures.restart) start_worker(s, *worker(w).pool);
    for (auto request = again.rbegin(); request != again.rend(); ++request) {
      Live& of = live(*request);
      of.stage = Stage::kQueued;
      of.prefill_worker = of.decode_worker = -1;
      ++service(s).figures.counts.retried;
      service(s).queue.push_front(*request);
    }
    for (std::size_t left = service(s).orphans.size(); left > 0; --left) {
      const int request = service(s).orphans.front();
      service(s).orphans.pop_front();
      offer_cache(request);
    }
    serve_queue(s);
    for (const int other : touched) {
      if (worker(other).phase == WorkerPhase::kEnded) continue;
      pull(other);
      start(other);
      leave_if_empty(other);
    }
  }

  // Its decode worker, if it has one, no longer expects it.
  void leave_decode_worker(int request) {
    Live& of = live(request);
    const int decode = std::exchange(of.decode_worker, -1);
    if (decode < 0) return;
    Service& in = service(of.service);
    --worker(decode).decodes;
    worker(decode).promised_tokens -= of.input + of.output;
    if (of.heavy) --worker(decode).heavy_decodes;
    (in.two_roles ? in.second : in.first).changed(decode, -1);
  }

  void join_decode_worker(int request, int decode) {
    Live& of = live(request);
    Service& in = service(of.service);
    of.decode_worker = decode;
    ++worker(decode).decodes;
    worker(decode).promised_tokens += of.input + of.output;
    if (of.heavy) ++worker(decode).heavy_decodes;
    (in.two_roles ? in.second : in.first).changed(decode, 1);
  }

  // A request that ends without an answer.
  void lose(int request) {
    Live& of = live(request);
    ++service(of.service).figures.counts.failed;
    if (options_.observer != nullptr) {
      ServedRequest lost = described(of);
      lost.failed = true;
      options_.observer->on_request(lost);
    }
    forget(request);
  }

  void give_up() {
    for (Service& of : services_) {
      for (const int request : std::exchange(of.queue, {})) lose(request);
      for (const int request : std::exchange(of.orphans, {})) {
        // Its cache goes with it, so that its worker can go on.
        const int prefill = live(request).prefill_worker;
        std::erase(worker(prefill).handed, request);
        engine(prefill, live(request).lane).release(live(request).held);
        worker(prefill).promised_tokens -= live(request).input;
        lose(request);
        start(prefill);
        leave_if_empty(prefill);
      }
    }
  }

  // ---- roles

  void check_flips(int s) {
    Service& of = service(s);
    const FlipPolicy& policy = *of.options->flip;
    push(after(now_ns_, policy.window_s), EventKind::kFlipCheck, s);
    const double window_ns = policy.window_s * kNanosecondsPerSecond;
    struct Side {
      int workers = 0;
      int idlest = -1;
      double least = 2, most = 0;  // share of the window that was busy
    } prefill, decode;
    for (const auto& at : workers_) {
      if (at->service != s || at->phase == WorkerPhase::kEnded) continue;
      const double share = static_cast<double>(at->busy_ns() - std::exchange(at->busy_ns_at_check, at->busy_ns())) / window_ns;
      if (!at->takes_requests()) continue;
      Side& side = at->role == WorkerRole::kPrefill ? prefill : decode;
      ++side.workers;
      side.most = std::max(side.most, share);
      if (share >= side.least) continue;
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

  void flipped(int w) {
    ServingWorker& at = worker(w);
    at.flip_awaited = false;
    if (at.phase != WorkerPhase::kReady) return;
    at.flipping = false;
    at.role = at.role == WorkerRole::kPrefill ? WorkerRole::kDecode : WorkerRole::kPrefill;
    ++service_of(at).figures.counts.flips;
    welcome(w);
  }

  // ---- the controller in the loop

  void tick() {
    ClusterController& controller = *options_.controller;
    push(after(now_ns_, controller.interval_s()), EventKind::kTick, 0);
    ClusterObservation observation;
    observation.now_s = seconds_between(0, now_ns_);
    for (Service& of : services_) {
      ObservedService seen;
      seen.arrived = of.figures.counts.requests;
      seen.input_tokens = of.input_tokens;
      seen.completed = of.figures.counts.completed;
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
      observation.services[static_cast<std::size_t>(at->service)].workers.push_back(seen);
    }
    const ClusterOrders orders = controller.decide(observation);
    for (const auto& [s, pool, slots] : orders.slots) {
      auto& known = service(s).slots;
      std::erase_if(known, [pool = pool](const auto& entry) { return entry.first == pool; });
      known.emplace_back(pool, slots);
    }
    for (const int w : orders.drain) drain(w);
    for (const auto& [s, pool, count] : orders.start) {
      for (int i = 0; i < count; ++i) start_worker(s, *pool);
    }
    for (const auto& changed : orders.slots) {
      find_candidates(changed.service);
      serve_queue(changed.service);
    }
  }

  // ---- requests

  // The worker of one role for a request that brings so many pending tokens. With a mixed pool (Splitwise, Section IV-A): one
  // that is in its own pool; where the queue there is long one of the mixed pool, and where it is there too one of the other
  // role.
  template <class Admits>
  WorkerChooser::Choice route(const Service& in, WorkerChooser& own, const WorkerChooser& other, std::int64_t tokens,
                              Admits admits) {
    const auto threshold = in.options->mixed_pool_threshold_tokens;
    if (!threshold || other.empty()) return own.choose(workers_, !in.two_roles, admits);
    const auto pure = [&](const ServingWorker& w) { return !w.mixed() && admits(w); };
    const auto is_short = [&](const ServingWorker& w) { return w.waiting() == 0 || w.pending() + tokens <= *threshold; };
    const auto mixed = [&](const ServingWorker& w) { return w.mixed() && admits(w) && is_short(w); };
    WorkerChooser::Choice best = own.choose(workers_, false, pure);
    if (best.worker >= 0 && is_short(worker(best.worker))) return best;
    for (const int w : {own.fewest_pending(workers_, mixed), other.fewest_pending(workers_, mixed),
                        other.fewest_pending(workers_, pure), own.fewest_pending(workers_, admits)}) {
      if (w >= 0) return {w, false};
    }
    return {};
  }

  // The decode worker with the least memory promised; with a mixed pool, where none of its own pool has this much left, one of
  // that, then a prefill worker.
  template <class Admits>
  int least_memory(const Service& in, std::int64_t tokens, Admits admits) {
    const bool pools = in.options->mixed_pool_threshold_tokens.has_value();
    const auto roomy = [&](const ServingWorker& w) { return admits(w) && w.has_unpromised(tokens); };
    const auto own = [&](const ServingWorker& w) { return roomy(w) && !(pools && w.mixed()); };
    int best = in.second.fewest_promised(workers_, own);
    if (best < 0 && pools) {
      const auto mixed = [&](const ServingWorker& w) { return roomy(w) && w.mixed(); };
      best = in.second.fewest_promised(workers_, mixed);
      if (best < 0) best = in.first.fewest_promised(workers_, mixed);
      if (best < 0) best = in.first.fewest_promised(workers_, roomy);
    }
    return best >= 0 ? best : in.second.fewest_promised(workers_, admits);
  }

  void arrive(const Arrival& arrival) {
    const workload::Request& request = arrival.request;
    assert(request.model >= 0 && request.model < static_cast<int>(services_.size()));
    Service& in = service(request.model);
    ++in.figures.counts.requests;
    in.input_tokens += request.input_tokens;
    in.last_arrival_ns = now_ns_;
    const int number = new_live();
    Live& of = live(number);
    of.number = arrived_total_++;
    of.arrival_ns = now_ns_;
    of.service = request.model;
    of.input = request.input_tokens;
    of.output = request.output_tokens;
    of.prefix = request.prefix;
    of.prefix_tokens = request.prefix_tokens;
    of.stage = Stage::kQueued;
    predict(of);
    ++in_system_;
    if (!in.queue.empty() || !dispatch(number)) in.queue.push_back(number);
  }

  void predict(Live& of) {
    Service& in = service(of.service);
    int expected = of.output;
    if (const auto& prediction = in.options->prediction) {
      int bucket = of.output / prediction->bucket_tokens;
      if (in.prediction.uniform() >= prediction->accuracy) bucket += bucket == 0 || in.prediction.uniform() < 0.5 ? 1 : -1;
      of.predicted = std::max(1, bucket * prediction->bucket_tokens);
      expected = bucket * prediction->bucket_tokens + prediction->bucket_tokens / 2;
    }
    of.heavy = expected > in.options->heavy_decode_tokens;
  }

  // To its worker or workers; false: it has to wait. A request that no worker holds is refused.
  bool dispatch(int request) {
    Live& of = live(request);
    Service& in = service(of.service);
    if (in.first.empty() || (in.two_roles && in.second.empty())) return false;
    const auto holds = [&](const ServingWorker& w) { return w.can_hold(of.input, of.output); };
    WorkerChooser::Choice prefill, decode;
    bool decode_later = false;
    if (in.two_roles) {
      prefill = route(in, in.first, in.second, of.input, holds);
      if (of.output == 1) {  // a single token needs no decode worker
        decode = prefill;
      } else if (in.options->decode_choice == DecodeChoice::kTwoChoice) {
        decode_later = in.second.any(workers_, holds);
      } else if (in.options->decode_choice == DecodeChoice::kLeastMemory) {
        decode.worker = least_memory(in, of.input + of.output, holds);
      } else {
        decode = route(in, in.second, in.first, 1, holds);
      }
    } else {
      prefill = decode = in.first.choose(workers_, true, holds);
      if (prefill.wait) return false;
    }
    if (prefill.worker < 0 || (decode.worker < 0 && !decode_later)) {
      refuse(request);
      return true;
    }
    of.stage = Stage::kPrefill;
    of.prefill_worker = prefill.worker;
    ServingWorker& at = worker(prefill.worker);
    ++at.prompts;
    in.first.changed(prefill.worker, 1);
    if (decode.worker >= 0) {
      if (in.two_roles) {
        join_decode_worker(request, decode.worker);
      } else {
        of.decode_worker = decode.worker;
        ++at.decodes;
        at.promised_tokens += of.input + of.output;
        if (of.heavy) ++at.heavy_decodes;
      }
    }
    at.account_pages(now_ns_);
    of.lane = at.lane_for_prompt();
    SequenceSpec spec = spec_of(request);
    spec.hand_over = prefill.worker != decode.worker;
    const Engine::Sequence sequence = engine(prefill.worker, of.lane).enqueue(spec);
    if (spec.hand_over) {
      of.held = sequence;
      at.promised_tokens += of.input;
    }
    start(prefill.worker);
    return true;
  }

  SequenceSpec spec_of(int request) {
    const Live& of = live(request);
    SequenceSpec spec;
    spec.request = request;
    spec.prompt_tokens = of.input;
    spec.output_tokens = of.output;
    spec.predicted_output_tokens = of.predicted;
    spec.prefix = of.prefix;
    spec.prefix_tokens = of.prefix_tokens;
    return spec;
  }

  void serve_queue(int s) {
    auto& queue = service(s).queue;
    while (!queue.empty()) {
      const int request = queue.front();
      if (!dispatch(request)) return;
      queue.pop_front();
    }
  }

  void refuse(int request) {
    Live& of = live(request);
    ++service(of.service).figures.counts.refused;
    if (options_.observer != nullptr) {
      ServedRequest refused = described(of);
      refused.refused = true;
      options_.observer->on_request(refused);
    }
    forget(request);
  }

  ServedRequest described(const Live& of) {
    ServedRequest request;
    request.number = of.number;
    request.service = of.service;
    request.arrival_s = seconds_between(0, of.arrival_ns);
    request.input_tokens = of.input;
    request.output_tokens = of.output;
    return request;
  }

  // ---- iterations

  void start(int w) {
    ServingWorker& at = worker(w);
    if (at.phase == WorkerPhase::kEnded) return;
    const int lanes = static_cast<int>(at.lanes.size());
    do {
      for (int turn = 0; turn < lanes; ++turn) {
        const int lane = (at.next_lane + turn) % lanes;
        if (at.lanes[static_cast<std::size_t>(lane)].busy || engine(w, lane).held() == 0) continue;
        if (at.first_stage_free_ns() > now_ns_) {
          if (!at.stage_awaited) push(at.first_stage_free_ns(), EventKind::kStageFree, w);
          at.stage_awaited = true;
          return;
        }
        if (begin(w, lane)) {
          at.next_lane = (lane + 1) % lanes;
          turn = -1;  // the lanes after it, in their turn
        }
      }
    } while (!at.busy() && keep_oldest(w));
  }

  bool begin(int w, int lane) {
    ServingWorker& at = worker(w);
    Service& in = service_of(at);
    at.account_pages(now_ns_);
    Engine& running = engine(w, lane);
    const auto batch = running.begin();
    if (!batch) return false;
    const planner::IterationModel& model = *at.pool->model;
    const std::int64_t swapped = running.swapped_tokens();
    const double seconds = model.iteration_s(*batch) + static_cast<double>(swapped) * at.pool->swap_s_per_token;
    if (model.coverage(*batch) != planner::Coverage::kMeasured) ++in.figures.counts.extrapolated_iterations;
    in.figures.counts.swapped_tokens += swapped;
    for (const int request : running.started()) {
      Live& of = live(request);
      if (of.started_ns >= 0) continue;  // once more, after a worker failed
      of.started_ns = now_ns_;
      in.figures.request_started(seconds_between(of.arrival_ns, now_ns_));
    }
    at.lanes[static_cast<std::size_t>(lane)].busy = true;
    at.lanes[static_cast<std::size_t>(lane)].began_ns = now_ns_;
    at.count_iteration(*batch);
    push(at.pass_stages(now_ns_, seconds), EventKind::kIterationEnd, w, lane);
    return true;
  }

  void end_iteration(int w, int lane) {
    ServingWorker& at = worker(w);
    if (at.phase == WorkerPhase::kEnded) return;  // it failed meanwhile
    Service& in = service_of(at);
    at.account_pages(now_ns_);
    at.lanes[static_cast<std::size_t>(lane)].busy = false;
    const std::int64_t took_ns = now_ns_ - at.lanes[static_cast<std::size_t>(lane)].began_ns;
    const Engine::Outcome& outcome = engine(w, lane).end();
    for (const int request : outcome.first_tokens) {
      Live& of = live(request);
      of.first_ns = now_ns_;
      of.prefill_ns = took_ns;
      of.stage = Stage::kDecode;
      --at.prompts;
      if (in.two_roles) in.first.changed(w, -1);  // a unified worker keeps it
    }
    for (const Engine::Sequence sequence : outcome.prefilled) {
      const int request = engine(w, lane).request_of(sequence);
      live(request).stage = Stage::kHanded;
      at.handed.push_back(request);
      offer_cache(request);
    }
    for (const int request : outcome.finished) finish(request);
    pull(w);  // pages may have become free
    start(w);
    if (!in.queue.empty()) serve_queue(at.service);
    leave_if_empty(w);
  }

  // A prefilled request's cache waits to be pulled by its decode worker, which is chosen now if it has none.
  void offer_cache(int request) {
    Live& of = live(request);
    Service& in = service(of.service);
    if (of.decode_worker < 0) {
      const auto holds = [&](const ServingWorker& w) { return w.can_hold(of.input, of.output); };
      const int decode = in.options->decode_choice == DecodeChoice::kTwoChoice
                             ? two_choice(workers_, in.second.candidates(), spec_of(request), of.heavy, in.choice)
                             : in.second.choose(workers_, false, holds).worker;
      if (decode < 0) {
        in.orphans.push_back(request);
        return;
      }
      join_decode_worker(request, decode);
    }
    const int decode = of.decode_worker;
    worker(decode).to_pull.push_back(request);
    pull(decode);
    start(decode);  // it may have to make room
  }

  // In a mixed pool two workers may be full of caches that each waits to hand to the other. One that has nothing to run and
  // blocks others decodes the oldest of its own after all.
  bool keep_oldest(int w) {
    ServingWorker& at = worker(w);
    if (at.to_pull.empty() || at.handed.empty()) return false;
    const int request = at.handed.front();
    Live& of = live(request);
    at.handed.pop_front();
    const int before = of.decode_worker;
    std::erase(service(of.service).orphans, request);
    if (before >= 0) std::erase(worker(before).to_pull, request);
    leave_decode_worker(request);
    join_decode_worker(request, w);
    at.promised_tokens -= of.input;
    of.stage = Stage::kDecode;
    engine(w, of.lane).join(of.held);
    if (before < 0) return true;
    pull(before);  // the next may fit where this one did not
    leave_if_empty(before);
    return true;
  }

  // Starts the transfers of caches that this worker has room for, in the order in which they were ready.
  void pull(int w) {
    ServingWorker& at = worker(w);
    while (!at.to_pull.empty()) {
      const int request = at.to_pull.front();
      Live& of = live(request);
      const SequenceSpec spec = spec_of(request);
      const int lane = at.lane_for_cache(spec);
      if (lane < 0) return;
      at.account_pages(now_ns_);
      at.to_pull.pop_front();
      std::erase(worker(of.prefill_worker).handed, request);
      of.decode_lane = lane;
      of.reserved = engine(w, lane).reserve(spec);
      of.stage = Stage::kTransfer;
      ++service(of.service).figures.counts.kv_transfers;
      of.transfer = push(after(now_ns_, transfer_s(of)), EventKind::kTransferEnd, request);
    }
  }

  // Layer by layer it could begin while the prefill ran, if there was room then.
  [[nodiscard]] double transfer_s(const Live& of) {
    const KvLink& link = service(of.service).options->link;
    const double prefill_s = of.first_ns == now_ns_ ? seconds_between(0, of.prefill_ns) : 0;
    return planner::kv_transfer_after_prefill_s(link.path, of.input, link.kv_bytes_per_token, prefill_s);
  }

  void end_transfer(int request, std::int64_t id) {
    Live& of = live(request);
    if (of.transfer != id) return;  // a worker failed meanwhile
    of.transfer = -1;
    of.stage = Stage::kDecode;
    const int prefill = of.prefill_worker, decode = of.decode_worker;
    worker(prefill).account_pages(now_ns_);
    engine(prefill, of.lane).release(of.held);
    worker(prefill).promised_tokens -= of.input;
    of.lane = of.decode_lane;
    engine(decode, of.lane).join(of.reserved);
    pull(prefill);  // pages have become free there
    start(prefill);
    start(decode);
    leave_if_empty(prefill);
  }

  void finish(int request) {
    Live& of = live(request);
    Service& in = service(of.service);
    const int decode = of.decode_worker;
    ++worker(decode).completed;
    leave_decode_worker(request);
    in.output_tokens += of.output;
    const double ttft_s = seconds_between(of.arrival_ns, of.first_ns), e2e_s = seconds_between(of.arrival_ns, now_ns_);
    const double gap_s = of.output > 1 ? seconds_between(of.first_ns, now_ns_) / (of.output - 1) : 0;
    in.figures.request_completed(of.input, of.output, ttft_s, gap_s, e2e_s);
    if (options_.observer != nullptr) {
      ServedRequest served = described(of);
      served.prefill_worker = of.prefill_worker;
      served.decode_worker = decode;
      served.scheduling_delay_s = seconds_between(of.arrival_ns, of.started_ns);
      served.ttft_s = ttft_s;
      served.tbt_s = gap_s;
      served.e2e_s = e2e_s;
      options_.observer->on_request(served);
    }
    forget(request);
    if (options_.progress && ++completed_ % (1 << 14) == 0) options_.progress(completed_);
  }

  int new_live() {
    if (unused_.empty()) {
      live_.emplace_back();
      return static_cast<int>(live_.size()) - 1;
    }
    const int request = unused_.back();
    unused_.pop_back();
    live(request) = Live{};
    return request;
  }

  void forget(int request) {
    live(request) = Live{};
    unused_.push_back(request);
    --in_system_;
  }

  std::vector<ServingResult> results() {
    std::vector<ServingResult> results;
    for (const auto& at : workers_) service_of(*at).figures.add(*at, now_ns_);
    for (Service& of : services_) results.push_back(of.figures.result(now_ns_));
    return results;
  }

  workload::RequestSource& source_;
  const ClusterOptions& options_;
  ServingWorkers workers_;
  std::vector<Service> services_;
  std::vector<Live> live_;
  std::vector<int> unused_;
  Rng failures_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t next_id_ = 0;
  std::int64_t now_ns_ = 0;
  std::int64_t next_sample_ns_ = std::numeric_limits<std::int64_t>::max();  // never
  std::int64_t arrived_ = 0;                                                // taken from the source
  std::int64_t arrived_total_ = 0;                                          // of these, those whose time has come
  std::int64_t in_system_ = 0;
  std::int64_t completed_ = 0;
};

Result<void> validate(const ServingService& service, bool controlled, const std::string& prefix) {
  bool unified = false, prefill = false, decode = false;
  for (std::size_t i = 0; i < service.pools.size(); ++i) {
    const ServingPool& pool = service.pools[i];
    const auto wrong = [&](const char* field, const std::string& found, const char* allowed) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}cluster.pools[{}].{}: found {}, allowed is {}", prefix, i, field, found, allowed)};
    };
    if (pool.workers < (controlled ? 0 : 1)) {
      return wrong("workers", std::to_string(pool.workers), controlled ? "a number of at least 0" : "a number of at least 1");
    }
    if (!(pool.start_s >= 0)) return wrong("start", fmt::format("{} s", pool.start_s), "a time of at least 0");
    const double tokens = pool.engine.kv_blocks == 0 ? pool.model->kv_capacity_tokens()
                                                     : static_cast<double>(pool.engine.kv_blocks * pool.engine.block_tokens);
    if (!(tokens >= static_cast<double>(pool.engine.block_tokens) * std::max(1, pool.model->pipeline_stages()))) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}cluster.pools[{}]: the model does not fit: {:.0f} tokens are left for the KV cache", prefix,
                               i, tokens)};
    }
    unified = unified || pool.role == WorkerRole::kUnified;
    prefill = prefill || pool.role == WorkerRole::kPrefill;
    decode = decode || pool.role == WorkerRole::kDecode;
  }
  for (std::size_t i = 0; service.mixed_pool_threshold_tokens && i < service.pools.size(); ++i) {
    const Batching batching = service.pools[i].engine.batching;
    if (batching != Batching::kStatic && batching != Batching::kOrca) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}scheduling.batching: found {} with a mixed pool, allowed are those with paged caches", prefix,
                             to_string(batching))};
  }
  if (!(unified ? !prefill && !decode : prefill && decode)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}cluster.pools: found roles that serve no request, allowed are pools that are all unified, or "
                             "prefill and decode pools",
                             prefix)};
  }
  if (!prefill && (service.flip || service.decode_choice != DecodeChoice::kAtArrival)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}scheduling.{}: found with unified pools, allowed are prefill and decode pools", prefix,
                             service.flip ? "flip" : "decodeChoice")};
  }
  if (service.mixed_pool_threshold_tokens && service.decode_choice == DecodeChoice::kTwoChoice) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}scheduling.decodeChoice: found two-choice with a mixed pool, allowed is one of them", prefix)};
  }
  return {};
}

}  // namespace

const char* to_string(WorkerRole role) {
  switch (role) {
    case WorkerRole::kUnified: return "unified";
    case WorkerRole::kPrefill: return "prefill";
    case WorkerRole::kDecode: return "decode";
  }
  return "";
}

const char* to_string(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kStarting: return "starting";
    case WorkerPhase::kReady: return "ready";
    case WorkerPhase::kDraining: return "draining";
    case WorkerPhase::kEnded: return "ended";
  }
  return "";
}

Result<std::vector<ServingResult>> simulate_cluster(workload::RequestSource& source, const ClusterOptions& options) {
  for (std::size_t s = 0; s < options.services.size(); ++s) {
    WINDLASS_RETURN_IF_ERROR(validate(options.services[s], options.controller != nullptr,
                                      options.services.size() == 1 ? std::string() : fmt::format("services[{}].", s)));
  }
  return Simulation(source, options).run();
}

Result<ServingResult> simulate_serving(workload::RequestSource& source, const ServingOptions& options) {
  ClusterOptions cluster;
  static_cast<RunOptions&>(cluster) = options;
  cluster.services.push_back(options);
  WINDLASS_ASSIGN_OR_RETURN(auto results, simulate_cluster(source, cluster));
  return std::move(results.front());
}

}  // namespace windlass::sim
