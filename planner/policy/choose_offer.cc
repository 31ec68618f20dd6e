// See choose_offer.h.
#include "planner/policy/choose_offer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/perf/linear_model.h"
#include "planner/policy/capacity.h"
#include "planner/policy/costly_change.h"
#include "planner/policy/side_pools.h"
#include "planner/policy/split.h"
#include "planner/policy/trouble.h"
#include "planner/policy/tuning.h"
#include "planner/sizing/worker_count.h"

namespace windlass::planner {
namespace {

// As with slots in configuration.cc: the proportion changes only by more than this, or workers would come and go for nothing.
constexpr double kShareBand = 0.2;

// A side pool's share follows the lengths: up immediately, down only after the scale-down window, to the most that was needed
// in it. `before`: the share of the last plan.
SidePool side_pool(const ConfigurationInput& input, const Configuration& configuration, double share,
                   const std::optional<SideShare>& before) {
  if (!before || share > before->share * (1 + kShareBand)) return {configuration, share};
  if (share >= before->share * (1 - kShareBand)) return {configuration, before->share};
  if (!input.signals_complete) return {configuration, before->share, before->lower};
  const double now_s = input.snapshot->now_s;
  const Reading lower =
      before->lower ? Reading{std::max(share, before->lower->value), before->lower->at_s} : Reading{share, now_s};
  const bool settled = now_s - lower.at_s >= input.service->scaling.scale_down_stabilization_s;
  return settled ? SidePool{configuration, lower.value} : SidePool{configuration, before->share, lower};
}

// The share of a side pool in the last plan. Older memories have that of prefill workers only. Without one, as after a restart:
// the proportion of the workers that run, if there are more than `share` asks for.
std::optional<SideShare> share_before(const ConfigurationInput& input, const PoolId& chosen, const PoolId& pool, double share) {
  const PolicyMemory& memory = *input.memory;
  for (const SideShare& side : memory.sides) {
    if (side.pool_id() == pool) return side;
  }
  if (pool.role == dispatch::Role::kPrefill && memory.prefill_share) {
    return SideShare{pool.name, pool.role, *memory.prefill_share, {}};
  }
  const int first = count_existing(*input.service, chosen), beside = count_existing(*input.service, pool);
  if (first == 0 || beside <= SidePool{{}, share}.workers(first)) return std::nullopt;
  return SideShare{pool.name, pool.role, static_cast<double>(beside) / first, {}};
}

bool same_kinds(const Offer& a, const Offer& b) {
  return std::equal(a.pools.begin(), a.pools.end(), b.pools.begin(), b.pools.end(),
                    [](const OfferedPool& x, const OfferedPool& y) { return x.spec == y.spec && x.role == y.role; });
}

// One pool of an offer, and the rate of one of its workers for the lengths and times believed now.
struct Believed {
  Configuration configuration;
  double requests_per_s = 0;
  double closed_form_per_s = 0;  // the same by the closed forms alone
};

Believed believe(const ConfigurationInput& input, const OfferedPool& offered) {
  const Service& service = *input.service;
  const AcceleratorSpec& spec = find_accelerator(*input.snapshot, offered.spec.accelerator)->spec;
  const int gpus = offered.spec.gpus();
  const bool whole = offered.role == dispatch::Role::kUnified;
  const LinearModel sheet(linear_coefficients(*service.shape, spec, gpus, service.engine));
  int most = whole ? max_concurrency_of(service, sheet.kv_capacity_tokens())
                   : max_concurrency_of_phase(service, spec, gpus, offered.role);
  if (offered.spec.engine != EngineSettings{}) most = std::min(most, offered.spec.engine.max_sequences);
  Believed believed{
      make_configuration(input, spec, gpus, most, pool_name(offered.spec), offered.role, whole ? offered.slots_ratio : 1)};
  Configuration& configuration = believed.configuration;
  configuration.pool.spec = offered.spec;
  double then = offered.closed_form_per_s, now = 0;
  if (whole) {
    now = requests_per_s(configuration);
    if (!(then > 0)) then = now;
  } else {
    const LinearModel model(believed_coefficients(*service.shape, spec, gpus, service.engine, service.estimates));
    const Lengths assumed{service.workload.input_tokens, service.workload.output_tokens};
    now = phase_rate_per_s(service, model, input.believed, offered.role);
    if (!(then > 0)) then = phase_rate_per_s(service, sheet, assumed, offered.role);
  }
  believed.closed_form_per_s = now;
  believed.requests_per_s = offered.requests_per_s * (then > 0 && now > 0 ? now / then : 1);
  if (!whole) configuration.rate_within_tpot_per_s = believed.requests_per_s;
  configuration.load_share = offered.load_share;
  configuration.capacity_ratio = offered.capacity_ratio;
  for (const AllowedAccelerator& allowed : allowed_of(service, *input.snapshot)) {
    if (allowed.accelerator != spec.name) continue;
    configuration.max_gpus = allowed.max_gpus;
    break;
  }
  return believed;
}

// "1 x h100 (15 requests/s each)"; engine settings are named if they were chosen.
std::string rate_text(const Believed& of) {
  const WorkerSpec& spec = of.configuration.pool.spec;
  std::string chosen;
  if (spec.engine != EngineSettings{}) {
    chosen = fmt::format(", {} batching, at most {} requests and {} tokens per iteration", to_string(spec.engine.batching),
                         spec.engine.max_sequences, spec.engine.max_batch_tokens);
  }
  return fmt::format("{} ({:.4g} requests/s each{})", text_of(spec), of.requests_per_s, chosen);
}

void explain_split(const Offer& offer, const std::vector<Believed>& pools, const SidePools& sides,
                   ConfigurationChoice& choice) {
  const auto prefill =
      std::find_if(sides.pools.begin(), sides.pools.end(), [](const SidePool& side) { return side.is_prefill(); });
  const Believed& prompts = pools[static_cast<std::size_t>(prefill - sides.pools.begin()) + 1];
  choice.feasible = Hint{Truth::kTrue, "ObjectiveCanBeMet",
                         fmt::format("prefill on {}, decode on {}", rate_text(prompts), rate_text(pools.front()))};
  const WorkerSpec& decode = pools.front().configuration.pool.spec;
  choice.reasons.push_back(
      Reason{"SplitPhases",
             fmt::format("{}: prefill on {}, decode on {}, {:.3g} prefill workers per decode worker; {}", offer.strategy,
                         rate_text(prompts), rate_text(pools.front()), prefill->share, offer.why),
             {{"strategy", offer.strategy},
              {"prefillAccelerator", prefill->configuration.pool.spec.accelerator},
              {"prefillGpusPerWorker", std::to_string(prefill->configuration.pool.spec.gpus())},
              {"prefillRequestsPerS", figure(prompts.requests_per_s)},
              {"decodeAccelerator", decode.accelerator},
              {"decodeGpusPerWorker", std::to_string(decode.gpus())},
              {"decodeRequestsPerS", figure(pools.front().requests_per_s)},
              {"prefillShare", figure(prefill->share)}}});
}

void explain_whole(const Offer& offer, const std::vector<Believed>& pools, ConfigurationChoice& choice) {
  std::string text;
  for (const Believed& pool : pools) text += (text.empty() ? "" : " and ") + rate_text(pool);
  choice.feasible = Hint{Truth::kTrue, "ObjectiveCanBeMet", text};
  choice.reasons.push_back(
      Reason{"ConfirmedOffer",
             fmt::format("{}: {}; in simulation {} for {:.4g} per hour meet the objective up to {:.4g} requests/s, with room "
                         "for {:.0f} % more",
                         offer.strategy, text, describe(offer), offer.cost_per_hour, offer.capacity_per_s,
                         (kDesignHeadroom - 1) * 100),
             {{"strategy", offer.strategy},
              {"deployment", describe(offer)},
              {"requestsPerS", figure(offer.requests_per_s)},
              {"capacityPerS", figure(offer.capacity_per_s)},
              {"attainment", figure(offer.attainment)},
              {"costPerHour", figure(offer.cost_per_hour)},
              {"capacityRatio", figure(offer.pools.front().capacity_ratio)}}});
}

std::vector<PoolId> ids_of(const ConfigurationChoice& choice) {
  std::vector<PoolId> ids = {choice.chosen->pool.id()};
  for (const SidePool& side : choice.sides.pools) ids.push_back(side.configuration.pool.id());
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<PoolId> ids_of(const Offer& offer) {
  std::vector<PoolId> ids;
  for (const OfferedPool& pool : offer.pools) ids.push_back({pool_name(pool.spec), pool.role});
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Whether the classes have room for one worker of the chosen pool with its share of the others.
bool has_room(const ConfigurationInput& input, const ConfigurationChoice& choice) {
  std::map<std::string, int> gpus;
  bool fits = true;
  const auto add = [&](const Pool& pool, int workers) {
    gpus[pool.spec.accelerator] += workers * pool.spec.gpus();
    fits = fits && available_to_worker(*input.service, *input.capacities, pool.spec.accelerator) >= pool.spec.gpus();
  };
  add(choice.chosen->pool, 1);
  for (const SidePool& side : choice.sides.pools) add(side.configuration.pool, side.workers(1));
  return fits && std::all_of(gpus.begin(), gpus.end(), [&](const auto& of) {
           return available_to(*input.service, *input.capacities, of.first) >= of.second;
         });
}

std::string text_of_choice(const ConfigurationChoice& choice) {
  if (choice.sides.split()) return "split phases";
  std::string text = text_of(choice.chosen->pool.spec);
  for (const SidePool& side : choice.sides.pools) text += " and " + text_of(side.configuration.pool.spec);
  return text;
}

// A mean prompt alone: with split phases on the slowest prefill workers, otherwise on the workers that take most requests.
double prompt_s(const ConfigurationChoice& choice) {
  double seconds = choice.sides.split() ? 0 : choice.chosen->times.prefill_s;
  for (const SidePool& side : choice.sides.pools) {
    if (side.is_prefill()) seconds = std::max(seconds, side.configuration.times.prefill_s);
  }
  return seconds;
}

// Whether what runs cannot compute a mean prompt within the objective, and `other` can: by prompts that were observed, that
// surely last, and that the offers are for.
bool is_outgrown(const ConfigurationInput& input, const ConfigurationChoice& current, const ConfigurationChoice& other) {
  const Service& service = *input.service;
  if (!input.signals_complete || !input.lengths_observed || !input.memory->asked) return false;
  const double asked = input.memory->asked->input_tokens;
  return service.offers->input_tokens == asked && input.believed.input_tokens <= asked * kAskedLengthStep &&
         prompt_s(current) > service.slo.ttft_s && prompt_s(other) <= service.slo.ttft_s;
}

}  // namespace

bool may_use(const Service& service, const Offer& offer) {
  return std::all_of(offer.pools.begin(), offer.pools.end(),
                     [&](const OfferedPool& pool) { return may_use(service, pool.spec.accelerator); });
}

ConfigurationChoice choice_of(const ConfigurationInput& input, const Offer& offer) {
  ConfigurationChoice choice;
  for (const OfferedPool& pool : offer.pools) {
    if (find_accelerator(*input.snapshot, pool.spec.accelerator) != nullptr) continue;
    choice.feasible = Hint{Truth::kUnknown, kClassUnread,
                           fmt::format("the plan needs AcceleratorClass {}, which cannot be read; workers are left unchanged",
                                       pool.spec.accelerator)};
    choice.reasons.push_back(Reason{choice.feasible.reason, choice.feasible.message, {}});
    return choice;
  }
  // Slots that ran before the offer must not settle its slots: its capacity counts on them.
  const bool runs = input.memory->offer && input.memory->offer->pools == offer.pools;
  PolicyMemory without_slots;
  ConfigurationInput given = input;
  if (!runs) given.memory = &without_slots;
  const bool runs_kinds = input.memory->offer && same_kinds(*input.memory->offer, offer);
  std::vector<Believed> pools;
  for (const OfferedPool& pool : offer.pools) pools.push_back(believe(given, pool));
  const Believed& first = pools.front();
  const double unit_per_s = first.requests_per_s / std::max(1e-9, first.configuration.load_share);
  for (std::size_t i = 1; i < pools.size(); ++i) {
    const Configuration& side = pools[i].configuration;
    const double share = pools[i].requests_per_s > 0 ? unit_per_s * side.load_share / pools[i].requests_per_s : 1;
    std::optional<SideShare> before;
    if (runs_kinds) before = share_before(input, first.configuration.pool.id(), side.pool.id(), share);
    choice.sides.pools.push_back(side_pool(input, side, share, before));
  }
  choice.chosen = first.configuration;
  if (choice.sides.split()) {
    // Keys and values are transferred layer by layer during the prompt; what remains afterwards is short compared with an
    // iteration.
    const WorkerTimes& prompts = std::find_if(choice.sides.pools.begin(), choice.sides.pools.end(), [](const SidePool& side) {
                                   return side.is_prefill();
                                 })->configuration.times;
    choice.chosen->times.prefill_s = prompts.prefill_s;
    choice.chosen->times.ttft_s = prompts.ttft_s + choice.chosen->times.decode_s;
    explain_split(offer, pools, choice.sides, choice);
  } else {
    explain_whole(offer, pools, choice);
  }
  choice.offer = offer;
  return choice;
}

double closed_form_per_s(const ConfigurationInput& input, const OfferedPool& pool) {
  return believe(input, pool).closed_form_per_s;
}

bool runs_nothing(const ConfigurationInput& input) {
  return std::all_of(input.service->workers.begin(), input.service->workers.end(),
                     [&](const Worker& worker) { return !holds_gpus(worker) || is_fresh(worker, input.snapshot->now_s); });
}

double cost_per_hour(const ConfigurationInput& input, const ConfigurationChoice& choice, double requests_per_s) {
  const int chosen = std::max(1, workers_for(*input.service, *choice.chosen, requests_per_s));
  double cost = chosen * choice.chosen->price_per_hour;
  for (const SidePool& side : choice.sides.pools) cost += side.workers(chosen) * side.configuration.price_per_hour;
  return cost;
}

std::optional<ConfigurationChoice> cheapest_offer(const ConfigurationInput& input, bool whole, bool split,
                                                  std::vector<Reason>& reasons) {
  const Service& service = *input.service;
  if (!service.offers) return std::nullopt;
  std::optional<ConfigurationChoice> second_best;
  for (const Offer& offer : service.offers->confirmed) {
    if (offer.pools.empty() || !(offer.split() ? split : whole)) continue;
    ConfigurationChoice choice = choice_of(input, offer);
    if (!choice.chosen) {
      reasons.push_back(std::move(choice.reasons.front()));
      continue;
    }
    if (!may_use(service, offer)) {
      reasons.push_back(Reason{"NotAllowed", fmt::format("spec.accelerators does not allow {}", describe(offer)), {}});
      continue;
    }
    Reason objection = objection_to_unit(service, *choice.chosen, choice.sides, choice.sides.workers(1));
    if (!objection.code.empty()) {
      reasons.push_back(std::move(objection));
      // Whole workers can run instead. Without them, one decode worker runs with the prefill workers that fit.
      if (!whole && !second_best) second_best = std::move(choice);
      continue;
    }
    if (has_room(input, choice)) return choice;
    reasons.push_back(Reason{"NoRoom", fmt::format("too few free GPUs for {}", describe(offer)), {}});
    if (!second_best) second_best = std::move(choice);
  }
  return second_best;
}

ConfigurationChoice current_or_offer(const ConfigurationInput& input, ConfigurationChoice current, ConfigurationChoice other) {
  const Service& service = *input.service;
  const bool may_change = runs_nothing(input) || input.signals_complete;
  if (!current.chosen) {
    // It cannot be read, or misses the objective: change only in the latter case.
    return current.feasible.status == Truth::kFalse && may_change ? other : current;
  }
  // Other figures for the same workers may need fewer of them, and so may another kind: never without signals.
  const bool same_workers = ids_of(current) == ids_of(other);
  if (input.signals_complete && (runs_nothing(input) || same_workers)) return other;
  if (same_workers) return current;
  const double never = std::numeric_limits<double>::infinity();
  const std::vector<Offer>& confirmed = service.offers->confirmed;
  // If the simulator has confirmed the workers that run, it knows better how many are needed, and so what they cost.
  for (const Offer& offer : confirmed) {
    if (!input.signals_complete || ids_of(offer) != ids_of(current)) continue;
    ConfigurationChoice same = choice_of(input, offer);
    if (!same.chosen) continue;
    current = std::move(same);
    break;
  }
  const bool its_kind_holds = std::any_of(confirmed.begin(), confirmed.end(),
                                          [&](const Offer& offer) { return offer.split() == current.sides.split(); });
  const double rate = service.offers->requests_per_s;
  const double other_cost = cost_per_hour(input, other, rate);
  const bool outgrown = is_outgrown(input, current, other);
  const double running_cost =
      !outgrown && (its_kind_holds || !service.offers->complete) ? cost_per_hour(input, current, rate) : never;
  const std::string from = text_of_choice(current), to = text_of_choice(other);
  Reason objection;
  if (!(other_cost < kSwitchCostShare * running_cost)) {
    objection = Reason{"KeptConfiguration",
                       fmt::format("{} runs and costs {:.4g} per hour for {:.4g} requests/s; {} ({}) would cost {:.4g}, but a "
                                   "change needs less than {:.0f} % of the cost",
                                   from, running_cost, rate, to, other.offer->strategy, other_cost, kSwitchCostShare * 100),
                       {{"costPerHour", figure(running_cost)}, {"otherCostPerHour", figure(other_cost)}}};
  } else if (!input.signals_complete) {
    objection =
        Reason{"HeldOnMissingSignals",
               fmt::format("no change from {} to {} while the arrival rate or queue length is missing or stale", from, to),
               {}};
  } else if (running_cost < never || outgrown) {
    CostlyChange change{fmt::format("from {} to {}", from, to),
                        running_cost,
                        other_cost,
                        current.chosen->times.service_s,
                        {first_of(*other.chosen)}};
    for (const SidePool& side : other.sides.pools) change.first.push_back(first_of(side.configuration));
    objection = outgrown ? objection_to_room(input, change, "would meet the objective for prompts as they are now")
                         : objection_to_change(input, change);
  }
  if (objection.code.empty()) {
    if (outgrown) {
      other.reasons.push_back(
          Reason{"RunningTooSlow",
                 fmt::format("a prompt of {:.0f} tokens alone takes {:.3g} s on {}, and the objective allows {:.3g} s",
                             input.believed.input_tokens, prompt_s(current), from, service.slo.ttft_s),
                 {{"prefillS", figure(prompt_s(current))}, {"ttftS", figure(service.slo.ttft_s)}}});
    }
    return other;
  }
  current.reasons.push_back(std::move(objection));
  return current;
}

}  // namespace windlass::planner
