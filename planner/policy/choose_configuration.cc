// See choose_configuration.h.
#include "planner/policy/choose_configuration.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/policy/choose_offer.h"
#include "planner/policy/explain_choice.h"
#include "planner/policy/side_pools.h"
#include "planner/policy/split.h"
#include "planner/policy/trouble.h"

namespace windlass::planner {
namespace {

ConfigurationChoice refuse(Truth status, const char* code, std::string message) {
  ConfigurationChoice choice;
  choice.feasible = Hint{status, code, message};
  choice.reasons.push_back(Reason{code, std::move(message), {}});
  return choice;
}

// choice_of() for the offer that runs by the last plan, if the spec still allows it with at least one worker of each pool.
std::optional<ConfigurationChoice> running_offer(const ConfigurationInput& given, bool whole, bool split) {
  const std::optional<Offer>& offer = given.memory->offer;
  if (!offer || offer->pools.empty() || !(offer->split() ? split : whole)) return std::nullopt;
  if (!may_use(*given.service, *offer)) return std::nullopt;
  ConfigurationChoice choice = choice_of(given, *offer);
  if (!choice.chosen) return choice;  // it stays until its classes can be read
  const std::vector<int> one_of_each(choice.sides.pools.size(), 1);
  if (!objection_to_unit(*given.service, *choice.chosen, choice.sides, one_of_each).code.empty()) return std::nullopt;
  return choice;
}

Hint no_split_holds(const Offers& offers) {
  return {Truth::kFalse, "NoSplitHolds", offers.why.empty() ? "no confirmed deployment splits the phases" : offers.why};
}

// Split phases without a usable offer. A new service starts on closed forms, even if the search found nothing that holds; so a
// preview shows what runs. A running one waits for the search.
ConfigurationChoice split_without_offer(const ConfigurationInput& given, bool nothing_runs,
                                        const std::vector<Reason>& rejected) {
  const std::optional<Offers>& offers = given.service->offers;
  const bool complete = offers && offers->complete;
  if (complete && !rejected.empty()) {
    const Reason& first = rejected.front();  // already among the reasons
    ConfigurationChoice none;
    none.feasible = Hint{first.code == kClassUnread ? Truth::kUnknown : Truth::kFalse, first.code, first.message};
    return none;
  }
  if (nothing_runs) {
    if (const auto closed = split_by_closed_forms(given)) {
      ConfigurationChoice choice = choice_of(given, *closed);
      if (complete && choice.chosen) choice.feasible = no_split_holds(*offers);
      return choice;
    }
  }
  if (complete) {
    Hint none = no_split_holds(*offers);
    return refuse(none.status, none.reason.c_str(), std::move(none.message));
  }
  return refuse(Truth::kUnknown, "StrategySearching",
                "still searching for a way to split the phases; workers are left unchanged");
}

// `whole`, `split`: which kinds of deployments the service may run.
ConfigurationChoice choose_kind(const ConfigurationInput& given, bool whole, bool split) {
  const Service& service = *given.service;
  const auto& most = service.scaling.max_workers;
  if (!whole && most && *most < 2) {
    return refuse(Truth::kFalse, "MaxWorkers",
                  fmt::format("scaling.maxWorkers: must be at least 2 for split phases, one prefill and one decode worker "
                              "(got {})",
                              *most));
  }
  // Workers that the last plan asked for may not be visible yet. Without signals they count.
  const bool unseen = !given.signals_complete && given.memory->desired.value_or(0) > 0 &&
                      std::none_of(service.workers.begin(), service.workers.end(), holds_gpus);
  const bool nothing_runs = runs_nothing(given) && !unseen;
  std::vector<Reason> rejected;
  std::optional<ConfigurationChoice> best = cheapest_offer(given, whole, split, rejected);
  std::optional<ConfigurationChoice> running = nothing_runs ? std::nullopt : running_offer(given, whole, split);
  ConfigurationChoice choice;
  if (!best) {
    // Whether workers with split phases may give way to whole ones: never while signals or a class cannot be read.
    const bool complete = service.offers && service.offers->complete;
    const bool unread = std::any_of(rejected.begin(), rejected.end(), [](const Reason& of) { return of.code == kClassUnread; });
    const bool may_leave = complete && !unread && given.signals_complete;
    const bool none_holds = may_leave && service.offers->confirmed.empty();
    if (running && (!none_holds || !whole)) {
      choice = *std::move(running);
      // It still grows with the load as far as the service's limits allow.
      if (none_holds && choice.chosen) choice.feasible = no_split_holds(*service.offers);
    } else if (whole && (may_leave || nothing_runs || !runs_split(service, *given.memory))) {
      choice = choose_whole(given);
    } else {
      choice = split_without_offer(given, nothing_runs, rejected);
    }
  } else if (nothing_runs) {
    choice = *std::move(best);
  } else if (running) {
    choice = current_or_offer(given, *std::move(running), *std::move(best));
  } else if (whole && !runs_split(service, *given.memory)) {
    choice = current_or_offer(given, choose_whole(given), *std::move(best));
  } else {
    choice = *std::move(best);
  }
  if (choice.offer && !choice.sides.split()) {
    const AcceleratorState* state = find_accelerator(*given.snapshot, choice.chosen->pool.spec.accelerator);
    explain_belief(service, state->spec, *choice.chosen, given.believed, choice);
  }
  if (choice.offer && choice.sides.empty() && service.scaling.strategy == Family::kAuto) {
    choice.others = other_classes(given, choice.chosen->pool.spec.accelerator);
  }
  choice.reasons.insert(choice.reasons.end(), std::make_move_iterator(rejected.begin()),
                        std::make_move_iterator(rejected.end()));
  if (service.searching_since_s) {
    choice.reasons.push_back(
        Reason{"StrategiesSearching",
               fmt::format("the strategies have been searching for {:.0f} s; closed forms decide until then",
                           given.snapshot->now_s - *service.searching_since_s),
               {}});
  }
  return choice;
}

}  // namespace

ConfigurationChoice choose_configuration(const ConfigurationInput& given) {
  const Service& service = *given.service;
  if (!service.shape) {
    return refuse(Truth::kUnknown, "ModelShapeUnknown",
                  service.shape_unknown_reason.empty() ? "the model's shape is unknown" : service.shape_unknown_reason);
  }
  switch (service.scaling.strategy) {
    case Family::kAuto: return choose_kind(given, true, service.may_split);
    case Family::kReplicated: return choose_kind(given, true, false);
    case Family::kDisaggregated: return choose_kind(given, false, true);
    case Family::kChained: break;
  }
  if (service.engine == EngineType::kWindlass) return choose_whole(given);
  return refuse(
      Truth::kFalse, "StrategyNotAvailable",
      fmt::format("scaling.strategy: must be Auto or Replicated with engine {} (got Chained)", to_string(service.engine)));
}

}  // namespace windlass::planner
