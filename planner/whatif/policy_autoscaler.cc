// See policy_autoscaler.h.
#include "planner/whatif/policy_autoscaler.h"

#include <algorithm>
#include <cassert>
#include <set>

#include "planner/perf/linear_model.h"
#include "planner/policy/capacity.h"
#include "planner/policy/make_plan.h"
#include "planner/sizing/worker_config.h"

namespace windlass::sim {
namespace {

constexpr double kScrapePeriodS = 1;     // same as the controller's
constexpr double kSameMomentS = 1e-6;    // tolerance for times that differ by rounding
constexpr std::size_t kStartsKept = 20;  // starts kept per service, for their P90

planner::WorkerState state_of(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kStarting: return planner::WorkerState::kStarting;
    case WorkerPhase::kReady: return planner::WorkerState::kReady;
    case WorkerPhase::kDraining:
    case WorkerPhase::kEnded: return planner::WorkerState::kDraining;
  }
  return planner::WorkerState::kDraining;
}

// Iterations that our worker would measure before it is ready: two prompts and two batches.
std::vector<planner::MeasuredIteration> own_measurements(const ServingPool& pool) {
  constexpr int kContext = 256;
  std::vector<planner::MeasuredIteration> out;
  for (const int tokens : {32, 256}) out.push_back({tokens, 0, 0, pool.model->iteration_s(planner::prefill_batch(1, tokens))});
  for (const int batch : {1, std::min(8, std::max(1, pool.spec.engine.max_sequences))})
    out.push_back({0, batch, kContext, pool.model->iteration_s(planner::decode_batch(batch, kContext))});
  return out;
}

// What an engine's metrics page shows of these counters.
planner::WorkerCounters counters_of(const PolicyAutoscalerOptions& options, const ObservedWorker& worker, double at_s) {
  const ObservedCounters& all = worker.counted;
  planner::WorkerCounters out;
  out.at_s = at_s;
  out.running = worker.running;
  out.waiting = worker.waiting;
  out.prompt_tokens = all.prompt_tokens;
  out.generated_tokens = all.generated_tokens;
  const auto prefills = [&] {
    return planner::CountedTime{all.first_tokens.sum_s - all.queueing.sum_s, all.first_tokens.count};
  };
  switch (options.metrics) {
    case MetricSet::kWindlass:
      out.iterations = all.iterations;
      out.first_tokens = all.first_tokens;
      if (options.measures_itself) out.measured = own_measurements(*worker.pool);
      break;
    case MetricSet::kVllm:
      out.token_gaps = all.token_gaps;
      out.first_tokens = all.first_tokens;
      out.queueing = all.queueing;
      out.prefills = prefills();
      break;
    case MetricSet::kSglang:
      out.token_gaps = all.token_gaps;
      out.first_tokens = all.first_tokens;
      break;
    case MetricSet::kTensorRtLlm:
      out.token_gaps = all.request_means;
      out.gaps_at_end = true;
      out.first_tokens = all.first_tokens;
      break;
    case MetricSet::kLlamaCpp:
      out.token_gaps = all.decode_seconds;
      out.gaps_at_end = true;
      out.prompt_seconds = prefills().sum_s;
      break;
  }
  return out;
}

double nearest_rank_p90(const std::deque<double>& values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted[(sorted.size() * 9 + 9) / 10 - 1];
}

}  // namespace

const char* to_string(MetricSet set) {
  switch (set) {
    case MetricSet::kWindlass: return "windlass";
    case MetricSet::kVllm: return "vllm";
    case MetricSet::kSglang: return "sglang";
    case MetricSet::kTensorRtLlm: return "tensorrt-llm";
    case MetricSet::kLlamaCpp: return "llama.cpp";
  }
  return "unknown";
}

PolicyAutoscaler::PolicyAutoscaler(PolicyAutoscalerOptions options)
    : options_(std::move(options)), history_(options_.services.size()), starts_(options_.services.size()) {
  snapshot_.accelerators = options_.accelerators;
  snapshot_.services = options_.services;
  for (planner::Service& service : snapshot_.services) service.may_split = false;  // its workers are unified
  for (std::size_t s = 0; s < options_.services.size(); ++s) {
    for (const planner::WorkerEstimate& one : options_.known) {
      const planner::AcceleratorState* state = find_accelerator(snapshot_, one.accelerator);
      if (state == nullptr || !options_.services[s].shape) continue;
      learners_[{static_cast<int>(s), one.accelerator, one.gpus_per_worker}].begin(
          one.estimate, planner::linear_coefficients(*options_.services[s].shape, state->spec, one.gpus_per_worker,
                                                     options_.services[s].engine));
    }
  }
}

double PolicyAutoscaler::interval_s() const {
  return options_.metrics_age_s > 0 ? std::min(options_.interval_s, kScrapePeriodS) : options_.interval_s;
}

void PolicyAutoscaler::look(const ClusterObservation& observation) {
  for (std::size_t s = 0; s < observation.services.size(); ++s) {
    measure_starts(s, observation.services[s]);
    auto& history = history_[s];
    history.push_back({observation.now_s, observation.services[s]});
    const double longest_s = options_.metrics_age_s + std::max({options_.arrivals_window_s, options_.lengths_window_s,
                                                                options_.services[s].slo.window_s});
    while (history.size() > 2 && history[1].time_s <= observation.now_s - longest_s) history.pop_front();
    // Worker loads are read at one time; totals over windows that end at that time.
    const Look* read = readable(s, observation.now_s);
    if (read != nullptr) learn(s, *read);
    for (auto past = history.rbegin(); read != nullptr && past != history.rend(); ++past) {
      if (past->time_s >= read->time_s) continue;
      if (past->seen.workers.empty()) break;
      past->seen.workers.clear();
    }
  }
}

// Learns what the controller would read from the workers' pages.
void PolicyAutoscaler::learn(std::size_t service, const Look& look) {
  const planner::Service& of = snapshot_.services[service];
  if (!of.shape) return;
  const planner::Demand lengths = demand(service, look);
  const double input = lengths.input_tokens ? lengths.input_tokens->value : of.workload.input_tokens;
  const double output = lengths.output_tokens ? lengths.output_tokens->value : of.workload.output_tokens;
  for (const ObservedWorker& worker : look.seen.workers) {
    if (worker.phase == WorkerPhase::kStarting || worker.pool->role != dispatch::Role::kUnified) continue;
    const planner::AcceleratorState* state = find_accelerator(snapshot_, worker.pool->spec.accelerator);
    if (state == nullptr) continue;
    const planner::LinearCoefficients base =
        planner::linear_coefficients(*of.shape, state->spec, worker.pool->spec.gpus(), of.engine);
    planner::IterationLearner& learner =
        learners_[{static_cast<int>(service), worker.pool->spec.accelerator, worker.pool->spec.gpus()}];
    learner.take(std::to_string(worker.worker), counters_of(options_, worker, look.time_s), base,
                 input + planner::kContextGrowth * output, input);
  }
}

// Counts a start only if the worker was seen before it was ready; workers that existed from the beginning are excluded.
void PolicyAutoscaler::measure_starts(std::size_t service, const ObservedService& seen) {
  Starts& starts = starts_[service];
  std::set<int> under_way;
  for (const ObservedWorker& worker : seen.workers) {
    if (worker.phase == WorkerPhase::kStarting) {
      under_way.insert(worker.worker);
    } else if (starts.under_way.contains(worker.worker)) {
      starts.measured_s.push_back(worker.ready_s - worker.created_s);
      if (starts.measured_s.size() > kStartsKept) starts.measured_s.pop_front();
    }
  }
  starts.under_way = std::move(under_way);
}

const PolicyAutoscaler::Look* PolicyAutoscaler::readable(std::size_t service, double now_s) const {
  const auto& history = history_[service];
  double from_s = now_s - options_.metrics_age_s;
  for (const PolicyAutoscalerOptions::Gap& gap : options_.no_metrics) {
    if (from_s >= gap.from_s && from_s < gap.until_s) from_s = gap.from_s;
  }
  const auto after = std::upper_bound(history.begin(), history.end(), from_s + kSameMomentS,
                                      [](double time_s, const Look& look) { return time_s < look.time_s; });
  return after == history.begin() ? nullptr : &*(after - 1);
}

const PolicyAutoscaler::Look& PolicyAutoscaler::before(std::size_t service, const Look& look, double seconds) const {
  const auto& history = history_[service];
  const auto after = std::upper_bound(history.begin(), history.end(), look.time_s - seconds + kSameMomentS,
                                      [](double time_s, const Look& other) { return time_s < other.time_s; });
  return after == history.begin() ? history.front() : *(after - 1);
}

planner::Demand PolicyAutoscaler::demand(std::size_t service, const Look& now) const {
  planner::Demand demand;
  const auto reading = [&](double value) { return planner::Reading{value, now.time_s}; };
  demand.arrivals_window_s = options_.arrivals_window_s;
  demand.arrivals_total = reading(static_cast<double>(now.seen.arrived));
  demand.queued = reading(now.seen.queued);
  if (now.seen.last_arrival_s >= 0) demand.last_arrival_at_s = now.seen.last_arrival_s;
  const Look& earlier = before(service, now, options_.arrivals_window_s);
  if (now.time_s > earlier.time_s) {
    demand.arrivals_per_s =
        reading(static_cast<double>(now.seen.arrived - earlier.seen.arrived) / (now.time_s - earlier.time_s));
  }
  const Look& measured = before(service, now, options_.lengths_window_s);
  const auto count = static_cast<double>(now.seen.completed - measured.seen.completed);
  if (count >= options_.min_measured) {
    demand.input_tokens = reading(static_cast<double>(now.seen.input_tokens - measured.seen.input_tokens) / count);
    demand.output_tokens = reading(static_cast<double>(now.seen.output_tokens - measured.seen.output_tokens) / count);
    demand.measured_requests = count;
  }
  const Look& judged = before(service, now, options_.services[service].slo.window_s);
  const Look& lately = before(service, now, planner::Demand::kRecentS);
  const auto lately_ended =
      static_cast<double>(now.seen.completed + now.seen.failed - lately.seen.completed - lately.seen.failed);
  if (lately_ended > 0) {
    demand.recent_attainment = reading(static_cast<double>(now.seen.attained - lately.seen.attained) / lately_ended);
    demand.recently_judged = lately_ended;
  }
  const auto ended = static_cast<double>(now.seen.completed + now.seen.failed - judged.seen.completed - judged.seen.failed);
  if (ended > 0) demand.attainment = reading(static_cast<double>(now.seen.attained - judged.seen.attained) / ended);
  return demand;
}

// The existence of workers is known immediately, as through the controller's watch; their metrics are as old as the last
// readable look.
std::vector<planner::Worker> PolicyAutoscaler::workers(const ObservedService& seen, const Look* read) const {
  std::map<int, const ObservedWorker*> loads;
  if (read != nullptr) {
    for (const ObservedWorker& worker : read->seen.workers) {
      if (worker.phase != WorkerPhase::kStarting) loads[worker.worker] = &worker;
    }
  }
  std::vector<planner::Worker> workers;
  std::map<std::string, int> next_slot;
  for (const ObservedWorker& worker : seen.workers) {
    planner::Worker described;
    described.name = "worker-" + std::to_string(worker.worker);
    described.pool = worker.pool->name;
    described.slot = next_slot[worker.pool->name]++;
    described.accelerator = worker.pool->spec.accelerator;
    described.gpus = worker.pool->spec.gpus();
    described.state = state_of(worker.phase);
    described.created_s = worker.created_s;
    described.max_concurrency = worker.pool->spec.engine.max_sequences;
    if (worker.phase != WorkerPhase::kStarting) described.ready_s = worker.ready_s;
    if (const auto load = loads.find(worker.worker); load != loads.end()) {
      described.running = planner::Reading{static_cast<double>(load->second->running), read->time_s};
      described.waiting = planner::Reading{static_cast<double>(load->second->waiting), read->time_s};
      described.kv_use = planner::Reading{load->second->kv_use, read->time_s};
    }
    workers.push_back(std::move(described));
  }
  return workers;
}

ClusterOrders PolicyAutoscaler::decide(const ClusterObservation& observation) {
  assert(observation.services.size() == options_.services.size());
  look(observation);
  if (observation.now_s < next_decision_s_ - kSameMomentS) return {};
  next_decision_s_ = observation.now_s + options_.interval_s;
  snapshot_.now_s = observation.now_s;
  for (std::size_t s = 0; s < observation.services.size(); ++s) {
    const Look* read = readable(s, observation.now_s);
    planner::Service& service = snapshot_.services[s];
    service.demand = read == nullptr ? planner::Demand{} : demand(s, *read);
    service.workers = workers(observation.services[s], read);
    service.estimates.clear();
    for (const auto& [of, learner] : learners_) {
      const auto& [index, accelerator, gpus] = of;
      if (index == static_cast<int>(s) && learner.estimate().knows())
        service.estimates.push_back({accelerator, gpus, false, learner.estimate()});
    }
    if (const auto& measured = starts_[s].measured_s; !measured.empty())
      service.starts = planner::StartTimes{nearest_rank_p90(measured), static_cast<int>(measured.size())};
  }

  if (options_.searches) {
    [[maybe_unused]] const auto attached = search::attach_all_offers(book_, snapshot_, search::Effort{});
    assert(attached.ok());  // nothing stops it
  }
  plan_ = planner::make_plan(snapshot_);
  ClusterOrders orders;
  for (std::size_t s = 0; s < plan_.services.size(); ++s) {
    planner::Service& service = snapshot_.services[s];
    const planner::ServicePlan& plan = plan_.services[s];
    carry_out(static_cast<int>(s), plan, observation.services[s], orders);
    service.memory = plan.memory;
    service.last_desired = plan.desired_workers();
  }
  wait_for_gpus(observation, orders);
  for (const planner::Denied& denied : plan_.denied)
    denied_worker_s_[denied.code] += (denied.wanted_workers - denied.granted_workers) * options_.interval_s;
  return orders;
}

const ServingPool* PolicyAutoscaler::find_or_make(int service, const planner::Pool& plan) {
  auto& made = pools_[{service, plan.name}];
  if (made) return made.get();
  auto pool = options_.pool(service, plan.spec.accelerator, plan.spec.gpus());
  if (!pool.ok()) {
    if (problem_.ok()) problem_ = pool.error();
    return nullptr;
  }
  made = std::make_unique<ServingPool>(std::move(pool).value());
  made->name = plan.name;
  made->spec.accelerator = plan.spec.accelerator;
  if (plan.spec.engine != planner::EngineSettings{}) {
    const std::int64_t kv_blocks = made->spec.engine.kv_blocks;
    made->spec.engine = plan.spec.engine;
    made->spec.engine.kv_blocks = kv_blocks;
  }
  made->spec.engine.max_sequences = plan.each.max_concurrency;
  return made.get();
}

void PolicyAutoscaler::wait_for_gpus(const ClusterObservation& observation, ClusterOrders& orders) const {
  std::map<std::string, int> free;  // by accelerator; nodes of an elastic class are added on request
  for (const planner::AcceleratorState& state : options_.accelerators) {
    if (state.mode == planner::CapacityMode::kObserved) free[state.spec.name] = state.allocatable_gpus - state.used_by_others;
  }
  const std::set<int> leave(orders.drain.begin(), orders.drain.end());
  for (const ObservedService& service : observation.services) {
    for (const ObservedWorker& worker : service.workers) {
      const bool ends_now = worker.phase == WorkerPhase::kStarting && leave.contains(worker.worker);
      const auto of_class = free.find(worker.pool->spec.accelerator);
      if (of_class != free.end() && !ends_now) of_class->second -= worker.pool->spec.gpus();
    }
  }
  for (ClusterOrders::Start& start : orders.start) {
    const auto of_class = free.find(start.pool->spec.accelerator);
    if (of_class == free.end()) continue;
    start.workers = std::min(start.workers, std::max(0, of_class->second) / std::max(1, start.pool->spec.gpus()));
    of_class->second -= start.workers * start.pool->spec.gpus();
  }
  std::erase_if(orders.start, [](const ClusterOrders::Start& start) { return start.workers == 0; });
}

void PolicyAutoscaler::carry_out(int service, const planner::ServicePlan& plan, const ObservedService& seen,
                                 ClusterOrders& orders) {
  std::map<std::string, std::vector<const ObservedWorker*>> active;
  for (const ObservedWorker& worker : seen.workers) {
    if (worker.phase == WorkerPhase::kStarting || worker.phase == WorkerPhase::kReady)
      active[worker.pool->name].push_back(&worker);
  }
  std::map<std::string, int> wanted;
  for (const planner::Pool& pool : plan.pools) {
    wanted[pool.name] = pool.workers;
    const int there = static_cast<int>(active[pool.name].size());
    if (pool.workers > there) {
      if (const ServingPool* made = find_or_make(service, pool)) orders.start.push_back({service, made, pool.workers - there});
    }
    int& slots = slots_[{service, pool.name}];
    if (slots != pool.each.slots) {
      slots = pool.each.slots;
      orders.slots.push_back({service, pool.name, pool.each.slots});
    }
    int& desired = desired_.try_emplace({service, pool.name}, -1).first->second;
    if (std::exchange(desired, pool.workers) != pool.workers)
      decisions_.push_back({snapshot_.now_s, service, pool.name, pool.workers, plan.reasons});
  }
  for (auto& [name, workers] : active) {
    const int surplus = static_cast<int>(workers.size()) - (wanted.contains(name) ? wanted.at(name) : 0);
    if (surplus > 0) sort_for_draining(workers);
    for (int i = 0; i < surplus; ++i) orders.drain.push_back(workers[static_cast<std::size_t>(i)]->worker);
    if (!wanted.contains(name)) {
      int& desired = desired_.try_emplace({service, name}, -1).first->second;
      if (std::exchange(desired, 0) != 0) decisions_.push_back({snapshot_.now_s, service, name, 0, plan.reasons});
    }
  }
}

}  // namespace windlass::sim
