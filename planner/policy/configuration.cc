// The choice of a configuration and the reasons for it.
#include "planner/policy/configuration.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/deployment/pool_name.h"
#include "planner/perf/linear_model.h"
#include "planner/policy/arrivals.h"
#include "planner/policy/split.h"
#include "planner/policy/trouble.h"
#include "planner/policy/tuning.h"
#include "planner/sizing/phases.h"
#include "planner/sizing/replicated.h"
#include "planner/sizing/tpot_tail.h"

namespace windlass::planner {
namespace {

Objective objective_of(const Service& service) {
  return Objective{service.slo.ttft_s, service.slo.tpot_s, service.slo.percentile};
}

// GPUs that this service could hold: what the class has, less what other services' workers hold.
int available_to(const Service& service, const CapacityByClass& capacities, const std::string& accelerator) {
  const ClassCapacity& capacity = capacities.at(accelerator);
  return std::max(0, capacity.limit - capacity.draining - (capacity.held - live_gpus(service, accelerator)));
}

// Of workers that each have the whole of every request: the accelerator and GPUs of what was chosen last, where workers of it
// are there; else of most.
std::optional<std::pair<std::string, int>> running_configuration(const Service& service, const PolicyMemory& memory) {
  std::map<std::pair<std::string, int>, int> counts;
  for (const Worker& worker : service.workers) {
    if (!holds_gpus(worker) || worker.role != dispatch::Role::kUnified) continue;
    if (worker.pool == memory.configuration) return std::make_pair(worker.accelerator, worker.gpus);
    ++counts[{worker.accelerator, worker.gpus}];
  }
  std::optional<std::pair<std::string, int>> most;
  for (const auto& [key, count] : counts) {
    if (!most || count > counts[*most]) most = key;
  }
  return most;
}

// What the pool's workers had before; none: of no use, or nothing.
PoolSlots slots_before(const PolicyMemory& memory, const std::string& pool, int most) {
  for (const PoolSlots& before : memory.slots) {
    if (before.pool == pool && before.slots >= 1 && before.slots <= most) return before;
  }
  return {};
}

// Slots follow what is believed only when it moves by more than they should: a slot more or less helps nobody, and gateways
// share them out again each time. While requests wait each one helps.
int settled_slots(const ConfigurationInput& input, const std::string& pool, int slots, int most) {
  const int before = slots_before(*input.memory, pool, most).slots;
  if (before < 1) return slots;
  const double up = input.requests_wait ? 1 : kSlotsUp;
  return slots >= kSlotsDown * before && slots <= up * before ? before : slots;
}

// At least the slots that the upper bound of TPOT allows, at most those that its mean does. Between the two one more is tried
// at a time, while requests wait and the slots of before were in use: measuring at one more is what lowers the bound there.
int explored_slots(const ConfigurationInput& input, const WorkerEstimate& known, const std::string& pool, int mean, int bound,
                   int most) {
  const auto [unused, before, held, changed_s] = slots_before(*input.memory, pool, most);
  // What was explored is kept as long as the mean keeps the objective.
  const int slots = std::clamp(before, std::min(mean, bound), mean);
  const bool in_use = known.estimate.largest_batch >= kSlotsInUse * before;
  const bool seen = !changed_s || input.snapshot->now_s - *changed_s >= kExploreEveryS;
  return input.requests_wait && in_use && seen && before >= slots ? std::min(before + 1, mean) : slots;
}

// Two digits: a correction that moves by less makes no new routing table.
double stepped(double value) {
  if (!(value > 0)) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 1);
  return std::round(value / unit) * unit;
}

// Aladdin's lines through the model, around contexts of one to two thousand tokens.
dispatch::PackingModel packing_of(const LatencyModel& model, int most_requests) {
  constexpr double kShort = 1024, kLong = 2048;
  const double prefill_token_s = (model.prefill_s(kLong) - model.prefill_s(kShort)) / (kLong - kShort);
  const double one_s = model.decode_s(1, kShort);
  const double context_token_s = (model.decode_s(1, kLong) - one_s) / (kLong - kShort);
  const double request_s = model.decode_s(2, kShort) - one_s - context_token_s * kShort;
  dispatch::PackingModel packing;
  packing.prefill_token_s = stepped(prefill_token_s);
  packing.prefill_s = stepped(model.prefill_s(kShort) - prefill_token_s * kShort);
  packing.context_token_s = stepped(context_token_s);
  packing.decode_request_s = stepped(request_s);
  packing.decode_s = stepped(one_s - context_token_s * kShort - request_s);
  packing.kv_capacity_tokens = std::floor(std::max(0.0, model.kv_capacity_tokens()));
  packing.kv_request_tokens = kKvBlockTokens;
  packing.most_requests = most_requests;
  return packing;
}

// Slots and times for the lengths that are believed now.
void fit_to_lengths(Configuration& configuration, const ConfigurationInput& input, const LatencyModel& model,
                    const WorkerEstimate* known, const LatencyModel& bound) {
  const int most = std::max(1, configuration.pool.max_concurrency);
  const BatchChoice choice = largest_batch(model, objective_of(*input.service), input.believed);
  int slots = std::min(most, choice.batch);
  if (known != nullptr && slots > 1) {
    const BatchChoice surely = largest_batch(bound, objective_of(*input.service), input.believed);
    slots = explored_slots(input, *known, configuration.pool.name, slots, std::max(1, surely.batch), most);
  }
  configuration.keeps_objective = choice.batch > 0;
  if (choice.batch == 0) {
    // The objective is broken even alone. Refusing to batch would then only add waiting: the objective is loosened with what it
    // is broken by, so that slots do not jump where it is just kept.
    const auto loosened = [](double objective_s, double alone_s) {
      const double broken_by_s = std::max(0.0, alone_s - objective_s);
      return std::min(objective_s + kBatchedSlope * broken_by_s, std::max(objective_s, kBatchedSlack * alone_s));
    };
    Objective nearest = objective_of(*input.service);
    nearest.ttft_s = loosened(nearest.ttft_s, choice.times.ttft_s);
    nearest.tpot_s = loosened(nearest.tpot_s, choice.times.tpot_s / kTpotMargin);
    slots = std::min(most, largest_batch(model, nearest, input.believed).batch);
  }
  configuration.pool.slots = settled_slots(input, configuration.pool.name, std::max(1, slots), most);
  configuration.times = worker_times(model, configuration.pool.slots, input.believed);
  if (known != nullptr && configuration.times.decode_s > 0) {
    const WorkerTimes bounded = worker_times(bound, configuration.pool.slots, input.believed);
    configuration.uncertainty = bounded.decode_s / configuration.times.decode_s - 1;
  }
  configuration.rate_within_tpot_per_s =
      rate_within_tpot(model, objective_of(*input.service), input.believed, configuration.pool.slots);
  configuration.pool.service_rate_per_s = 1 / configuration.times.service_s;
  configuration.pool.kv_cache_tokens = static_cast<std::int64_t>(std::max(0.0, model.kv_capacity_tokens()));
  configuration.pool.packing = packing_of(model, most);
}

// The same for workers of one phase.
void fit_to_phase(Configuration& configuration, const ConfigurationInput& input, const LatencyModel& model) {
  PoolPlan& pool = configuration.pool;
  const int most = std::max(1, pool.max_concurrency);
  const PhaseFit fit = pool.role == dispatch::Role::kPrefill
                           ? fit_prefill(model, input.believed, most)
                           : fit_decode(model, objective_of(*input.service), input.believed, most);
  configuration.times = fit.times;
  pool.slots = settled_slots(input, pool.name, std::max(1, fit.slots), most);
  // Of the same rate with a slot more or less.
  if (fit.slots > 0) configuration.times.service_s *= static_cast<double>(pool.slots) / fit.slots;
  pool.service_rate_per_s = configuration.times.service_s > 0 ? 1 / configuration.times.service_s : 0;
  pool.kv_cache_tokens = static_cast<std::int64_t>(std::max(0.0, model.kv_capacity_tokens()));
  pool.packing = packing_of(model, most);
}

}  // namespace

Configuration make_configuration(const ConfigurationInput& input, const AcceleratorSpec& spec, int gpus, int batch,
                                 std::string pool, dispatch::Role role) {
  Configuration configuration;
  configuration.pool.name = std::move(pool);
  configuration.pool.role = role;
  configuration.pool.accelerator = spec.name;
  configuration.pool.gpus_per_worker = gpus;
  configuration.pool.max_concurrency = batch;
  configuration.price_per_hour = gpus * spec.price_per_hour;
  const LinearCoefficients sheet = linear_coefficients(*input.service->shape, spec, gpus);
  const WorkerEstimate* known = find_estimate(input.service->estimates, spec.name, gpus);
  const IterationEstimate nothing;
  const IterationEstimate& estimate = known != nullptr ? known->estimate : nothing;
  const LinearModel model(estimated(sheet, estimate));
  if (role == dispatch::Role::kUnified) {
    fit_to_lengths(configuration, input, model, known, UpperBoundModel(sheet, estimate));
  } else {
    fit_to_phase(configuration, input, model);
  }
  return configuration;
}

bool may_use(const Service& service, const std::string& accelerator) {
  return accelerator.empty() || service.accelerators.empty() ||
         std::any_of(service.accelerators.begin(), service.accelerators.end(),
                     [&](const AllowedAccelerator& one) { return one.accelerator == accelerator; });
}

std::vector<AllowedAccelerator> allowed_of(const Service& service, const Snapshot& snapshot) {
  if (!service.accelerators.empty()) return service.accelerators;
  std::vector<AllowedAccelerator> all;
  for (const AcceleratorState& state : snapshot.accelerators) all.push_back(AllowedAccelerator{state.spec.name, std::nullopt});
  return all;
}

namespace {

// What is believed of these workers, from where, and what the data sheet says instead.
void explain_belief(const Service& service, const AcceleratorSpec& spec, const Configuration& chosen, const Lengths& lengths,
                    ConfigurationChoice& choice) {
  const PoolPlan& pool = chosen.pool;
  const WorkerEstimate* known = find_estimate(service.estimates, pool.accelerator, pool.gpus_per_worker);
  if (known == nullptr) return;
  const IterationEstimate& estimate = known->estimate;
  const LinearCoefficients sheet = linear_coefficients(*service.shape, spec, pool.gpus_per_worker);
  const LinearModel of_sheet(sheet), believed(estimated(sheet, estimate));
  const double batch = std::max(1.0, std::round(estimate.seen_batch > 0 ? estimate.seen_batch : pool.slots));
  const double context = lengths.input_tokens + kContextGrowth * lengths.output_tokens;
  const double decode_s = believed.decode_s(batch, context), prefill_s = believed.prefill_s(lengths.input_tokens);
  const double sheet_decode_s = of_sheet.decode_s(batch, context), sheet_prefill_s = of_sheet.prefill_s(lengths.input_tokens);
  std::string from = estimate.decode_count > 0 ? fmt::format("measured, {:.0f} iterations", estimate.decode_count)
                     : known->from_profile     ? "a PerformanceProfile"
                                               : "measured";
  if (known->gpus_per_worker != pool.gpus_per_worker)
    from += fmt::format(", on {} x {}", known->gpus_per_worker, pool.accelerator);
  choice.reasons.push_back(Reason{
      "MeasuredTimes",
      fmt::format("decode {:.3g} ms at batch {:.0f} ({}), the data sheet said {:.3g} ms; a prompt of {:.0f} tokens {:.3g} ms, "
                  "the data sheet said {:.3g} ms",
                  decode_s * 1e3, batch, from, sheet_decode_s * 1e3, lengths.input_tokens, prefill_s * 1e3,
                  sheet_prefill_s * 1e3),
      {{"samples", std::to_string(estimate.samples)},
       {"batch", figure(batch)},
       {"decodeS", figure(decode_s)},
       {"sheetDecodeS", figure(sheet_decode_s)},
       {"prefillS", figure(prefill_s)},
       {"sheetPrefillS", figure(sheet_prefill_s)},
       {"noise", figure(std::sqrt(estimate.noise_variance))}}});
  if (const auto advice = advise_on_sheet(*service.shape, spec, *known); advice && advice->off) {
    choice.reasons.push_back(Reason{"DataSheetOff",
                                    fmt::format("AcceleratorClass {}: {}", spec.name, advice->to_text(*service.shape)),
                                    {{"decodeTimes", figure(advice->decode_times)},
                                     {"prefillTimes", figure(advice->prefill_times)},
                                     {"memoryBandwidthBytesPerS", figure(advice->memory_bandwidth_bytes_per_s)},
                                     {"peakFlopsPerS", figure(advice->peak_flops_per_s)}}});
  }
}

// Classes that the service may not use and that would do, in words; empty: there is none.
std::string others_that_would_do(const ReplicatedInput& asked, const Snapshot& snapshot) {
  ReplicatedInput input = asked;
  input.accelerators.clear();
  for (const AcceleratorState& state : snapshot.accelerators) {
    input.accelerators.push_back(AcceleratorOption{state.spec, state.spec.gpus_per_node, state.spec.gpus_per_node});
  }
  const ReplicatedResult result = place_replicated(input);
  if (result.candidates.empty()) return {};
  const Candidate& best = result.candidates.front();
  return fmt::format(
      "; {} x {} would do, at {:.4g} ms to the first token and {:.4g} ms a token, if spec.accelerators allowed it",
      best.config.gpus, best.config.accelerator, best.config.times.ttft_s * 1e3, best.config.times.tpot_s * 1e3);
}

// What to run though nothing keeps the objective: what comes closest to it. Of what was not measured, what would keep it if its
// data sheet were off by kSheetMayBeOff, and first of all what runs, for it is measured soonest.
std::optional<Candidate> closest_of(const ReplicatedResult& result, const ReplicatedInput& input,
                                    const std::optional<std::pair<std::string, int>>& running) {
  std::optional<Candidate> closest;
  double least = std::numeric_limits<double>::infinity();
  for (const Rejected& rejected : result.rejected) {
    if (rejected.code != RejectCode::kTpot && rejected.code != RejectCode::kTtft) continue;
    const bool runs = running && *running == std::make_pair(rejected.accelerator, rejected.gpus);
    const bool measured = find_estimate(input.estimates, rejected.accelerator, rejected.gpus) != nullptr;
    const double times =
        std::max(rejected.smallest_tpot_s / input.objective.tpot_s, rejected.smallest_ttft_s / input.objective.ttft_s);
    if (!measured && times > kSheetMayBeOff) continue;
    const auto option = std::find_if(input.accelerators.begin(), input.accelerators.end(),
                                     [&](const AcceleratorOption& o) { return o.spec.name == rejected.accelerator; });
    if (!runs && option->available_gpus < rejected.gpus) continue;
    const double rank = !runs ? times : measured ? times / kKeptSlack : 0;
    if (rank >= least) continue;
    least = rank;
    const LinearModel model(believed_coefficients(input.shape, option->spec, rejected.gpus, input.estimates));
    closest.emplace();
    closest->config = WorkerConfig{rejected.accelerator,
                                   rejected.gpus,
                                   1,
                                   BatchLimit::kTpot,
                                   0,
                                   model.kv_capacity_tokens(),
                                   worker_times(model, 1, input.lengths)};
    closest->has_room = true;
  }
  return closest;
}

// The message of an objective that cannot be met: what the best try gives, and so what would meet it.
void explain_infeasible(const ReplicatedResult& result, const ReplicatedInput& asked, const ConfigurationInput& given,
                        ConfigurationChoice& choice) {
  const Service& service = *given.service;
  std::set<RejectCode> codes;
  for (const Rejected& rejected : result.rejected) codes.insert(rejected.code);
  choice.feasible.status = Truth::kFalse;
  std::map<std::string, std::string> inputs;
  if (codes.contains(RejectCode::kTpot) || codes.contains(RejectCode::kTtft)) {
    const bool tpot = result.smallest_tpot_s > service.slo.tpot_s;
    const bool ttft = result.smallest_ttft_s > service.slo.ttft_s;
    std::vector<std::string> parts;
    if (ttft) {
      parts.push_back(fmt::format("timeToFirstToken {:.4g} ms needs at least {:.4g} ms ({})", service.slo.ttft_s * 1e3,
                                  std::ceil(result.smallest_ttft_s * 1e4) / 10, result.smallest_ttft_on));
      inputs["smallestTtftS"] = figure(result.smallest_ttft_s);
    }
    if (tpot) {
      parts.push_back(fmt::format("timePerOutputToken {:.4g} ms needs at least {:.4g} ms ({})", service.slo.tpot_s * 1e3,
                                  std::ceil(result.smallest_tpot_s * 1e4) / 10, result.smallest_tpot_on));
      inputs["smallestTpotS"] = figure(result.smallest_tpot_s);
    }
    if (parts.empty()) {
      parts.emplace_back("no single configuration meets timeToFirstToken and timePerOutputToken together");
    }
    choice.feasible.reason = ttft && !tpot ? "TtftTooTight" : "TpotTooTight";
    choice.feasible.message = fmt::format(
        "the objective cannot be met with the allowed accelerators: {}; loosen it, shorten the assumed "
        "lengths, or allow a faster accelerator or more of them",
        fmt::join(parts, "; "));
  } else if (!result.rejected.empty()) {
    const Rejected& closest = result.rejected.back();
    choice.feasible.reason = to_string(closest.code);
    choice.feasible.message = fmt::format(
        "{}; allow an accelerator with more memory, more of them per worker, or a shorter maxContextTokens", closest.message);
  } else {
    choice.feasible.reason = "NoAccelerator";
    choice.feasible.message = "no allowed accelerator has room for a worker";
  }
  choice.feasible.message += others_that_would_do(asked, *given.snapshot);
  choice.reasons.push_back(Reason{choice.feasible.reason, choice.feasible.message, std::move(inputs)});
  for (const Rejected& rejected : result.rejected) {
    choice.reasons.push_back(Reason{to_string(rejected.code),
                                    rejected.message,
                                    {{"accelerator", rejected.accelerator}, {"gpusPerWorker", std::to_string(rejected.gpus)}}});
  }
}

// Everything that was weighed, what would do before what would not.
void weigh(const ReplicatedResult& result, const std::optional<Candidate>& winner, const ReplicatedInput& input,
           ConfigurationChoice& choice) {
  const auto price_of = [&](const std::string& accelerator) {
    for (const AcceleratorOption& option : input.accelerators) {
      if (option.spec.name == accelerator) return option.spec.price_per_hour;
    }
    return 0.0;
  };
  const auto tail_rate_of = [&](const WorkerConfig& config) {
    for (const AcceleratorOption& option : input.accelerators) {
      if (option.spec.name != config.accelerator) continue;
      const LinearModel model(believed_coefficients(input.shape, option.spec, config.gpus, input.estimates));
      return rate_within_tpot(model, input.objective, input.lengths, config.batch);
    }
    return 0.0;
  };
  const auto add = [&](const Candidate& candidate, bool chosen) {
    const WorkerConfig& config = candidate.config;
    Weighed weighed{Considered{config.accelerator, config.gpus, 0, 0, config.times.tpot_s, config.times.ttft_s, {}},
                    config.batch,
                    config.times.service_s,
                    config.gpus * price_of(config.accelerator),
                    false,
                    tail_rate_of(config)};
    weighed.outbid = !chosen && candidate.has_room;
    if (!chosen && !candidate.has_room)
      weighed.considered.rejected = fmt::format("no {} x {} are free", config.gpus, config.accelerator);
    choice.weighed.push_back(std::move(weighed));
  };
  bool listed = false;
  for (const Candidate& candidate : result.candidates) {
    const bool chosen =
        winner && candidate.config.accelerator == winner->config.accelerator && candidate.config.gpus == winner->config.gpus;
    listed = listed || chosen;
    add(candidate, chosen);
  }
  if (winner && !listed) add(*winner, true);
  for (const Rejected& rejected : result.rejected) {
    choice.weighed.push_back(Weighed{Considered{rejected.accelerator, rejected.gpus, 0, 0, rejected.smallest_tpot_s,
                                                rejected.smallest_ttft_s, rejected.message},
                                     0, 0, 0, false, 0});
  }
}

// Why the other accelerators lost.
void explain_losers(const ReplicatedResult& result, const Candidate& winner, ConfigurationChoice& choice) {
  for (const Candidate& loser : result.candidates) {
    if (loser.config.accelerator == winner.config.accelerator) continue;
    const char* code = loser.has_room ? "NotChosen" : "NoRoom";
    std::string message =
        loser.has_room
            ? fmt::format("{} workers of {} x {} for {:.4g} an hour, against {:.4g} for {}", loser.workers, loser.config.gpus,
                          loser.config.accelerator, loser.cost_per_hour, winner.cost_per_hour, winner.config.accelerator)
            : fmt::format("no {} x {} are left for a worker", loser.config.gpus, loser.config.accelerator);
    choice.reasons.push_back(Reason{
        code, std::move(message), {{"accelerator", loser.config.accelerator}, {"costPerHour", figure(loser.cost_per_hour)}}});
  }
  // Of an accelerator that nowhere meets the objective, the try with most GPUs came closest.
  std::map<std::string, const Rejected*> last;
  for (const Rejected& rejected : result.rejected) last[rejected.accelerator] = &rejected;
  for (const auto& [accelerator, rejected] : last) {
    const bool has_candidate = std::any_of(result.candidates.begin(), result.candidates.end(),
                                           [&](const Candidate& c) { return c.config.accelerator == accelerator; });
    if (!has_candidate) {
      choice.reasons.push_back(Reason{to_string(rejected->code), rejected->message, {{"accelerator", accelerator}}});
    }
  }
}

}  // namespace

double requests_per_s(const Configuration& configuration) {
  const double full = configuration.pool.slots * configuration.pool.service_rate_per_s;
  return configuration.rate_within_tpot_per_s > 0 ? std::min(full, configuration.rate_within_tpot_per_s) : full;
}

std::string figure(double value) { return fmt::format("{:.6g}", value); }

Configuration describe_running(const ConfigurationInput& input, const Worker& worker) {
  const Service& service = *input.service;
  const AcceleratorState* state = find_accelerator(*input.snapshot, worker.accelerator);
  const bool known = state != nullptr && service.shape && worker.gpus >= 1 &&
                     peak_flops_for(state->spec, service.shape->dtype) > 0 &&
                     (worker.gpus == 1 || state->spec.intra_link_bandwidth_bytes_per_s > 0);
  if (known)
    return make_configuration(input, state->spec, worker.gpus, std::max(1, worker.max_concurrency), worker.pool, worker.role);
  // Its class or the model's shape is not known: it goes on with the slots it has, and JFFC takes it last.
  Configuration configuration;
  configuration.pool.name = worker.pool;
  configuration.pool.role = worker.role;
  configuration.pool.accelerator = worker.accelerator;
  configuration.pool.gpus_per_worker = worker.gpus;
  configuration.pool.max_concurrency = std::max(1, worker.max_concurrency);
  configuration.pool.slots = configuration.pool.max_concurrency;
  for (const PoolSlots& given : input.memory->slots) {
    if (given.pool == worker.pool) configuration.pool.slots = std::clamp(given.slots, 1, configuration.pool.max_concurrency);
  }
  if (state != nullptr) configuration.price_per_hour = worker.gpus * state->spec.price_per_hour;
  return configuration;
}

namespace {

// A worker that the new configuration starts with.
struct FirstWorker {
  std::string accelerator;
  int gpus = 0;
  double price_per_hour = 0;
  std::optional<int> max_gpus;  // of the class, for the whole service
};

FirstWorker first_of(const Configuration& of) {
  return {of.pool.accelerator, of.pool.gpus_per_worker, of.price_per_hour, of.max_gpus};
}

// From one configuration to another: what both cost for the same load, and how long the old one's workers have to drain.
struct CostlyChange {
  std::string names;  // "from 1 x h100 to 2 x a100"
  double running_cost_per_hour = 0;
  double winner_cost_per_hour = 0;
  double drain_s = 0;
  std::vector<FirstWorker> first;
};

// Why a change that only saves money is not made; empty: it is.
Reason objection_to_change(const ConfigurationInput& input, const CostlyChange& change) {
  const Service& service = *input.service;
  const PolicyMemory& memory = *input.memory;
  const std::string& names = change.names;
  if (!input.signals_complete) {
    return Reason{"HeldOnMissingSignals", fmt::format("no change {} while arrivals or queue cannot be believed", names), {}};
  }
  const double start_s = start_time_s(service);
  const double drain_s = std::min(service.scaling.drain_timeout_s, change.drain_s);
  const auto& since_s = memory.configuration.empty() ? memory.history_since_s : memory.configuration_since_s;
  const double horizon_s = std::clamp(since_s ? input.snapshot->now_s - *since_s : 0.0, 0.0, kPaybackS);
  const double saved_per_hour = change.running_cost_per_hour - change.winner_cost_per_hour;
  const double saved = saved_per_hour * horizon_s / 3600;
  const double spent = (change.winner_cost_per_hour * start_s + change.running_cost_per_hour * drain_s) / 3600;
  if (!(saved > spent)) {
    return Reason{"ChangeDoesNotPayBack",
                  fmt::format("a change {} would save {:.4g} within {:.0f} s and cost {:.4g} while both run", names, saved,
                              horizon_s, spent),
                  {{"saved", figure(saved)}, {"spent", figure(spent)}, {"horizonS", figure(horizon_s)}}};
  }
  double own_cost = 0;
  for (const Worker& worker : service.workers) {
    if (!holds_gpus(worker)) continue;
    if (const AcceleratorState* state = find_accelerator(*input.snapshot, worker.accelerator)) {
      own_cost += worker.gpus * state->spec.price_per_hour;
    }
  }
  bool no_gpus = false, no_share = false;
  std::map<std::string, int> gpus;
  for (const FirstWorker& first : change.first) {
    const int wanted = gpus[first.accelerator] += first.gpus;
    own_cost += first.price_per_hour;
    const ClassCapacity& capacity = input.capacities->at(first.accelerator);
    no_gpus = no_gpus || capacity.limit - capacity.draining - capacity.held < wanted;
    no_share = no_share || (first.max_gpus && *first.max_gpus - live_gpus(service, first.accelerator) < wanted);
  }
  const bool no_money = service.scaling.max_cost_per_hour && own_cost > *service.scaling.max_cost_per_hour + 1e-9;
  if (no_gpus || no_share || no_money) {
    return Reason{"NoRoomForChange",
                  fmt::format("a change {} would save {:.4g} an hour, but no new worker can start beside those that run: {}",
                              names, saved_per_hour,
                              no_gpus    ? "no accelerator is free"
                              : no_share ? "maxGPUs is reached"
                                         : "maxCostPerHour is reached"),
                  {}};
  }
  return {};
}

// Workers that each have the whole of every request.
ConfigurationChoice choose_whole(const ConfigurationInput& given) {
  const Service& service = *given.service;
  const Snapshot& snapshot = *given.snapshot;
  ConfigurationChoice choice;
  const auto running = running_configuration(service, *given.memory);
  if (running && may_use(service, running->first) && find_accelerator(snapshot, running->first) == nullptr) {
    choice.feasible = Hint{Truth::kUnknown, "RunningClassUnknown",
                           fmt::format("workers run on class {}, which cannot be read: they stay as they are",
                                       running->first.empty() ? "(none named)" : running->first)};
    choice.reasons.push_back(Reason{choice.feasible.reason, choice.feasible.message, {{"accelerator", running->first}}});
    return choice;
  }

  ReplicatedInput input;
  input.shape = *service.shape;
  input.objective = objective_of(service);
  input.lengths = Lengths{service.workload.input_tokens, service.workload.output_tokens};
  input.requests_per_s = service.workload.requests_per_s;
  input.max_context_tokens = service.max_context_tokens;
  input.max_gpus_per_worker = service.max_gpus_per_worker;
  input.estimates = service.estimates;
  std::map<std::string, std::optional<int>> max_gpus;
  for (const AllowedAccelerator& allowed : allowed_of(service, snapshot)) {
    const AcceleratorState* state = find_accelerator(snapshot, allowed.accelerator);
    if (state == nullptr) {
      std::vector<std::string> known;
      for (const AcceleratorState& other : snapshot.accelerators) known.push_back(other.spec.name);
      choice.reasons.push_back(Reason{"UnknownAccelerator",
                                      fmt::format("spec.accelerators: found class {}, known are: {}", allowed.accelerator,
                                                  known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))),
                                      {{"accelerator", allowed.accelerator}}});
      continue;
    }
    if (!max_gpus.emplace(allowed.accelerator, allowed.max_gpus).second) continue;  // listed twice: the first counts
    const int available = available_to(service, *given.capacities, allowed.accelerator);
    input.accelerators.push_back(
        AcceleratorOption{state->spec, allowed.max_gpus.value_or(state->spec.gpus_per_node), available});
  }

  ReplicatedResult result = place_replicated(input);
  const bool infeasible = result.candidates.empty();
  if (infeasible) {
    explain_infeasible(result, input, given, choice);
    weigh(result, std::nullopt, input, choice);
    const auto closest = closest_of(result, input, running);
    if (!closest) return choice;
    result.candidates.push_back(*closest);
    const WorkerConfig& config = closest->config;
    if (find_estimate(service.estimates, config.accelerator, config.gpus) == nullptr) {
      choice.feasible.status = Truth::kUnknown;
      choice.feasible.reason = "NotMeasured";
      choice.feasible.message = fmt::format("by its data sheet alone; {} x {} is measured before that is believed: {}",
                                            config.gpus, config.accelerator, choice.feasible.message);
    }
  }
  Candidate winner = result.candidates.front();

  const bool under_way = given.memory->configuration == pool_name(winner.config.accelerator, winner.config.gpus);
  const bool differs = running && !under_way && *running != std::make_pair(winner.config.accelerator, winner.config.gpus);
  if (differs && max_gpus.contains(running->first)) {
    // Does what runs still meet the objective? Then it stays, unless the winner costs clearly less.
    const auto option = std::find_if(input.accelerators.begin(), input.accelerators.end(),
                                     [&](const AcceleratorOption& o) { return o.spec.name == running->first; });
    ReplicatedInput only = input;
    only.accelerators = {*option};
    // What is measured moves with its noise: at the edge what runs stays.
    only.objective.ttft_s *= kKeptSlack;
    only.objective.tpot_s *= kKeptSlack;
    const auto kept = replicated_candidate(only, running->second);
    if (kept) {
      const bool clearly_cheaper = winner.has_room && winner.cost_per_hour < kSwitchCostShare * kept->cost_per_hour;
      Reason objection;
      if (!clearly_cheaper) {
        objection = Reason{"KeptConfiguration",
                           fmt::format("{} x {} runs and meets the objective; {} x {} would cost {:.4g} instead of {:.4g} an "
                                       "hour, which is not below {:.0f} %",
                                       running->second, running->first, winner.config.gpus, winner.config.accelerator,
                                       winner.cost_per_hour, kept->cost_per_hour, kSwitchCostShare * 100),
                           {}};
      } else {
        const WorkerConfig& to = winner.config;
        const double price = to.gpus * find_accelerator(snapshot, to.accelerator)->spec.price_per_hour;
        objection = objection_to_change(given, {fmt::format("from {} x {} to {} x {}", kept->config.gpus,
                                                            kept->config.accelerator, to.gpus, to.accelerator),
                                                kept->cost_per_hour,
                                                winner.cost_per_hour,
                                                kept->config.times.service_s,
                                                {{to.accelerator, to.gpus, price, max_gpus[to.accelerator]}}});
      }
      if (!objection.code.empty()) {
        choice.reasons.push_back(std::move(objection));
        winner = *kept;
      }
    }
  }

  const AcceleratorSpec& spec = find_accelerator(snapshot, winner.config.accelerator)->spec;
  const auto may_run = [&](const WorkerConfig& config) {
    const int context = service.max_context_tokens > 0 ? service.max_context_tokens : service.shape->max_context_tokens;
    return batch_in_memory(config.kv_capacity_tokens, input.lengths, service.reserves_context ? context : 0);
  };
  choice.chosen = make_configuration(given, spec, winner.config.gpus, may_run(winner.config),
                                     pool_name(winner.config.accelerator, winner.config.gpus));
  choice.chosen->max_gpus = max_gpus[winner.config.accelerator];
  if (service.scaling.strategy == Strategy::kAuto) {
    for (const Candidate& candidate : result.candidates) {
      const WorkerConfig& config = candidate.config;
      const bool listed = std::any_of(choice.others.begin(), choice.others.end(),
                                      [&](const Configuration& other) { return other.pool.accelerator == config.accelerator; });
      if (config.accelerator == winner.config.accelerator || listed) continue;
      choice.others.push_back(make_configuration(given, find_accelerator(snapshot, config.accelerator)->spec, config.gpus,
                                                 may_run(config), pool_name(config.accelerator, config.gpus)));
      choice.others.back().max_gpus = max_gpus[config.accelerator];
    }
    const auto price_per_request = [](const Configuration& of) { return of.price_per_hour / requests_per_s(of); };
    std::stable_sort(choice.others.begin(), choice.others.end(), [&](const Configuration& a, const Configuration& b) {
      return price_per_request(a) < price_per_request(b);
    });
  }
  if (infeasible) {
    explain_belief(service, spec, *choice.chosen, given.believed, choice);
    return choice;
  }
  choice.feasible =
      Hint{Truth::kTrue, "ObjectiveCanBeMet",
           fmt::format("{} requests at once on {} x {}", winner.config.batch, winner.config.gpus, winner.config.accelerator)};
  choice.reasons.push_back(
      Reason{"WorkerConfiguration",
             fmt::format("{} x {} serves {} requests at once at {:.4g} tokens/s per accelerator (limit: {}), {:.4g} ms a token",
                         winner.config.gpus, winner.config.accelerator, winner.config.batch, winner.config.tokens_per_s_per_gpu,
                         to_string(winner.config.limit), winner.config.times.tpot_s * 1e3),
             {{"accelerator", winner.config.accelerator},
              {"gpusPerWorker", std::to_string(winner.config.gpus)},
              {"batch", std::to_string(winner.config.batch)},
              {"limit", to_string(winner.config.limit)},
              {"tokensPerSPerGpu", figure(winner.config.tokens_per_s_per_gpu)},
              {"kvCacheTokens", figure(winner.config.kv_capacity_tokens)},
              {"prefillS", figure(winner.config.times.prefill_s)},
              {"tpotS", figure(winner.config.times.tpot_s)},
              {"serviceS", figure(winner.config.times.service_s)}}});
  explain_belief(service, spec, *choice.chosen, given.believed, choice);
  explain_losers(result, winner, choice);
  weigh(result, winner, input, choice);
  return choice;
}

// Strategy Auto: whole workers, or split phases where the strategies say that those cost clearly less. What runs stays unless
// the other does, as among the classes.
ConfigurationChoice choose_either(const ConfigurationInput& given) {
  const Service& service = *given.service;
  if (!service.may_split) return choose_whole(given);
  const bool split = runs_split(service, *given.memory);
  if (!service.split) return split ? choose_split(given) : choose_whole(given);
  const SplitAdvice& advice = *service.split;
  const bool nothing_runs = std::none_of(service.workers.begin(), service.workers.end(), holds_gpus);
  const bool may_change = nothing_runs || given.signals_complete;
  // Of split phases that no longer hold nothing is chosen: the workers stay.
  if (!advice.holds) return split && !may_change ? choose_split(given) : choose_whole(given);

  ConfigurationChoice whole = choose_whole(given);
  ConfigurationChoice parts = choose_split(given);
  const auto holds = [](const ConfigurationChoice& choice) { return choice.chosen && choice.feasible.status == Truth::kTrue; };
  // Where whole workers hold, phases are split with room for a pair in its proportion, and stay split with room for any.
  if (parts.chosen && holds(whole)) {
    const int prompt_workers = split ? 1 : parts.prefill->workers(1);
    Reason objection = objection_to_pair(service, *parts.chosen, *parts.prefill, prompt_workers);
    if (!objection.code.empty()) {
      parts = {};
      parts.feasible = Hint{Truth::kFalse, objection.code, objection.message};
      parts.reasons.push_back(std::move(objection));
    }
  }
  ConfigurationChoice& running = split ? parts : whole;
  ConfigurationChoice& other = split ? whole : parts;
  // What runs cannot be read, or cannot hold: the other only where it can.
  if (!running.chosen) {
    return std::move(running.feasible.status == Truth::kFalse && holds(other) && may_change ? other : running);
  }
  if (!other.chosen) return std::move(running);

  const double never = std::numeric_limits<double>::infinity();
  const double whole_cost = advice.whole_cost_per_hour.value_or(never);
  const double running_cost = split ? advice.cost_per_hour : whole_cost;
  const double other_cost = split ? whole_cost : advice.cost_per_hour;
  const char* const name = split ? "split phases" : "whole workers";
  const char* const other_name = split ? "whole workers" : "split phases";
  const double share = nothing_runs ? 1 : kSwitchCostShare;
  Reason objection;
  if (!(other_cost < share * running_cost)) {
    const auto said = [&](double cost) { return cost < never ? fmt::format("{:.4g} an hour", cost) : "any price"; };
    objection = Reason{"NotChosen",
                       fmt::format("{}: for the load that was simulated {}, against {} for {}, which is not below {:.0f} %",
                                   other_name, said(other_cost), said(running_cost), name, share * 100),
                       {{"costPerHour", figure(advice.cost_per_hour)}, {"wholeCostPerHour", figure(whole_cost)}}};
  } else if (!may_change) {
    objection = Reason{
        "HeldOnMissingSignals", fmt::format("no change to {} while arrivals or queue cannot be believed", other_name), {}};
  } else if (!nothing_runs && running_cost < never) {
    CostlyChange change{fmt::format("from {} to {}", name, other_name),
                        running_cost,
                        other_cost,
                        running.chosen->times.service_s,
                        {first_of(*other.chosen)}};
    if (other.prefill) change.first.push_back(first_of(other.prefill->configuration));
    objection = objection_to_change(given, change);
  }
  if (objection.code.empty()) return std::move(other);
  running.reasons.push_back(std::move(objection));
  return std::move(running);
}

}  // namespace

ConfigurationChoice choose_configuration(const ConfigurationInput& given) {
  const Service& service = *given.service;
  const auto refuse = [](Hint feasible) {
    ConfigurationChoice choice;
    choice.reasons.push_back(Reason{feasible.reason, feasible.message, {}});
    choice.feasible = std::move(feasible);
    return choice;
  };
  if (!service.shape) {
    return refuse({Truth::kUnknown, "ModelShapeUnknown",
                   service.shape_unknown_reason.empty() ? "the model's shape is not known" : service.shape_unknown_reason});
  }
  switch (service.scaling.strategy) {
    case Strategy::kAuto: return choose_either(given);
    case Strategy::kReplicated: return choose_whole(given);
    case Strategy::kDisaggregated: return choose_split(given);
    case Strategy::kChained: break;
  }
  return refuse({Truth::kFalse, "StrategyNotAvailable",
                 "scaling.strategy: found Chained; this version plans Auto, Replicated and Disaggregated"});
}

}  // namespace windlass::planner
