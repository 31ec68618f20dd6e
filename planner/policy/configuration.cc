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

#include "planner/perf/linear_model.h"
#include "planner/policy/tuning.h"
#include "planner/search/replicated.h"

namespace windlass::planner {
namespace {

Objective objective_of(const Service& service) {
  return Objective{service.slo.ttft_s, service.slo.tpot_s, service.slo.percentile};
}

std::vector<AllowedAccelerator> allowed_of(const Service& service, const Snapshot& snapshot) {
  if (!service.accelerators.empty()) return service.accelerators;
  std::vector<AllowedAccelerator> all;
  for (const AcceleratorState& state : snapshot.accelerators) all.push_back(AllowedAccelerator{state.spec.name, std::nullopt});
  return all;
}

// GPUs that this service could hold: what the class has, less what other services' workers hold.
int available_to(const Service& service, const Snapshot& snapshot, const CapacityByClass& capacities,
                 const std::string& accelerator) {
  const ClassCapacity& capacity = capacities.at(accelerator);
  int available = capacity.limit - capacity.draining;
  for (const Service& other : snapshot.services) {
    if (other.id != service.id) available -= live_gpus(other, accelerator);
  }
  return std::max(0, available);
}

// The accelerator and GPUs of most live workers.
std::optional<std::pair<std::string, int>> running_configuration(const Service& service) {
  std::map<std::pair<std::string, int>, int> counts;
  for (const Worker& worker : service.workers) {
    if (worker.state == WorkerState::kStarting || worker.state == WorkerState::kReady)
      ++counts[{worker.accelerator, worker.gpus}];
  }
  std::optional<std::pair<std::string, int>> most;
  for (const auto& [key, count] : counts) {
    if (!most || count > counts[*most]) most = key;
  }
  return most;
}

// Slots and times for the lengths that are believed now.
void fit_to_lengths(Configuration& configuration, const Service& service, const LatencyModel& model, const Lengths& believed) {
  const int most = std::max(1, configuration.pool.max_concurrency);
  const BatchChoice choice = largest_batch(model, objective_of(service), believed);
  int slots = std::min(most, choice.batch);
  if (choice.batch == 0) {
    // The observed lengths break the objective even alone. Refusing to batch would then only add waiting: let memory decide.
    const double tokens = believed.input_tokens + believed.output_tokens + kKvBlockTokens;
    slots = static_cast<int>(std::clamp(std::floor(model.kv_capacity_tokens() / tokens), 1.0, static_cast<double>(most)));
  }
  configuration.pool.slots = std::max(1, slots);
  configuration.times = worker_times(model, configuration.pool.slots, believed);
  configuration.pool.service_rate_per_s = 1 / configuration.times.service_s;
  configuration.pool.kv_cache_tokens = static_cast<std::int64_t>(std::max(0.0, model.kv_capacity_tokens()));
}

Configuration make_configuration(const Service& service, const AcceleratorSpec& spec, int gpus, int batch,
                                 const Lengths& believed) {
  Configuration configuration;
  configuration.pool.name = pool_name(spec.name, gpus);
  configuration.pool.accelerator = spec.name;
  configuration.pool.gpus_per_worker = gpus;
  configuration.pool.max_concurrency = batch;
  configuration.price_per_hour = gpus * spec.price_per_hour;
  fit_to_lengths(configuration, service, LinearModel(linear_coefficients(*service.shape, spec, gpus)), believed);
  return configuration;
}

// The message of an objective that cannot be met: what the best try gives, and so what would meet it.
void explain_infeasible(const ReplicatedResult& result, const Service& service, ConfigurationChoice& choice) {
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
        "lengths, or allow a faster accelerator or more GPUs",
        fmt::join(parts, "; "));
  } else if (!result.rejected.empty()) {
    const Rejected& closest = result.rejected.back();
    choice.feasible.reason = to_string(closest.code);
    choice.feasible.message = fmt::format(
        "{}; allow an accelerator with more memory, more GPUs per worker, or a shorter maxContextTokens", closest.message);
  } else {
    choice.feasible.reason = "NoAccelerator";
    choice.feasible.message = "no allowed accelerator has a GPU for a worker";
  }
  choice.reasons.push_back(Reason{choice.feasible.reason, choice.feasible.message, std::move(inputs)});
  for (const Rejected& rejected : result.rejected) {
    choice.reasons.push_back(Reason{to_string(rejected.code),
                                    rejected.message,
                                    {{"accelerator", rejected.accelerator}, {"gpusPerWorker", std::to_string(rejected.gpus)}}});
  }
}

// Why the other accelerators lost.
void explain_losers(const ReplicatedResult& result, const Candidate& winner, ConfigurationChoice& choice) {
  for (const Candidate& loser : result.candidates) {
    if (loser.config.accelerator == winner.config.accelerator) continue;
    const char* code = loser.has_room ? "NotChosen" : "NoRoom";
    std::string message =
        loser.has_room ? fmt::format("{}: {} workers of {} GPUs for {:.4g} an hour, against {:.4g} for {}",
                                     loser.config.accelerator, loser.workers, loser.config.gpus, loser.cost_per_hour,
                                     winner.cost_per_hour, winner.config.accelerator)
                       : fmt::format("{}: no {} GPUs are left for a worker", loser.config.accelerator, loser.config.gpus);
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

std::string figure(double value) { return fmt::format("{:.6g}", value); }

std::string pool_name(const std::string& accelerator, int gpus) {
  const std::string suffix = fmt::format("-{}", gpus);
  std::string name;
  for (char c : accelerator) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    name += upper ? static_cast<char>(c - 'A' + 'a') : plain ? c : '-';
  }
  constexpr std::size_t kLongest = 30;
  name = name.substr(0, kLongest - suffix.size());
  const std::size_t begin = name.find_first_not_of('-');
  name = begin == std::string::npos ? "pool" : name.substr(begin);
  return name + suffix;
}

Configuration describe_running(const Service& service, const Snapshot& snapshot, const Worker& worker,
                               const Lengths& believed) {
  const AcceleratorState* state = find_accelerator(snapshot, worker.accelerator);
  Configuration configuration;
  const bool known = state != nullptr && service.shape && worker.gpus >= 1 &&
                     peak_flops_for(state->spec, service.shape->dtype) > 0 &&
                     (worker.gpus == 1 || state->spec.intra_link_bandwidth_bytes_per_s > 0);
  if (known) {
    configuration = make_configuration(service, state->spec, worker.gpus, std::max(1, worker.max_concurrency), believed);
  } else {
    // Its class or the model's shape is not known: it goes on with the slots it has, and JFFC takes it last.
    configuration.pool.slots = std::max(1, worker.max_concurrency);
    if (state != nullptr) configuration.price_per_hour = worker.gpus * state->spec.price_per_hour;
  }
  configuration.pool.name = worker.pool;
  configuration.pool.accelerator = worker.accelerator;
  configuration.pool.gpus_per_worker = worker.gpus;
  configuration.pool.max_concurrency = std::max(1, worker.max_concurrency);
  return configuration;
}

ConfigurationChoice choose_configuration(const Service& service, const Snapshot& snapshot, const CapacityByClass& capacities,
                                         const Lengths& believed) {
  ConfigurationChoice choice;
  if (!service.shape) {
    choice.feasible =
        Hint{Truth::kUnknown, "ModelShapeUnknown",
             service.shape_unknown_reason.empty() ? "the model's shape is not known" : service.shape_unknown_reason};
    choice.reasons.push_back(Reason{choice.feasible.reason, choice.feasible.message, {}});
    return choice;
  }
  if (service.scaling.strategy == Strategy::kDisaggregated || service.scaling.strategy == Strategy::kChained) {
    choice.feasible = Hint{
        Truth::kFalse, "StrategyNotAvailable",
        fmt::format("scaling.strategy: found {}; this version plans Auto and Replicated", to_string(service.scaling.strategy))};
    choice.reasons.push_back(Reason{choice.feasible.reason, choice.feasible.message, {}});
    return choice;
  }

  ReplicatedInput input;
  input.shape = *service.shape;
  input.objective = objective_of(service);
  input.lengths = Lengths{service.workload.input_tokens, service.workload.output_tokens};
  input.requests_per_s = service.workload.requests_per_s;
  input.max_context_tokens = service.max_context_tokens;
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
    const int available = available_to(service, snapshot, capacities, allowed.accelerator);
    input.accelerators.push_back(
        AcceleratorOption{state->spec, allowed.max_gpus.value_or(state->spec.gpus_per_node), available});
  }

  const ReplicatedResult result = place_replicated(input);
  if (result.candidates.empty()) {
    explain_infeasible(result, service, choice);
    return choice;
  }
  Candidate winner = result.candidates.front();

  const auto running = running_configuration(service);
  const bool differs = running && *running != std::make_pair(winner.config.accelerator, winner.config.gpus);
  if (differs && max_gpus.contains(running->first)) {
    // Does what runs still meet the objective? Then it stays, unless the winner costs clearly less.
    const auto option = std::find_if(input.accelerators.begin(), input.accelerators.end(),
                                     [&](const AcceleratorOption& o) { return o.spec.name == running->first; });
    ReplicatedInput only = input;
    only.accelerators = {*option};
    const auto kept = replicated_candidate(only, running->second);
    if (kept) {
      const bool clearly_cheaper = winner.has_room && winner.cost_per_hour < kSwitchCostShare * kept->cost_per_hour;
      if (!clearly_cheaper) {
        choice.reasons.push_back(
            Reason{"KeptConfiguration",
                   fmt::format("{} x {} runs and meets the objective; {} x {} would cost {:.4g} instead of {:.4g} an hour, "
                               "which is not below {:.0f} %",
                               running->second, running->first, winner.config.gpus, winner.config.accelerator,
                               winner.cost_per_hour, kept->cost_per_hour, kSwitchCostShare * 100),
                   {}});
        winner = *kept;
      }
    }
  }

  const AcceleratorSpec& spec = find_accelerator(snapshot, winner.config.accelerator)->spec;
  choice.chosen = make_configuration(service, spec, winner.config.gpus, winner.config.batch, believed);
  choice.chosen->max_gpus = max_gpus[winner.config.accelerator];
  choice.feasible =
      Hint{Truth::kTrue, "ObjectiveCanBeMet",
           fmt::format("{} requests at once on {} x {}", winner.config.batch, winner.config.gpus, winner.config.accelerator)};
  choice.reasons.push_back(
      Reason{"WorkerConfiguration",
             fmt::format("{} x {} serves {} requests at once at {:.4g} tokens/s per GPU (limit: {}), {:.4g} ms a token",
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
  explain_losers(result, winner, choice);
  return choice;
}

}  // namespace windlass::planner
