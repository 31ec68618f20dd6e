// See serving_simulation.h.
#include "planner/sim/serving_simulation.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <queue>

#include <fmt/format.h>

#include "planner/sim/event_time.h"

namespace windlass::sim {
namespace {

struct Worker {
  Worker(const ServingPool& pool, const EngineOptions& options)
      : pool(&pool), kv_blocks(options.kv_blocks), engine(options), role(pool.role) {}

  const ServingPool* pool;
  std::int64_t kv_blocks;
  Engine engine;
  WorkerRole role;
  bool busy = false;
  std::int64_t busy_ns = 0;
  std::int64_t iteration_began_ns = 0;
  int prompts = 0;          // requests that are to be prefilled here
  int decodes = 0;          // requests that decode here, or will
  std::deque<int> handed;   // requests that were prefilled here and whose caches wait to be pulled by their decode workers
  std::deque<int> to_pull;  // requests whose caches wait for room here, in the order in which they were ready

  // In the mixed pool while it has work of the other role.
  [[nodiscard]] bool mixed() const {
    return role == WorkerRole::kPrefill ? decodes > 0 : role == WorkerRole::kDecode && prompts > 0;
  }
  // Tokens that are pending here, those of requests on their way included.
  [[nodiscard]] std::int64_t pending() const { return engine.pending_tokens() + (decodes - engine.decoding()); }
};

struct Live {
  std::int64_t number = 0;
  std::int64_t arrival_ns = 0;
  std::int64_t started_ns = 0;
  std::int64_t first_ns = 0;
  std::int64_t prefill_ns = 0;  // how long the iteration took that made the first token
  int input = 0;
  int output = 0;
  int prefill_worker = -1;
  int decode_worker = -1;
  Engine::Sequence held = -1;      // at the prefill worker
  Engine::Sequence reserved = -1;  // at the decode worker
};

enum class EventKind { kIterationEnd, kTransferEnd };

struct Event {
  std::int64_t time_ns;
  std::int64_t id;
  EventKind kind;
  int index;  // worker or request

  bool operator>(const Event& other) const { return time_ns != other.time_ns ? time_ns > other.time_ns : id > other.id; }
};

// Chooses a worker of one role.
class Chooser {
 public:
  Chooser(std::vector<int> candidates, const ServingOptions& options, const char* stream) : candidates_(std::move(candidates)) {
    if (options.dispatch) policy_ = dispatch::make_policy(*options.dispatch, Rng(options.seed, stream));
  }

  void start(const std::vector<Worker>& workers) {
    if (!policy_) return;
    for (const int w : candidates_) {
      const Worker& worker = workers[static_cast<std::size_t>(w)];
      // A slot's rate: alone on the worker, one token after another.
      const double rate = 1 / worker.pool->model->iteration_s(planner::decode_batch(1, 1024));
      states_.push_back(dispatch::ChainState{rate, worker.pool->engine.max_sequences, 0, false});
    }
    policy_->reset(states_);
  }

  // Among workers that pass `admits`; -1: none does.
  template <class Admits>
  [[nodiscard]] int choose(const std::vector<Worker>& workers, Admits admits) {
    if (policy_) {
      const auto chosen = policy_->choose();
      const int w = chosen ? candidates_[*chosen] : -1;
      return w >= 0 && admits(workers[static_cast<std::size_t>(w)]) ? w : fewest_pending(workers, candidates_, admits);
    }
    return fewest_pending(workers, candidates_, admits);
  }

  template <class Admits>
  [[nodiscard]] static int fewest_pending(const std::vector<Worker>& workers, const std::vector<int>& candidates,
                                          Admits admits) {
    int best = -1;
    for (const int w : candidates) {
      const Worker& worker = workers[static_cast<std::size_t>(w)];
      if (!admits(worker)) continue;
      if (best < 0 || worker.pending() < workers[static_cast<std::size_t>(best)].pending()) best = w;
    }
    return best;
  }

  void changed(int worker, int by) {
    if (!policy_) return;
    const auto at = std::lower_bound(candidates_.begin(), candidates_.end(), worker);
    if (at == candidates_.end() || *at != worker) return;
    const auto index = static_cast<std::size_t>(at - candidates_.begin());
    states_[index].in_flight += by;
    policy_->update(index, states_[index]);
  }

  [[nodiscard]] const std::vector<int>& candidates() const { return candidates_; }

 private:
  std::vector<int> candidates_;  // workers, rising
  std::unique_ptr<dispatch::DispatchPolicy> policy_;
  std::vector<dispatch::ChainState> states_;
};

class Simulation {
 public:
  Simulation(workload::RequestSource& source, const ServingOptions& options, std::vector<Worker> workers)
      : source_(source),
        options_(options),
        workers_(std::move(workers)),
        first_(with_role(WorkerRole::kPrefill, WorkerRole::kUnified), options, "prefill"),
        second_(with_role(WorkerRole::kDecode, WorkerRole::kDecode), options, "decode") {
    first_.start(workers_);
    second_.start(workers_);
  }

  ServingResult run() {
    auto next = take();
    if (options_.observer != nullptr && options_.sample_interval_s > 0) next_sample_ns_ = 0;
    while (next || !events_.empty()) {
      if (next && (events_.empty() || next->arrival_ns <= events_.top().time_ns)) {
        advance(next->arrival_ns);
        arrive(*next);
        next = take();
        continue;
      }
      const Event event = events_.top();
      events_.pop();
      advance(event.time_ns);
      if (event.kind == EventKind::kIterationEnd) {
        end_iteration(event.index);
      } else {
        end_transfer(event.index);
      }
    }
    return result();
  }

 private:
  struct Arrival {
    std::int64_t arrival_ns;
    int input, output;
  };

  [[nodiscard]] std::vector<int> with_role(WorkerRole a, WorkerRole b) const {
    std::vector<int> found;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      if (workers_[w].role == a || workers_[w].role == b) found.push_back(static_cast<int>(w));
    }
    return found;
  }
  [[nodiscard]] bool two_roles() const { return !second_.candidates().empty(); }
  Worker& worker(int w) { return workers_[static_cast<std::size_t>(w)]; }
  Live& live(int request) { return live_[static_cast<std::size_t>(request)]; }

  // Samples show the state before the event at their moment.
  void advance(std::int64_t to_ns) {
    while (next_sample_ns_ <= to_ns && next_sample_ns_ < kEndOfTimeNs) {
      sample();
      next_sample_ns_ = after(next_sample_ns_, options_.sample_interval_s);
    }
    now_ns_ = to_ns;
  }

  void sample() {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const Worker& at = workers_[w];
      WorkerSample sample;
      sample.time_s = seconds_between(0, next_sample_ns_);
      sample.worker = static_cast<int>(w);
      sample.role = at.role;
      sample.busy = at.busy;
      sample.waiting = at.engine.waiting();
      sample.running = at.engine.running();
      sample.kv_in_use = 1 - static_cast<double>(at.engine.free_blocks()) / static_cast<double>(at.kv_blocks);
      options_.observer->on_sample(sample);
    }
  }

  std::optional<Arrival> take() {
    if (arrived_ >= options_.max_requests) return std::nullopt;
    const auto request = source_.next();
    if (!request || request->arrival_s > options_.arrivals_end_s) return std::nullopt;
    ++arrived_;
    return Arrival{after(0, request->arrival_s), std::max(1, request->input_tokens), std::max(1, request->output_tokens)};
  }

  // The worker of one role, or where Splitwise's cluster scheduler looks when that has too much pending.
  template <class Admits>
  int route(Chooser& own, Chooser& other, Admits admits) {
    const int best = own.choose(workers_, admits);
    if (!options_.mixed_pool_threshold_tokens || other.candidates().empty()) return best;
    const auto threshold = *options_.mixed_pool_threshold_tokens;
    if (best >= 0 && worker(best).pending() <= threshold) return best;
    // The mixed pool first, then the other role.
    for (const bool mixed : {true, false}) {
      const int spare = Chooser::fewest_pending(workers_, other.candidates(), [&](const Worker& w) {
        return w.mixed() == mixed && admits(w) && w.pending() <= threshold;
      });
      if (spare >= 0) return spare;
    }
    return best;
  }

  void arrive(const Arrival& arrival) {
    ++result_.requests;
    const auto holds = [&](const Worker& w) { return w.engine.can_hold(arrival.input, arrival.output); };
    int prefill = -1, decode = -1;
    if (two_roles()) {
      // A single token needs no decode worker.
      prefill = route(first_, second_, holds);
      decode = arrival.output == 1 ? prefill : route(second_, first_, holds);
    } else {
      prefill = decode = first_.choose(workers_, holds);
    }
    if (prefill < 0 || decode < 0) {
      ++result_.refused;
      if (options_.observer != nullptr) {
        ServedRequest refused;
        refused.number = result_.requests - 1;
        refused.arrival_s = seconds_between(0, now_ns_);
        refused.input_tokens = arrival.input;
        refused.output_tokens = arrival.output;
        refused.refused = true;
        options_.observer->on_request(refused);
      }
      return;
    }
    const int request = new_live();
    Live& of = live(request);
    of.number = result_.requests - 1;
    of.arrival_ns = now_ns_;
    of.input = arrival.input;
    of.output = arrival.output;
    of.prefill_worker = prefill;
    of.decode_worker = decode;
    ++worker(prefill).prompts;
    ++worker(decode).decodes;
    first_.changed(prefill, 1);
    second_.changed(decode, 1);
    const Engine::Sequence sequence = worker(prefill).engine.enqueue(
        {.request = request, .prompt_tokens = arrival.input, .output_tokens = arrival.output, .hand_over = prefill != decode});
    if (prefill != decode) of.held = sequence;
    start(prefill);
  }

  void start(int w) {
    Worker& at = worker(w);
    if (at.busy) return;
    auto batch = at.engine.begin();
    while (!batch && keep_oldest(w)) batch = at.engine.begin();
    if (!batch) return;
    const double seconds = at.pool->model->iteration_s(*batch);
    if (at.pool->model->coverage(*batch) != planner::Coverage::kMeasured) ++result_.extrapolated_iterations;
    for (const int request : at.engine.started()) {
      live(request).started_ns = now_ns_;
      scheduling_delay_.observe(seconds_between(live(request).arrival_ns, now_ns_));
    }
    at.busy = true;
    at.iteration_began_ns = now_ns_;
    sequences_ += batch->prefill_sequences + batch->decode_sequences;
    ++result_.iterations;
    events_.push(Event{after(now_ns_, seconds), next_id_++, EventKind::kIterationEnd, w});
  }

  void end_iteration(int w) {
    Worker& at = worker(w);
    at.busy = false;
    at.busy_ns += now_ns_ - at.iteration_began_ns;
    const Engine::Outcome& outcome = at.engine.end();
    for (const int request : outcome.first_tokens) {
      Live& of = live(request);
      of.first_ns = now_ns_;
      of.prefill_ns = now_ns_ - at.iteration_began_ns;
      --at.prompts;
      if (two_roles()) first_.changed(w, -1);  // a unified worker keeps it
    }
    for (const Engine::Sequence sequence : outcome.prefilled) {
      const int request = at.engine.request_of(sequence);
      at.handed.push_back(request);
      const int decode = live(request).decode_worker;
      worker(decode).to_pull.push_back(request);
      pull(decode);
      start(decode);  // it may have to make room
    }
    for (const int request : outcome.finished) finish(request);
    pull(w);  // pages may have become free
    start(w);
  }

  // In a mixed pool two workers may be full of caches that each waits to hand to the other. One that has nothing to run and
  // blocks others decodes the oldest of its own after all.
  bool keep_oldest(int w) {
    Worker& at = worker(w);
    if (at.to_pull.empty() || at.handed.empty()) return false;
    const int request = at.handed.front();
    Live& of = live(request);
    at.handed.pop_front();
    const int before = of.decode_worker;
    std::erase(worker(before).to_pull, request);
    --worker(before).decodes;
    second_.changed(before, -1);
    of.decode_worker = w;
    ++at.decodes;
    second_.changed(w, 1);
    at.engine.join(of.held);
    pull(before);  // the next may fit where this one did not
    return true;
  }

  // Starts the transfers of caches that this worker has room for, in the order in which they were ready.
  void pull(int w) {
    Worker& at = worker(w);
    while (!at.to_pull.empty()) {
      const int request = at.to_pull.front();
      Live& of = live(request);
      const SequenceSpec spec{.request = request, .prompt_tokens = of.input, .output_tokens = of.output};
      if (!at.engine.has_room(spec)) return;
      at.to_pull.pop_front();
      std::erase(worker(of.prefill_worker).handed, request);
      of.reserved = at.engine.reserve(spec);
      ++result_.kv_transfers;
      events_.push(Event{after(now_ns_, transfer_s(of)), next_id_++, EventKind::kTransferEnd, request});
    }
  }

  [[nodiscard]] double transfer_s(const Live& of) const {
    const KvLink& link = options_.link;
    const double bytes_s = link.bandwidth_bytes_per_s > 0 ? of.input * link.kv_bytes_per_token / link.bandwidth_bytes_per_s : 0;
    if (link.layers <= 0) return link.latency_s + bytes_s;
    // Every layer's cache leaves while later layers are computed: what is left is the last one's, or what the link could not
    // keep up with.
    return link.latency_s +
           std::max(bytes_s / link.layers, bytes_s - static_cast<double>(of.prefill_ns) / kNanosecondsPerSecond);
  }

  void end_transfer(int request) {
    Live& of = live(request);
    worker(of.prefill_worker).engine.release(of.held);
    worker(of.decode_worker).engine.join(of.reserved);
    const int decode = of.decode_worker;  // what pull() starts may move requests about
    pull(of.prefill_worker);              // pages have become free there
    start(of.prefill_worker);
    start(decode);
  }

  void finish(int request) {
    Live& of = live(request);
    Worker& at = worker(of.decode_worker);
    --at.decodes;
    (two_roles() ? second_ : first_).changed(of.decode_worker, -1);
    ++result_.completed;
    const double ttft_s = seconds_between(of.arrival_ns, of.first_ns), e2e_s = seconds_between(of.arrival_ns, now_ns_);
    const double gap_s = of.output > 1 ? seconds_between(of.first_ns, now_ns_) / (of.output - 1) : 0;
    ttft_.observe(ttft_s);
    e2e_.observe(e2e_s);
    normalised_.observe(e2e_s / of.output);
    if (of.output > 1) tbt_.observe(gap_s);
    if (options_.objectives && ttft_s <= options_.objectives->ttft_s && gap_s <= options_.objectives->tpot_s) ++attained_;
    if (options_.slowdown_reference != nullptr) observe_slowdown(of, ttft_s, gap_s, e2e_s);
    if (options_.observer != nullptr) {
      options_.observer->on_request(ServedRequest{of.number, seconds_between(0, of.arrival_ns), of.input, of.output, false,
                                                  of.prefill_worker, of.decode_worker,
                                                  seconds_between(of.arrival_ns, of.started_ns), ttft_s, gap_s, e2e_s});
    }
    unused_.push_back(request);
    if (options_.progress && result_.completed % (1 << 14) == 0) options_.progress(result_.completed);
  }

  void observe_slowdown(const Live& of, double ttft_s, double gap_s, double e2e_s) {
    const planner::IterationModel& alone = *options_.slowdown_reference;
    const double prefill_s = alone.iteration_s(planner::prefill_batch(1, of.input));
    slowdown_ttft_.observe(ttft_s / prefill_s);
    double decode_s = 0;
    if (of.output > 1) {
      // Its context grows evenly: the middle one stands for all.
      decode_s = alone.iteration_s(planner::decode_batch(1, of.input + of.output / 2.0));
      slowdown_tbt_.observe(gap_s / decode_s);
    }
    slowdown_e2e_.observe(e2e_s / (prefill_s + (of.output - 1) * decode_s));
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

  ServingResult result() {
    ServingResult& r = result_;
    r.scheduling_delay = scheduling_delay_.summary();
    r.ttft = ttft_.summary();
    r.tbt = r.tpot = tbt_.summary();
    r.e2e = e2e_.summary();
    r.normalised = normalised_.summary();
    if (options_.objectives && r.requests > 0) r.attainment = static_cast<double>(attained_) / static_cast<double>(r.requests);
    if (options_.slowdown_reference != nullptr) {
      r.slowdown = ServingResult::Slowdown{slowdown_ttft_.summary(), slowdown_tbt_.summary(), slowdown_e2e_.summary()};
    }
    r.simulated_s = seconds_between(0, now_ns_);
    double busy_s = 0;
    for (const Worker& w : workers_) {
      r.preemptions += w.engine.preemptions();
      busy_s += seconds_between(0, w.busy_ns);
      const double hours = w.pool->gpus_per_worker * r.simulated_s / 3600;
      r.gpu_hours += hours;
      r.cost += hours * w.pool->price_per_gpu_hour;
      r.energy_kwh += hours * w.pool->power_per_gpu_watts / 1000;
    }
    if (r.simulated_s > 0) r.busy_share = busy_s / (r.simulated_s * static_cast<double>(workers_.size()));
    if (r.iterations > 0) r.mean_batch = static_cast<double>(sequences_) / static_cast<double>(r.iterations);
    return r;
  }

  workload::RequestSource& source_;
  const ServingOptions& options_;
  std::vector<Worker> workers_;
  Chooser first_;   // unified or prefill workers
  Chooser second_;  // decode workers
  std::vector<Live> live_;
  std::vector<int> unused_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t next_id_ = 0;
  std::int64_t now_ns_ = 0;
  std::int64_t next_sample_ns_ = std::numeric_limits<std::int64_t>::max();  // never
  std::int64_t arrived_ = 0;
  std::int64_t attained_ = 0;
  std::int64_t sequences_ = 0;
  TimeRecorder scheduling_delay_, ttft_, tbt_, e2e_, normalised_, slowdown_ttft_, slowdown_tbt_, slowdown_e2e_;
  ServingResult result_;
};

Result<void> validate(const ServingOptions& options) {
  bool unified = false, prefill = false, decode = false;
  for (std::size_t i = 0; i < options.pools.size(); ++i) {
    const ServingPool& pool = options.pools[i];
    const auto wrong = [&](const char* field, const std::string& found, const char* allowed) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("cluster.pools[{}].{}: found {}, allowed is {}", i, field, found, allowed)};
    };
    if (pool.workers < 1) return wrong("workers", std::to_string(pool.workers), "a number of at least 1");
    if (pool.engine.kv_blocks == 0 && !(pool.model->kv_capacity_tokens() >= pool.engine.block_tokens)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("cluster.pools[{}]: the model does not fit: {:.0f} tokens are left for the KV cache", i,
                               pool.model->kv_capacity_tokens())};
    }
    unified = unified || pool.role == WorkerRole::kUnified;
    prefill = prefill || pool.role == WorkerRole::kPrefill;
    decode = decode || pool.role == WorkerRole::kDecode;
  }
  for (std::size_t i = 0; options.mixed_pool_threshold_tokens && i < options.pools.size(); ++i) {
    const Batching batching = options.pools[i].engine.batching;
    if (batching != Batching::kStatic && batching != Batching::kOrca) continue;
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("scheduling.batching: found {} with a mixed pool, allowed are vllm, mixed, sarathi", to_string(batching))};
  }
  if (!(unified ? !prefill && !decode : prefill && decode)) {
    return Error{ErrorCode::kInvalidArgument,
                 "cluster.pools: found roles that serve no request, allowed are pools that are all unified, or prefill and "
                 "decode pools"};
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

Result<ServingResult> simulate_serving(workload::RequestSource& source, const ServingOptions& options) {
  WINDLASS_RETURN_IF_ERROR(validate(options));
  std::vector<Worker> workers;
  for (const ServingPool& pool : options.pools) {
    EngineOptions engine = pool.engine;
    if (engine.kv_blocks == 0)
      engine.kv_blocks = static_cast<std::int64_t>(pool.model->kv_capacity_tokens()) / engine.block_tokens;
    for (int i = 0; i < pool.workers; ++i) workers.emplace_back(pool, engine);
  }
  return Simulation(source, options, std::move(workers)).run();
}

}  // namespace windlass::sim
