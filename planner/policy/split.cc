// See split.h.
#include "planner/policy/split.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "planner/deployment/pool_name.h"
#include "planner/perf/linear_model.h"
#include "planner/policy/trouble.h"
#include "planner/policy/tuning.h"
#include "planner/sizing/phases.h"
#include "planner/sizing/replicated.h"

namespace windlass::planner {
namespace {

// Most prompts in one prefill worker, however short they are.
constexpr int kMaxPrompts = 64;
// As with slots in configuration.cc: the proportion changes only by more than this, or workers would come and go for nothing.
constexpr double kShareBand = 0.2;

double rate_of(const PhaseFit& fit) { return fit.slots > 0 && fit.times.service_s > 0 ? fit.slots / fit.times.service_s : 0; }

PhaseFit fit_phase(const Service& service, const LatencyModel& model, const Lengths& lengths, dispatch::Role role) {
  if (role == dispatch::Role::kPrefill) return fit_prefill(model, lengths, kMaxPrompts);
  return fit_decode(model, Objective{service.slo.ttft_s, service.slo.tpot_s, service.slo.percentile}, lengths, kMaxBatch);
}

// The workers of one phase, and the rate of one of them for the lengths believed now.
struct Phase {
  Configuration configuration;
  double requests_per_s = 0;
};

Phase phase_of(const ConfigurationInput& input, const PhaseAdvice& advice, const AcceleratorSpec& spec, dispatch::Role role) {
  const Service& service = *input.service;
  const LinearModel line(linear_coefficients(*service.shape, spec, advice.gpus_per_worker));
  const LinearModel model(believed_coefficients(*service.shape, spec, advice.gpus_per_worker, service.estimates));
  const Lengths assumed{service.workload.input_tokens, service.workload.output_tokens};
  // Launch settings depend on the spec only.
  int batch = std::max(1, fit_phase(service, line, assumed, role).slots);
  if (role == dispatch::Role::kPrefill) {
    const double room = line.kv_capacity_tokens() / (assumed.input_tokens + kKvBlockTokens);
    batch = static_cast<int>(std::clamp(std::floor(room), 1.0, static_cast<double>(kMaxPrompts)));
  }
  Phase phase;
  phase.configuration =
      make_configuration(input, spec, advice.gpus_per_worker, batch, pool_name({spec.name, advice.gpus_per_worker}), role);
  const double then = advice.closed_form_per_s.value_or(phase_rate_per_s(service, line, assumed, role));
  const double now = phase_rate_per_s(service, model, input.believed, role);
  phase.requests_per_s = advice.requests_per_s * (then > 0 && now > 0 ? now / then : 1);
  for (const AllowedAccelerator& allowed : allowed_of(service, *input.snapshot)) {
    if (allowed.accelerator != spec.name) continue;
    phase.configuration.max_gpus = allowed.max_gpus;
    break;
  }
  return phase;
}

// The service's own limit that this many workers of both sides exceed, and how; empty if none.
std::pair<const char*, std::string> objection_to_both(const Service& service, const Configuration& answering,
                                                      const Configuration& prompts, const Retiring& retiring, int workers,
                                                      int beside) {
  const std::string both = fmt::format("{} decode workers and {} prefill workers", workers, beside);
  if (const auto& most = service.scaling.max_workers; most && workers + beside > *most) {
    return {"MaxWorkers", fmt::format("{} are needed; maxWorkers allows {} in total", both, *most)};
  }
  std::map<std::string, int> gpus;
  gpus[answering.pool.spec.accelerator] += workers * answering.pool.spec.gpus();
  gpus[prompts.pool.spec.accelerator] += beside * prompts.pool.spec.gpus();
  for (const Configuration* side : {&answering, &prompts}) {
    const std::string& name = side->pool.spec.accelerator;
    if (!side->max_gpus || gpus[name] <= *side->max_gpus - retiring.gpus_of(name)) continue;
    return {"MaxGpus", fmt::format("{} need {} GPUs of {}; maxGPUs allows {}", both, gpus[name], name, *side->max_gpus)};
  }
  const double cost = workers * answering.price_per_hour + beside * prompts.price_per_hour + retiring.cost_per_hour;
  if (const auto& most = service.scaling.max_cost_per_hour; most && cost > *most + 1e-9) {
    return {"MaxCost", fmt::format("{} cost {:.4g} per hour; maxCostPerHour allows {:.4g}", both, cost, *most)};
  }
  return {"", ""};
}

int to_workers(double value) { return static_cast<int>(std::clamp(value, 0.0, 1e6)); }

}  // namespace

int PrefillSide::workers(int answering) const {
  return answering <= 0 ? 0 : std::max(1, to_workers(std::ceil(answering * share - 1e-9)));
}

int PrefillSide::answering_within(int total_workers) const {
  int answering = to_workers(total_workers / (1 + share));
  while (answering > 0 && total(answering) > total_workers) --answering;
  while (total(answering + 1) <= total_workers) ++answering;
  return std::max(answering, std::min(1, total_workers));
}

int PrefillSide::answering_from(int total_workers) const {
  const int within = answering_within(total_workers);
  return total(within) >= total_workers ? within : within + 1;
}

bool runs_split(const Service& service, const PolicyMemory& memory) {
  if (!memory.configuration.empty()) return memory.prefill_share.has_value();
  int whole = 0, parts = 0;
  for (const Worker& worker : service.workers) {
    if (holds_gpus(worker)) ++(worker.role == dispatch::Role::kUnified ? whole : parts);
  }
  return parts > whole;
}

double phase_rate_per_s(const Service& service, const LatencyModel& model, const Lengths& lengths, dispatch::Role role) {
  return rate_of(fit_phase(service, model, lengths, role));
}

bool split_may_pay(const Service& service, std::span<const AcceleratorState> classes) {
  if (!service.may_split || !service.shape || (service.scaling.max_workers && *service.scaling.max_workers < 2)) return false;
  ReplicatedInput input;
  input.shape = *service.shape;
  input.objective = Objective{service.slo.ttft_s, service.slo.tpot_s, service.slo.percentile};
  input.lengths = Lengths{service.workload.input_tokens, service.workload.output_tokens};
  input.requests_per_s = service.workload.requests_per_s;
  input.max_context_tokens = service.max_context_tokens;
  input.max_gpus_per_worker = service.max_gpus_per_worker;
  input.estimates = service.estimates;
  // Price of a request: the hourly price divided by requests per second.
  double prefill_price = std::numeric_limits<double>::infinity(), decode_price = prefill_price;
  for (const AcceleratorState& state : classes) {
    const AcceleratorSpec& spec = state.spec;
    const auto allowed = std::find_if(service.accelerators.begin(), service.accelerators.end(),
                                      [&](const AllowedAccelerator& one) { return one.accelerator == spec.name; });
    if (!service.accelerators.empty() && allowed == service.accelerators.end()) continue;
    int most = std::min(spec.gpus_per_node, service.max_gpus_per_worker.value_or(spec.gpus_per_node));
    if (allowed != service.accelerators.end() && allowed->max_gpus) most = std::min(most, *allowed->max_gpus);
    input.accelerators.push_back(AcceleratorOption{spec, most, most});
    if (!(peak_flops_for(spec, input.shape.dtype) > 0)) continue;
    for (const int gpus : tensor_parallel_degrees(input.shape, most)) {
      if (gpus > 1 && !(spec.intra_link_bandwidth_bytes_per_s > 0)) continue;
      const LinearModel model(believed_coefficients(input.shape, spec, gpus, service.estimates));
      const PhaseFit prefill = fit_prefill(model, input.lengths, kMaxPrompts);
      const PhaseFit decode = fit_decode(model, input.objective, input.lengths, kMaxBatch);
      const double price = gpus * spec.price_per_hour;
      if (rate_of(prefill) > 0 && prefill.times.prefill_s <= input.objective.ttft_s) {
        prefill_price = std::min(prefill_price, price / rate_of(prefill));
      }
      if (rate_of(decode) > 0) decode_price = std::min(decode_price, price / rate_of(decode));
    }
  }
  if (!std::isfinite(prefill_price + decode_price)) return false;
  const ReplicatedResult whole = place_replicated(input);
  if (whole.candidates.empty()) return true;
  const Candidate& winner = whole.candidates.front();  // the winner, as choose_configuration() picks it
  const double whole_price = winner.cost_per_hour / winner.capacity_per_s;
  return winner.workers > 1 && prefill_price + decode_price < kSwitchCostShare * whole_price;
}

ConfigurationChoice choose_split(const ConfigurationInput& input) {
  const Service& service = *input.service;
  ConfigurationChoice choice;
  const auto refuse = [&](Truth status, const char* code, std::string message) {
    choice.feasible = Hint{status, code, message};
    choice.reasons.push_back(Reason{code, std::move(message), {}});
  };
  if (service.scaling.max_workers && *service.scaling.max_workers < 2) {
    refuse(Truth::kFalse, "MaxWorkers",
           fmt::format("scaling.maxWorkers: must be at least 2 for split phases, one prefill and one decode worker (got {})",
                       *service.scaling.max_workers));
    return choice;
  }
  if (!service.split) {
    refuse(Truth::kUnknown, "StrategySearching", "still searching for a way to split the phases; workers are left unchanged");
    return choice;
  }
  const SplitAdvice& advice = *service.split;
  if (!advice.holds) {
    refuse(Truth::kFalse, "NoSplitHolds", advice.why);
    return choice;
  }
  for (const PhaseAdvice* phase : {&advice.prefill, &advice.decode}) {
    if (find_accelerator(*input.snapshot, phase->accelerator) != nullptr) continue;
    refuse(Truth::kUnknown, "RunningClassUnknown",
           fmt::format("the plan needs AcceleratorClass {}, which cannot be read; workers are left unchanged",
                       phase->accelerator));
    return choice;
  }
  const auto spec_of = [&](const PhaseAdvice& phase) -> const AcceleratorSpec& {
    return find_accelerator(*input.snapshot, phase.accelerator)->spec;
  };
  Phase prefill = phase_of(input, advice.prefill, spec_of(advice.prefill), dispatch::Role::kPrefill);
  Phase decode = phase_of(input, advice.decode, spec_of(advice.decode), dispatch::Role::kDecode);
  decode.configuration.rate_within_tpot_per_s = decode.requests_per_s;
  // Keys and values are transferred layer by layer during the prompt; what remains afterwards is short compared with an
  // iteration.
  decode.configuration.times.prefill_s = prefill.configuration.times.prefill_s;
  decode.configuration.times.ttft_s = prefill.configuration.times.ttft_s + decode.configuration.times.decode_s;

  double share = decode.requests_per_s / prefill.requests_per_s;
  const std::optional<double>& before = input.memory->prefill_share;
  if (before && std::abs(share / *before - 1) <= kShareBand) share = *before;

  const auto describe = [&](const Phase& phase) {
    return fmt::format("{} ({:.4g} requests/s each)", text_of(phase.configuration.pool.spec), phase.requests_per_s);
  };
  choice.feasible =
      Hint{Truth::kTrue, "ObjectiveCanBeMet", fmt::format("prefill on {}, decode on {}", describe(prefill), describe(decode))};
  choice.reasons.push_back(Reason{"SplitPhases",
                                  fmt::format("{}: prefill on {}, decode on {}, {:.3g} prefill workers per decode worker; {}",
                                              advice.strategy, describe(prefill), describe(decode), share, advice.why),
                                  {{"strategy", advice.strategy},
                                   {"prefillAccelerator", advice.prefill.accelerator},
                                   {"prefillGpusPerWorker", std::to_string(advice.prefill.gpus_per_worker)},
                                   {"prefillRequestsPerS", figure(prefill.requests_per_s)},
                                   {"decodeAccelerator", advice.decode.accelerator},
                                   {"decodeGpusPerWorker", std::to_string(advice.decode.gpus_per_worker)},
                                   {"decodeRequestsPerS", figure(decode.requests_per_s)},
                                   {"prefillShare", figure(share)}}});
  choice.chosen = std::move(decode.configuration);
  choice.prefill = PrefillSide{std::move(prefill.configuration), share};
  return choice;
}

Reason objection_to_pair(const Service& service, const Configuration& answering, const PrefillSide& prefill,
                         int prompt_workers) {
  auto [code, message] = objection_to_both(service, answering, prefill.configuration, Retiring{}, 1, prompt_workers);
  return Reason{code, std::move(message), {}};
}

Service answering_side(const Service& service, const PrefillSide& prefill) {
  Service side = service;
  std::erase_if(side.workers, [](const Worker& worker) { return worker.role == dispatch::Role::kPrefill; });
  Scaling& scaling = side.scaling;
  scaling.min_workers = prefill.answering_from(scaling.min_workers);
  if (scaling.max_workers) scaling.max_workers = prefill.answering_within(*scaling.max_workers);
  for (auto* per_minute : {&scaling.scale_up_max_per_minute, &scaling.scale_down_max_per_minute}) {
    if (*per_minute) *per_minute = std::max(1, prefill.answering_within(**per_minute));
  }
  if (side.last_desired) side.last_desired = prefill.answering_from(*side.last_desired);
  return side;
}

int limit_pair(const Service& service, const Configuration& answering, const PrefillSide& prefill, const Retiring& retiring,
               Target& target) {
  const auto objection = [&](int workers, int beside) {
    return objection_to_both(service, answering, prefill.configuration, retiring, workers, beside);
  };
  // The most workers below `too_many` without an objection; 0 counts as allowed.
  const auto max_of = [](int too_many, const auto& objects) {
    int fits = 0;
    while (too_many - fits > 1) {
      const int middle = fits + (too_many - fits) / 2;
      (objects(middle) ? too_many : fits) = middle;
    }
    return fits;
  };
  if (target.limited_by == "MaxWorkers") {  // the message so far counts decode workers only
    target.limit_message = objection(target.wanted, prefill.workers(target.wanted)).second;
    for (Reason& reason : target.reasons) {
      if (reason.code == target.limited_by) reason.message = target.limit_message;
    }
  }
  const int wanted = target.allowed;
  const auto [code, message] = objection(wanted, prefill.workers(wanted));
  if (message.empty()) return prefill.workers(wanted);
  const auto too_many = [&](int workers) { return !objection(workers, prefill.workers(workers)).second.empty(); };
  target.allowed = max_of(wanted, too_many);
  int beside = prefill.workers(target.allowed);
  if (target.allowed == 0 && objection(1, 0).second.empty()) {
    target.allowed = 1;
    beside = max_of(prefill.workers(1), [&](int prefills) { return !objection(1, prefills).second.empty(); });
  }
  target.on_any_class = std::min(target.on_any_class, target.allowed);
  target.floor = std::min(target.floor, target.allowed);
  target.limited_by = code;
  target.limit_message = message;
  target.reasons.push_back(Reason{code, message, {{"allowed", std::to_string(target.allowed + beside)}}});
  return beside;
}

}  // namespace windlass::planner
