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

// Why what runs stays though the other holds too; an empty code: it does not.
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
    const auto said = [&](double cost) { return cost < never ? fmt::format("{:.4g} an hour", cost) : "any price"; };
    return Reason{"NotChosen",
                  fmt::format("{}: for the load that was simulated {}, against {} for {}, which is not below {:.0f} %",
                              other_name, said(other_cost), said(running_cost), name, share * 100),
                  {{"costPerHour", figure(advice.cost_per_hour)}, {"wholeCostPerHour", figure(whole_cost)}}};
  }
  if (!nothing_runs && !given.signals_complete) {
    return Reason{
        "HeldOnMissingSignals", fmt::format("no change to {} while arrivals or queue cannot be believed", other_name), {}};
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

// Strategy Auto: whole workers, or split phases where the strategies say that those cost clearly less. What runs stays unless
// the other does, as among the classes.
ConfigurationChoice choose_either(const ConfigurationInput& given) {
  const Service& service = *given.service;
  if (!service.may_split) return choose_whole(given);
  const bool split = runs_split(service, *given.memory);
  if (!service.split) return split ? choose_split(given) : choose_whole(given);
  const SplitAdvice& advice = *service.split;
  const bool may_change = runs_nothing(service) || given.signals_complete;
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
                   service.shape_unknown_reason.empty() ? "the model's shape is not known" : service.shape_unknown_reason});
  }
  switch (service.scaling.strategy) {
    case Family::kAuto: return choose_either(given);
    case Family::kReplicated: return choose_whole(given);
    case Family::kDisaggregated: return choose_split(given);
    case Family::kChained: break;
  }
  return refuse({Truth::kFalse, "StrategyNotAvailable",
                 "scaling.strategy: found Chained; this version plans Auto, Replicated and Disaggregated"});
}

}  // namespace windlass::planner
