// See choose_configuration.h.
#include "planner/policy/choose_configuration.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "planner/policy/costly_change.h"
#include "planner/policy/split.h"
#include "planner/policy/trouble.h"
#include "planner/policy/tuning.h"

namespace windlass::planner {
namespace {

bool runs_nothing(const Service& service) { return std::none_of(service.workers.begin(), service.workers.end(), holds_gpus); }

// Why the running kind stays although the other meets the objective too; an empty code means it does not stay.
Reason objection_to_other(const ConfigurationInput& given, bool split, const ConfigurationChoice& running,
                          const ConfigurationChoice& other) {
  const SplitAdvice& advice = *given.service->split;
  const bool nothing_runs = runs_nothing(*given.service);
  const double never = std::numeric_limits<double>::infinity();
  const double whole_cost = advice.whole_cost_per_hour.value_or(never);
  const double running_cost = split ? advice.cost_per_hour : whole_cost;
  const double other_cost = split ? whole_cost : advice.cost_per_hour;
  const char* const name = split ? "split phases" : "whole workers";
  const char* const other_name = split ? "whole workers" : "split phases";
  const double share = nothing_runs ? 1 : kSwitchCostShare;
  if (!(other_cost < share * running_cost)) {
    const auto said = [&](double cost) {
      return cost < never ? fmt::format("{:.4g} per hour", cost) : "infinite (no plan meets the objective)";
    };
    return Reason{"NotChosen",
                  fmt::format("{} not chosen: the simulated cost is {}, against {} for {}; it must be below {:.0f} % of that",
                              other_name, said(other_cost), said(running_cost), name, share * 100),
                  {{"costPerHour", figure(advice.cost_per_hour)}, {"wholeCostPerHour", figure(whole_cost)}}};
  }
  if (!nothing_runs && !given.signals_complete) {
    return Reason{"HeldOnMissingSignals",
                  fmt::format("no change to {} while the arrival rate or queue length is missing or stale", other_name),
                  {}};
  }
  if (!nothing_runs && running_cost < never) {
    CostlyChange change{fmt::format("from {} to {}", name, other_name),
                        running_cost,
                        other_cost,
                        running.chosen->times.service_s,
                        {first_of(*other.chosen)}};
    if (other.prefill) change.first.push_back(first_of(other.prefill->configuration));
    return objection_to_change(given, change);
  }
  return {};
}

// Strategy Auto: whole workers, or split phases if the strategies find them clearly cheaper. The running kind stays unless the
// other one is worth a change, as among classes.
ConfigurationChoice choose_either(const ConfigurationInput& given) {
  const Service& service = *given.service;
  if (!service.may_split) return choose_whole(given);
  const bool split = runs_split(service, *given.memory);
  if (!service.split) return split ? choose_split(given) : choose_whole(given);
  const SplitAdvice& advice = *service.split;
  const bool may_change = runs_nothing(service) || given.signals_complete;
  // If split phases no longer meet the objective, nothing is chosen and the workers stay.
  if (!advice.holds) return split && !may_change ? choose_split(given) : choose_whole(given);

  ConfigurationChoice whole = choose_whole(given);
  ConfigurationChoice parts = choose_split(given);
  const auto holds = [](const ConfigurationChoice& choice) { return choice.chosen && choice.feasible.status == Truth::kTrue; };
  // If whole workers meet the objective, start splitting only with room for a pair in its proportion; keep a running split with
  // room for any pair.
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
  // The running kind cannot be read, or misses the objective: change only if the other is feasible.
  if (!running.chosen) {
    return std::move(running.feasible.status == Truth::kFalse && holds(other) && may_change ? other : running);
  }
  if (!other.chosen) return std::move(running);

  Reason objection = objection_to_other(given, split, running, other);
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
                   service.shape_unknown_reason.empty() ? "the model's shape is unknown" : service.shape_unknown_reason});
  }
  switch (service.scaling.strategy) {
    case Family::kAuto: return choose_either(given);
    case Family::kReplicated: return choose_whole(given);
    case Family::kDisaggregated: return choose_split(given);
    case Family::kChained: break;
  }
  return refuse(
      {Truth::kFalse, "StrategyNotAvailable", "scaling.strategy: must be Auto, Replicated or Disaggregated (got Chained)"});
}

}  // namespace windlass::planner
