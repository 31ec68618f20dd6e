// See serving_run.h: the event loop, iterations, transfers, and the end of requests.
#include "planner/sim/serving_run.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "planner/sim/event_time.h"

namespace windlass::sim {
namespace {

// After this many consecutive looks at waiting requests without a worker, they are dropped.
constexpr int kMaxIdleLooks = 10'000;

void add(planner::CountedTime& to, double seconds, double count) {
  to.sum_s += seconds;
  to.count += count;
}

}  // namespace

ServingRun::ServingRun(workload::RequestSource& source, const std::vector<const ServingService*>& services,
                       const RunOptions& options)
    : source_(source), options_(options), failures_(options.seed, "failures") {
  services_.reserve(services.size());
  for (std::size_t s = 0; s < services.size(); ++s) {
    services_.emplace_back(*services[s], s, options.seed);
    ServiceState& service = services_.back();
    for (const ServingPool& pool : service.options->pools) {
      service.two_roles = service.two_roles || pool.role != dispatch::Role::kUnified;
      for (int i = 0; i < pool.workers; ++i) become_ready(create(static_cast<int>(s), pool));
    }
    find_candidates(static_cast<int>(s));
    if (service.options->dispatch.decode_choice == dispatch::DecodeChoice::kPartner) pair_workers(static_cast<int>(s));
    if (const auto& flip = service.options->dispatch.flip)
      push(after(0, flip->window_s), ServingEventKind::kFlipCheck, static_cast<int>(s));
    if (const auto& repurpose = service.options->dispatch.repurpose)
      push(after(0, repurpose->window_s), ServingEventKind::kRepurposeCheck, static_cast<int>(s));
  }
  for (const auto& failure : options.failures.at) push(after(0, failure.time_s), ServingEventKind::kFail, failure.worker);
  if (options.controller != nullptr) push(0, ServingEventKind::kTick, 0);
  if (options.verdict_only) services_.front().figures.watch(*options.verdict_only);
}

void ServingRun::pair_workers(int s) {
  std::vector<int> prefills, decodes;
  for (const auto& at : workers_) {
    if (at->service != s) continue;
    (at->role == dispatch::Role::kPrefill ? prefills : decodes).push_back(at->id);
  }
  for (std::size_t i = 0; i < std::min(prefills.size(), decodes.size()); ++i) partners_[prefills[i]] = decodes[i];
}

std::vector<ServingResult> ServingRun::run() {
  next_ = take();
  if (options_.observer != nullptr && options_.sample_interval_s > 0) next_sample_ns_ = 0;
  while ((next_ || in_system_ > 0) && early_verdict() == EarlyVerdict::kNone) {
    if (next_ && (events_.empty() || next_->arrival_ns <= events_.top().time_ns)) {
      advance(next_->arrival_ns);
      progress();
      arrive(*next_);
      next_ = take();
      continue;
    }
    if (events_.empty() || hopeless()) {  // no worker will ever take the waiting requests
      const bool lost = give_up();
      progress();
      if (lost || !events_.empty()) continue;
      assert(!"requests wait in workers that wait for each other");
      break;
    }
    const ServingEvent event = events_.top();
    events_.pop();
    advance(event.time_ns);
    handle(event);
  }
  return results();
}

bool ServingRun::hopeless() const {
  return !next_ && idle_looks_ > kMaxIdleLooks && now_ns_ >= after(progress_ns_, longest_start_s_);
}

EarlyVerdict ServingRun::early_verdict() const {
  if (!options_.verdict_only) return EarlyVerdict::kNone;
  const ServiceState& of = services_.front();
  return of.figures.early_verdict(in_system_, !next_ && of.queue.empty());
}

std::int64_t ServingRun::push(std::int64_t time_ns, ServingEventKind kind, int index, int lane) {
  events_.push(ServingEvent{time_ns, next_id_, index, static_cast<std::int16_t>(lane), kind});
  return next_id_++;
}

void ServingRun::handle(const ServingEvent& event) {
  switch (event.kind) {
    case ServingEventKind::kIterationEnd: return end_iteration(event.index, event.lane);
    case ServingEventKind::kStageFree: worker(event.index).stage_awaited = false; return start(event.index);
    case ServingEventKind::kTransferEnd: return end_transfer(event.index, event.id);
    case ServingEventKind::kReady: return ready(event.index);
    case ServingEventKind::kFail: ++idle_looks_; return fail(event.index);
    case ServingEventKind::kFlipCheck: ++idle_looks_; return check_flips(event.index);
    case ServingEventKind::kFlipped: return flipped(event.index);
    case ServingEventKind::kRepurposeCheck: ++idle_looks_; return check_repurposing(event.index);
    case ServingEventKind::kTick: ++idle_looks_; return tick();
  }
}

void ServingRun::advance(std::int64_t to_ns) {
  while (next_sample_ns_ <= to_ns && next_sample_ns_ < kEndOfTimeNs) {
    sample();
    next_sample_ns_ = after(next_sample_ns_, options_.sample_interval_s);
  }
  now_ns_ = to_ns;
}

void ServingRun::sample() {
  for (const auto& at : workers_) {
    if (at->phase == WorkerPhase::kEnded) continue;
    WorkerSample sample;
    sample.time_s = seconds_between(0, next_sample_ns_);
    sample.service = at->service;
    sample.worker = at->id;
    sample.role = at->role;
    sample.phase = at->phase;
    sample.gpus = at->pool->spec.gpus();
    sample.busy = at->busy();
    sample.waiting = at->waiting();
    sample.running = at->running();
    sample.kv_in_use = at->kv_in_use();
    options_.observer->on_sample(sample);
  }
}

std::optional<ServingRun::Arrival> ServingRun::take() {
  if (arrived_ >= options_.max_requests) return std::nullopt;
  auto request = source_.next();
  if (!request || request->arrival_s > options_.arrivals_end_s) return std::nullopt;
  ++arrived_;
  request->input_tokens = std::max(1, request->input_tokens);
  request->output_tokens = std::max(1, request->output_tokens);
  return Arrival{after(0, request->arrival_s), *request};
}

void ServingRun::start(int w) {
  ServingWorker& at = worker(w);
  if (at.phase == WorkerPhase::kEnded) return;
  const int lanes = static_cast<int>(at.lanes.size());
  do {
    for (int turn = 0; turn < lanes; ++turn) {
      const int lane = (at.next_lane + turn) % lanes;
      if (at.lanes[static_cast<std::size_t>(lane)].busy || engine(w, lane).held() == 0) continue;
      if (at.first_stage_free_ns() > now_ns_) {
        if (!at.stage_awaited) push(at.first_stage_free_ns(), ServingEventKind::kStageFree, w);
        at.stage_awaited = true;
        return;
      }
      if (begin(w, lane)) {
        at.next_lane = (lane + 1) % lanes;
        turn = -1;  // start with the next lane
      }
    }
  } while (!at.busy() && keep_oldest(w));
}

bool ServingRun::begin(int w, int lane) {
  ServingWorker& at = worker(w);
  ServiceState& in = service_of(at);
  at.account_pages(now_ns_);
  SimulatedEngine& running = engine(w, lane);
  const auto batch = running.begin();
  at.count_waiting();
  const std::int64_t swapped = running.swapped_tokens();
  in.figures.counts.swapped_tokens += swapped;
  if (!batch) return false;
  const planner::IterationModel& model = *at.pool->model;
  const double seconds = model.iteration_s(*batch) + static_cast<double>(swapped) * at.pool->swap_s_per_token;
  // Checking coverage is a third of an iteration's work; a run that only needs a verdict does not report it.
  if (!options_.verdict_only && model.coverage(*batch) != planner::Coverage::kMeasured) {
    ++in.figures.counts.extrapolated_iterations;
  }
  for (const int request : running.started()) {
    LiveRequest& of = live(request);
    if (of.started_ns >= 0) continue;  // dispatched again after a worker failed
    of.started_ns = now_ns_;
    in.figures.request_started(seconds_between(of.arrival_ns, now_ns_));
  }
  at.count_iteration(*batch);
  at.counted.prompt_tokens += batch->prefill_tokens;
  if (at.mixed()) at.mixed_s += seconds;
  ServingWorker::Lane& under_way = at.lanes[static_cast<std::size_t>(lane)];
  under_way.decodes = batch->decode_sequences;
  under_way.stalled = std::max(batch->decode_sequences, running.decoding());
  push(at.pass_stages(under_way, now_ns_, seconds), ServingEventKind::kIterationEnd, w, lane);
  return true;
}

void ServingRun::end_iteration(int w, int lane) {
  ServingWorker& at = worker(w);
  if (at.phase == WorkerPhase::kEnded) return;  // it has failed since
  progress();
  ServiceState& in = service_of(at);
  at.account_pages(now_ns_);
  ServingWorker::Lane& ended = at.lanes[static_cast<std::size_t>(lane)];
  ended.busy = false;
  const std::int64_t took_ns = now_ns_ - ended.began_ns;
  const double took_s = seconds_between(0, took_ns);
  const SimulatedEngine::Outcome& outcome = ended.engine.end();
  add(at.counted.iterations, took_s, 1);
  add(at.counted.token_gaps, took_s * ended.stalled, ended.decodes);
  at.counted.generated_tokens += ended.decodes + static_cast<double>(outcome.first_tokens.size());
  at.count_waiting();
  // Before the first tokens: those sequences made their token in a prefill and decode from the next iteration on.
  WorkerChooser& decoders = in.two_roles ? in.second : in.first;
  if (decoders.tracks() && ended.decodes > 0) decoders.iterated(w);
  for (const int request : outcome.first_tokens) {
    LiveRequest& of = live(request);
    of.first_ns = now_ns_;
    service(of.service).first_token.observe(seconds_between(of.dispatched_ns, now_ns_));
    in.figures.first_token(seconds_between(of.arrival_ns, now_ns_));
    add(at.counted.first_tokens, seconds_between(of.dispatched_ns, now_ns_), 1);
    add(at.counted.queueing, seconds_between(of.dispatched_ns, std::max(of.dispatched_ns, of.started_ns)), 1);
    of.prefill_ns = took_ns;
    of.stage = RequestStage::kDecode;
    --at.prompts;
    const auto id = static_cast<std::uint64_t>(of.number);
    if (in.two_roles) {
      in.first.changed(w, -1);  // a unified worker keeps it
      in.first.ended(id, 0);
    } else {
      in.first.first_token(id, seconds_between(0, now_ns_));
    }
  }
  for (const SimulatedEngine::Sequence sequence : outcome.prefilled) {
    const int request = engine(w, lane).request_of(sequence);
    live(request).stage = RequestStage::kHanded;
    at.handed.push_back(request);
    offer_cache(request);
  }
  for (const int request : outcome.finished) finish(request);
  pull(w);  // pages may have become free
  start(w);
  if (!in.queue.empty()) serve_queue(at.service);
  leave_if_empty(w);
}

void ServingRun::offer_cache(int request) {
  LiveRequest& of = live(request);
  ServiceState& in = service(of.service);
  if (of.decode_worker < 0) {
    const int decode = in.second.empty() ? -1 : choose_decode(request);
    if (decode < 0) {
      in.orphans.push_back(request);
      return;
    }
    if (decode == of.prefill_worker) return keep(request);
    join_decode_worker(request, decode);
  }
  const int decode = of.decode_worker;
  worker(decode).to_pull.push_back(request);
  pull(decode);
  start(decode);  // it may have to free pages first
}

void ServingRun::offer_orphans(int s) {
  auto& orphans = service(s).orphans;
  for (const int request : std::deque<int>(orphans)) {
    const auto place = std::find(orphans.begin(), orphans.end(), request);
    if (place == orphans.end()) continue;  // decoded locally since, to free pages for another
    orphans.erase(place);
    offer_cache(request);
    if (live(request).stage == RequestStage::kDecode) start(live(request).prefill_worker);
  }
}

void ServingRun::release_held(int request) {
  const LiveRequest& of = live(request);
  ServingWorker& at = worker(of.prefill_worker);
  at.account_pages(now_ns_);
  engine(of.prefill_worker, of.lane).release(of.held);
  at.promised_tokens -= of.input;
}

void ServingRun::keep(int request) {
  LiveRequest& of = live(request);
  const int w = of.prefill_worker;
  std::erase(worker(w).handed, request);
  join_decode_worker(request, w);
  worker(w).promised_tokens -= of.input;
  of.stage = RequestStage::kDecode;
  engine(w, of.lane).join(of.held);
  service(of.service).second.first_token(static_cast<std::uint64_t>(of.number), seconds_between(0, now_ns_));
}

bool ServingRun::keep_oldest(int w) {
  ServingWorker& at = worker(w);
  if (at.to_pull.empty() || at.handed.empty()) return false;
  const int request = at.handed.front();
  LiveRequest& of = live(request);
  const int before = of.decode_worker;
  std::erase(service(of.service).orphans, request);
  if (before >= 0) std::erase(worker(before).to_pull, request);
  leave_decode_worker(request);
  keep(request);
  if (before < 0) return true;
  pull(before);  // the next one may fit
  leave_if_empty(before);
  return true;
}

void ServingRun::pull(int w) {
  ServingWorker& at = worker(w);
  while (!at.to_pull.empty()) {
    const int request = at.to_pull.front();
    LiveRequest& of = live(request);
    const SequenceSpec spec = spec_of(request);
    const int lane = at.lane_for_cache(spec);
    if (lane < 0) return;
    at.account_pages(now_ns_);
    at.to_pull.pop_front();
    std::erase(worker(of.prefill_worker).handed, request);
    of.decode_lane = lane;
    of.reserved = engine(w, lane).reserve(spec);
    of.stage = RequestStage::kTransfer;
    ++service(of.service).figures.counts.kv_transfers;
    of.transfer = push(arrival_of_cache_ns(of), ServingEventKind::kTransferEnd, request);
  }
}

double ServingRun::transfer_s(const LiveRequest& of) {
  const KvLink& link = service(of.service).options->link;
  const double prefill_s = of.first_ns == now_ns_ ? seconds_between(0, of.prefill_ns) : 0;
  return planner::kv_transfer_after_prefill_s(path_of(of), of.input, link.kv_bytes_per_token, prefill_s);
}

std::int64_t ServingRun::arrival_of_cache_ns(const LiveRequest& of) {
  if (of.pair < 0) return after(now_ns_, transfer_s(of));
  std::int64_t& free_ns = service(of.service).pair_free_ns[static_cast<std::size_t>(of.pair)];
  free_ns = after(std::max(now_ns_, free_ns), transfer_s(of));
  return free_ns;
}

void ServingRun::end_transfer(int request, std::int64_t id) {
  LiveRequest& of = live(request);
  if (of.transfer != id) return;  // a worker failed during the transfer
  progress();
  of.transfer = -1;
  of.stage = RequestStage::kDecode;
  const int prefill = of.prefill_worker, decode = of.decode_worker;
  release_held(request);
  of.lane = of.decode_lane;
  engine(decode, of.lane).join(of.reserved);
  service(of.service).second.first_token(static_cast<std::uint64_t>(of.number), seconds_between(0, now_ns_));
  pull(prefill);  // it has pages again
  start(prefill);
  start(decode);
  leave_if_empty(prefill);
}

void ServingRun::finish(int request) {
  LiveRequest& of = live(request);
  ServiceState& in = service(of.service);
  const int decode = of.decode_worker;
  ++worker(decode).completed;
  (in.two_roles ? in.second : in.first).ended(static_cast<std::uint64_t>(of.number), of.output);
  leave_decode_worker(request);
  in.input_tokens += of.input;
  in.output_tokens += of.output;
  const double ttft_s = seconds_between(of.arrival_ns, of.first_ns), e2e_s = seconds_between(of.arrival_ns, now_ns_);
  const double gap_s = of.output > 1 ? seconds_between(of.first_ns, now_ns_) / (of.output - 1) : 0;
  in.figures.request_completed(of.input, of.output, ttft_s, gap_s, e2e_s);
  if (of.output > 1) {
    add(worker(decode).counted.request_means, gap_s, 1);
    add(worker(decode).counted.decode_seconds, gap_s * (of.output - 1), of.output - 1);
  }
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

int ServingRun::new_live() {
  if (unused_.empty()) {
    live_.emplace_back();
    return static_cast<int>(live_.size()) - 1;
  }
  const int request = unused_.back();
  unused_.pop_back();
  live(request) = LiveRequest{};
  return request;
}

void ServingRun::forget(int request) {
  live(request) = LiveRequest{};
  unused_.push_back(request);
  --in_system_;
}

std::vector<ServingResult> ServingRun::results() {
  std::vector<ServingResult> results;
  const EarlyVerdict early = in_system_ > 0 || next_ ? early_verdict() : EarlyVerdict::kNone;
  if (options_.verdict_only) services_.front().figures.counts.early = early;
  for (const auto& at : workers_) {
    assert(at->phase == WorkerPhase::kEnded || at->rests() || early != EarlyVerdict::kNone);
    service_of(*at).figures.add(*at, now_ns_);
  }
  for (ServiceState& of : services_) results.push_back(of.figures.result(now_ns_));
  return results;
}

}  // namespace windlass::sim
