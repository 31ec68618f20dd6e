// The decision for all services: configuration, target, arbitration, and the plan with its reasons.
#include "planner/policy/make_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/policy/arbitration.h"
#include "planner/policy/capacity.h"
#include "planner/policy/configuration.h"
#include "planner/policy/demand_view.h"
#include "planner/policy/split.h"
#include "planner/policy/target.h"
#include "planner/policy/trouble.h"
#include "planner/policy/tuning.h"
#include "planner/queueing/erlang.h"

namespace windlass::planner {
namespace {

constexpr int kPairRounds = 3;  // of arbitration, until both sides of every split service fit each other

// A service on its way to its plan.
struct Draft {
  const Service* service = nullptr;
  PolicyMemory memory;  // the service's, with the arrivals counted up to now
  DemandView view;
  std::optional<Configuration> chosen;
  std::optional<PrefillSide> prefill;  // workers beside those of `chosen`, which are what `target` and `granted` count
  std::vector<Weighed> weighed;
  std::vector<Configuration> as_is;     // what runs now, pool by pool; pool.workers counts all but draining workers
  std::vector<Configuration> retiring;  // of these, pools of an earlier configuration that stay until the new one is ready;
                                        // and what runs on a second class while the chosen one is full
  std::vector<Configuration> others;    // what may serve on a second class, the cheapest first
  Target target;
  int granted = 0;
  int promised = 0;        // granted, and what it gets of GPUs that are coming free
  int prefill_wanted = 0;  // for target.allowed, inside the service's own limits
  int prefill_granted = 0;
  ServicePlan plan;

  // Whether this plan changes worker counts. Otherwise things stay as they are.
  [[nodiscard]] bool applies() const { return chosen && service->scaling.mode == Mode::kApply; }
  [[nodiscard]] bool is_held() const { return !chosen && service->scaling.mode == Mode::kApply; }
  [[nodiscard]] bool is_planned(const std::string& pool) const {
    return pool == chosen->pool.name || (prefill && pool == prefill->configuration.pool.name);
  }
};

// `held`: nothing can be decided, and the counts are those that the first such plan found. A worker that replaces an outdated
// one would else be one more at the next plan, and be replaced itself.
std::vector<Configuration> pools_as_they_are(const ConfigurationInput& input, bool held) {
  std::vector<Configuration> pools;
  for (const Worker& worker : input.service->workers) {
    if (worker.state == WorkerState::kDraining) continue;
    auto same = std::find_if(pools.begin(), pools.end(), [&](const Configuration& c) { return c.pool.name == worker.pool; });
    if (same == pools.end()) {
      pools.push_back(describe_running(input, worker));
      same = pools.end() - 1;
    }
    ++same->pool.workers;
  }
  for (const PoolSlots& before : input.memory->slots) {
    const auto same =
        std::find_if(pools.begin(), pools.end(), [&](const Configuration& c) { return c.pool.name == before.pool; });
    if (held && before.held && same != pools.end()) same->pool.workers = *before.held;
  }
  return pools;
}

int count_ready(const Service& service, const std::string& pool) {
  return static_cast<int>(std::count_if(service.workers.begin(), service.workers.end(),
                                        [&](const Worker& w) { return w.pool == pool && serves(w); }));
}

int count_existing(const Service& service, const std::string& pool) {
  return static_cast<int>(std::count_if(service.workers.begin(), service.workers.end(),
                                        [&](const Worker& w) { return w.pool == pool && holds_gpus(w); }));
}

int gpus_of(const Configuration& configuration) { return configuration.pool.workers * configuration.pool.gpus_per_worker; }

Retiring sum_retiring(const Draft& draft) {
  Retiring sum;
  for (const Configuration& pool : draft.retiring) {
    sum.cost_per_hour += pool.pool.workers * pool.price_per_hour;
    sum.gpus[pool.pool.accelerator] += gpus_of(pool);
  }
  return sum;
}

bool allows(const Service& service, const std::string& accelerator) {
  return service.accelerators.empty() ||
         std::any_of(service.accelerators.begin(), service.accelerators.end(),
                     [&](const AllowedAccelerator& one) { return one.accelerator == accelerator; });
}

// The configuration of a second class that a pool is of; null: it is of none.
const Configuration* second_class(const Draft& draft, const std::string& pool) {
  const auto found = std::find_if(draft.others.begin(), draft.others.end(),
                                  [&](const Configuration& other) { return other.pool.name == pool; });
  return found == draft.others.end() ? nullptr : &*found;
}

// Workers of the chosen configuration that one of this serves as much as; 0: it is not known.
double worth_of(const Draft& draft, const Configuration& other) {
  const double chosen = requests_per_s(*draft.chosen), its = requests_per_s(other);
  return chosen > 0 && its > 0 && std::isfinite(its / chosen) ? its / chosen : 0;
}

// Workers of the chosen configuration that are neither among these nor made up for.
double missing_workers(const Draft& draft, int chosen_workers) {
  double missing = std::max(draft.target.allowed, draft.target.on_any_class) - chosen_workers;
  for (const Configuration& pool : draft.retiring) {
    const Configuration* second = second_class(draft, pool.pool.name);
    missing -= pool.pool.workers * (second != nullptr ? worth_of(draft, *second) : 1.0);
  }
  return missing;
}

// Pools of an earlier configuration go one for one as workers of the new one become ready; but never do they keep the first new
// worker from its GPUs or its money. While signals are missing only those go that the spec no longer allows. What others drain
// is no reason to let more of them go.
void plan_change(Draft& draft, std::map<std::string, int>& free_gpus, const std::map<std::string, int>& coming_gpus) {
  const Service& service = *draft.service;
  const Configuration& chosen = *draft.chosen;
  int still_needed = std::max(0, std::max(1, draft.target.allowed) - count_ready(service, chosen.pool.name));
  if (draft.target.allowed == 0) still_needed = 0;
  std::map<std::string, int> left = free_gpus;
  for (const auto& [name, gpus] : coming_gpus) left[name] += gpus;
  for (Configuration pool : draft.as_is) {
    if (draft.is_planned(pool.pool.name)) continue;
    const int affordable = std::max(0, left[pool.pool.accelerator]) / std::max(1, pool.pool.gpus_per_worker);
    const bool held = !draft.view.complete && draft.target.allowed > 0 && allows(service, pool.pool.accelerator);
    const int existing = count_existing(service, pool.pool.name);
    // Of a slower class more workers do what is still needed.
    const Configuration* second = second_class(draft, pool.pool.name);
    const double worth = second != nullptr ? std::min(1.0, worth_of(draft, *second)) : 1.0;
    const int of_these = worth > 0 ? static_cast<int>(std::min(1e6, std::ceil(still_needed / worth - 1e-9))) : still_needed;
    pool.pool.workers = std::min({held ? existing : of_these, existing, affordable});
    still_needed = std::max(0, still_needed - static_cast<int>(std::floor(pool.pool.workers * (worth > 0 ? worth : 1) + 1e-9)));
    left[pool.pool.accelerator] -= gpus_of(pool);
    if (pool.pool.workers > 0) draft.retiring.push_back(std::move(pool));
  }
  if (draft.retiring.empty()) return;

  const auto blocks_first_worker = [&] {
    const Retiring sum = sum_retiring(draft);
    // What drains already, whoever's, is room on its way: it must not cost a further worker at every plan until it is there.
    int coming = 0;
    for (const Worker& worker : service.workers) {
      if (worker.state == WorkerState::kDraining && worker.accelerator == chosen.pool.accelerator) coming += worker.gpus;
    }
    if (const auto all = coming_gpus.find(chosen.pool.accelerator); all != coming_gpus.end())
      coming = std::max(coming, all->second);
    const int retiring = sum.gpus_of(chosen.pool.accelerator);
    const bool no_gpus = free_gpus[chosen.pool.accelerator] + coming - retiring < chosen.pool.gpus_per_worker;
    const bool no_share = chosen.max_gpus && *chosen.max_gpus - retiring < chosen.pool.gpus_per_worker;
    const auto& budget = service.scaling.max_cost_per_hour;
    const bool no_money = budget && sum.cost_per_hour + chosen.price_per_hour > *budget + 1e-9;
    return no_gpus || no_share || no_money;
  };
  while (!draft.retiring.empty() && blocks_first_worker()) {
    if (--draft.retiring.back().pool.workers == 0) draft.retiring.pop_back();
  }
  for (const Configuration& pool : draft.retiring) {
    if (second_class(draft, pool.pool.name) == nullptr) free_gpus[pool.pool.accelerator] -= gpus_of(pool);
    draft.plan.reasons.push_back(Reason{"ConfigurationChange",
                                        fmt::format("{} workers of pool {} stay until as many of {} are ready",
                                                    pool.pool.workers, pool.pool.name, chosen.pool.name),
                                        {{"from", pool.pool.name}, {"to", chosen.pool.name}}});
  }
}

// What these pools would do at the demand that is believed.
Predicted predict(const std::vector<Configuration>& pools, const DemandView& view, const Slo& slo) {
  Predicted predicted;
  double slots = 0;
  for (const Configuration& configuration : pools) {
    const PoolPlan& pool = configuration.pool;
    predicted.gpus += gpus_of(configuration);
    predicted.cost_per_hour += pool.workers * configuration.price_per_hour;
    if (pool.workers == 0 || pool.role == dispatch::Role::kPrefill) continue;
    slots += static_cast<double>(pool.workers) * pool.slots;
    predicted.requests_per_s += pool.workers * pool.slots * pool.service_rate_per_s;
    predicted.tpot_s = std::max(predicted.tpot_s, configuration.times.tpot_s);
    predicted.ttft_s = std::max(predicted.ttft_s, configuration.times.ttft_s);
  }
  if (predicted.requests_per_s > 0) {
    predicted.utilisation = view.believed_per_s / predicted.requests_per_s;
    // Pools of different speed are taken as one of their mean.
    const MmcQueue queue{static_cast<std::int64_t>(slots), view.believed_per_s, slots / predicted.requests_per_s};
    predicted.ttft_s += queue.wait_quantile_s(slo.percentile / 100);
  } else if (view.believed_per_s > 0 || view.queued > 0) {
    predicted.ttft_s = std::numeric_limits<double>::infinity();
  }
  return predicted;
}

Hint metrics_hint(const Draft& draft) {
  if (!draft.view.complete) return Hint{Truth::kFalse, "SignalsMissing", draft.view.problem};
  if (draft.view.silent_workers > 0) {
    return Hint{Truth::kTrue, "WorkersSilent",
                fmt::format("{} ready workers give no fresh figures: none goes until they do", draft.view.silent_workers)};
  }
  return Hint{Truth::kTrue, "SignalsFresh", "arrivals and queue are fresh"};
}

Hint slo_hint(const Service& service, double now_s) {
  const auto& attainment = service.demand.attainment;
  if (!is_usable(attainment, now_s)) return Hint{Truth::kUnknown, "NothingJudged", "no request was judged within the window"};
  const bool met = attainment->value * 100 >= service.slo.percentile - 1e-9;
  return Hint{met ? Truth::kTrue : Truth::kFalse, met ? "Attained" : "Missed",
              fmt::format("{:.4g} % of the requests within {:.0f} s were inside the objective, {:.4g} % should be",
                          attainment->value * 100, service.slo.window_s, service.slo.percentile)};
}

// Workers whose lack is a shortage. Those that are only held after a load that is over are missed by nobody.
int needed_now(const Draft& draft) { return std::min(draft.target.allowed, draft.target.needed); }

Hint scale_hint(const Draft& draft, double now_s) {
  const Service& service = *draft.service;
  if (service.scaling.mode != Mode::kApply) {
    return Hint{Truth::kFalse, to_string(service.scaling.mode),
                fmt::format("scaling.mode is {}: worker counts stay as they are", to_string(service.scaling.mode))};
  }
  if (!draft.chosen)
    return Hint{Truth::kFalse, draft.plan.feasible.reason, "worker counts stay as they are: " + draft.plan.feasible.message};
  if (service.refused && now_s < service.refused->until_s) {
    return Hint{Truth::kFalse, service.refused->code,
                fmt::format("the cluster refuses new workers: {}; tried again in {:.0f} s", service.refused->message,
                            service.refused->until_s - now_s)};
  }
  const int needed = std::max(draft.target.allowed, draft.target.on_any_class);
  if (draft.granted < needed && missing_workers(draft, draft.granted) <= 1e-6) {
    return Hint{Truth::kTrue, "SecondClass",
                fmt::format("{} has room for {} of {} workers; the rest is made up for on other classes",
                            draft.chosen->pool.accelerator, draft.granted, needed)};
  }
  if (draft.granted < needed_now(draft)) {
    return Hint{Truth::kFalse, "InsufficientCapacity",
                fmt::format("{} workers of {} x {} are needed, {} can have them", needed_now(draft),
                            draft.chosen->pool.gpus_per_worker, draft.chosen->pool.accelerator, draft.granted)};
  }
  const int prompts = draft.prefill ? std::min(draft.prefill_wanted, draft.prefill->workers(draft.granted)) : 0;
  if (draft.prefill_granted < prompts) {
    return Hint{
        Truth::kFalse, "InsufficientCapacity",
        fmt::format("{} prefill workers of {} x {} are needed, {} can have them; workers that answer compute the other prompts",
                    prompts, draft.prefill->configuration.pool.gpus_per_worker, draft.prefill->configuration.pool.accelerator,
                    draft.prefill_granted)};
  }
  if (!draft.target.limited_by.empty()) return Hint{Truth::kFalse, draft.target.limited_by, draft.target.limit_message};
  if (auto trouble = trouble_hint(service)) return *trouble;
  return Hint{Truth::kTrue, "AsNeeded", "the workers that are needed are planned"};
}

// With what retiring pools take of the service's own limits.
void set_target(Draft& draft, double now_s) {
  const Retiring retiring = sum_retiring(draft);
  const Service& service = *draft.service;
  if (!draft.prefill) {
    draft.target = decide_target(service, draft.memory, now_s, draft.view, *draft.chosen, retiring);
    return;
  }
  const Service side = answering_side(service, *draft.prefill);
  draft.target = decide_target(side, draft.memory, now_s, draft.view, *draft.chosen, retiring);
  draft.prefill_wanted = limit_pair(service, *draft.chosen, *draft.prefill, retiring, draft.target);
}

Draft make_draft(const Service& service, const Snapshot& snapshot, const CapacityByClass& capacities) {
  Draft draft;
  draft.service = &service;
  draft.memory = advance_memory(service, snapshot.now_s);
  draft.view = view_demand(service, draft.memory, snapshot.now_s);
  draft.plan.forecast = draft.view.forecast;
  draft.plan.id = service.id;
  draft.plan.generation = service.generation;
  const ConfigurationInput input{&service,           &snapshot,           &capacities,           &draft.memory,
                                 draft.view.lengths, draft.view.complete, draft.view.queued >= 1};
  ConfigurationChoice choice = choose_configuration(input);
  draft.chosen = std::move(choice.chosen);
  draft.prefill = std::move(choice.prefill);
  const bool split = draft.chosen ? draft.prefill.has_value()
                                  : service.scaling.strategy == Strategy::kDisaggregated || runs_split(service, draft.memory);
  draft.plan.strategy = split ? Strategy::kDisaggregated : Strategy::kReplicated;
  if (draft.prefill) {
    draft.memory.prefill_share = draft.prefill->share;
  } else if (draft.chosen) {
    draft.memory.prefill_share.reset();
  }
  draft.plan.feasible = std::move(choice.feasible);
  draft.plan.reasons = std::move(choice.reasons);
  draft.others = std::move(choice.others);
  draft.as_is = pools_as_they_are(input, draft.is_held());
  if (draft.chosen && draft.memory.configuration != draft.chosen->pool.name) {
    // What ran before our own eyes has been chosen for as long as we have looked.
    const bool first = draft.memory.configuration.empty();
    draft.memory.configuration_since_s = first ? draft.memory.history_since_s : snapshot.now_s;
    draft.memory.configuration = draft.chosen->pool.name;
  }
  draft.weighed = std::move(choice.weighed);
  if (draft.chosen) set_target(draft, snapshot.now_s);
  return draft;
}

// Requests per second that would miss timeToFirstToken with so many workers: those beyond what is served, and of the others the
// share that waits too long.
double missed_per_s(const Draft& draft, int workers) {
  constexpr double kBusiest = 0.95;  // above it the queue grows without an end that the formula could tell
  const Configuration& chosen = *draft.chosen;
  const double demand_per_s = draft.target.demand_per_s + draft.view.queued / kBacklogDrainS;
  const auto slots = static_cast<std::int64_t>(workers) * chosen.pool.slots;
  const double served_per_s =
      std::min(demand_per_s, kBusiest * static_cast<double>(slots) / std::max(1e-9, chosen.times.service_s));
  if (slots == 0 || served_per_s <= 0) return demand_per_s;
  const MmcQueue queue{slots, served_per_s, chosen.times.service_s};
  const double budget_s = std::max(0.0, draft.service->slo.ttft_s - chosen.times.ttft_s);
  return demand_per_s - served_per_s + served_per_s * queue.wait_exceeds(budget_s);
}

// While the cluster refuses new workers, or no node takes those that are there, more of them would only keep GPUs from others.
bool yields(const Draft& draft, double now_s) {
  const Service& service = *draft.service;
  if (service.refused && now_s < service.refused->until_s) return true;
  return std::any_of(service.workers.begin(), service.workers.end(),
                     [&](const Worker& w) { return draft.is_planned(w.pool) && is_stranded(w, now_s); });
}

Claim claim_of(const Draft& draft, double now_s) {
  const PoolPlan& pool = draft.chosen->pool;
  const int existing = count_existing(*draft.service, pool.name);
  return Claim{draft.service->priority,
               pool.accelerator,
               pool.gpus_per_worker,
               draft.target.floor,
               std::min(existing, draft.target.allowed),
               draft.target.allowed,
               yields(draft, now_s),
               [&draft](int workers) { return missed_per_s(draft, workers); }};
}

// Without it the answering workers compute prompts too, and so as many requests miss the objective as without one of those.
Claim prefill_claim_of(const Draft& draft, double now_s) {
  const PrefillSide& prefill = *draft.prefill;
  const PoolPlan& pool = prefill.configuration.pool;
  const int wanted = draft.prefill_wanted;
  const int existing = count_existing(*draft.service, pool.name);
  return Claim{draft.service->priority, pool.accelerator, pool.gpus_per_worker,
               // What minWorkers asks for beyond those that answer: a pair's second worker is nobody else's only one.
               std::clamp(draft.service->scaling.min_workers - draft.target.floor, 0, wanted), std::min(existing, wanted),
               wanted, yields(draft, now_s), [&draft, &prefill](int workers) {
                 return missed_per_s(draft, static_cast<int>(std::min(1e6, std::floor(workers / prefill.share + 1e-9))));
               }};
}

// What runs on a second class competes for its GPUs as what runs does.
Claim second_claim_of(const Draft& draft, const Configuration& pool, int wanted) {
  Claim claim;
  claim.priority = draft.service->priority;
  claim.accelerator = pool.pool.accelerator;
  claim.gpus_per_worker = pool.pool.gpus_per_worker;
  claim.keep = std::min(pool.pool.workers, wanted);
  claim.wanted = wanted;
  return claim;
}

// More workers of a second class that the service may have: what is missing, inside its own limits.
int more_of(const Draft& draft, const Configuration& other) {
  const Service& service = *draft.service;
  const double worth = worth_of(draft, other), missing = missing_workers(draft, draft.promised);
  if (!(worth > 0) || missing <= 1e-6) return 0;
  double more = std::min(1e6, std::ceil(missing / worth - 1e-9));
  double workers = draft.granted, cost = draft.granted * draft.chosen->price_per_hour, gpus = 0;
  for (const Configuration& pool : draft.retiring) {
    workers += pool.pool.workers;
    cost += pool.pool.workers * pool.price_per_hour;
    if (pool.pool.accelerator == other.pool.accelerator) gpus += gpus_of(pool);
  }
  if (service.scaling.max_workers) more = std::min(more, *service.scaling.max_workers - workers);
  if (other.max_gpus) more = std::min(more, std::floor((*other.max_gpus - gpus) / std::max(1, other.pool.gpus_per_worker)));
  if (service.scaling.max_cost_per_hour && other.price_per_hour > 0)
    more = std::min(more, std::floor((*service.scaling.max_cost_per_hour - cost) / other.price_per_hour + 1e-9));
  return static_cast<int>(std::max(0.0, more));
}

// Services whose class has no GPUs for what they need take workers of a second one, the cheapest by what it serves first. What
// runs there goes again as workers of the chosen class become ready (plan_change). Not while signals are missing, and not where
// the cluster refuses new workers.
void take_second_classes(const std::vector<Draft*>& drafts, double now_s, std::map<std::string, int>& free_gpus) {
  std::size_t most = 0;
  for (const Draft* draft : drafts) most = std::max(most, draft->others.size());
  for (std::size_t rank = 0; rank < most; ++rank) {
    std::vector<Claim> claims;
    std::vector<Draft*> claimants;
    for (Draft* draft : drafts) {
      const bool full = draft->promised < draft->target.allowed || draft->target.limited_by == "MaxGpus";
      if (rank >= draft->others.size() || !full || !draft->view.complete || yields(*draft, now_s)) continue;
      Configuration pool = draft->others[rank];
      pool.pool.workers = 0;
      const int wanted = more_of(*draft, pool);
      if (wanted == 0) continue;
      claims.push_back(second_claim_of(*draft, pool, wanted));
      claimants.push_back(draft);
    }
    const std::vector<int> grants = arbitrate(claims, free_gpus);
    for (std::size_t i = 0; i < claims.size(); ++i) {
      if (grants[i] == 0) continue;
      Draft& draft = *claimants[i];
      free_gpus[claims[i].accelerator] -= grants[i] * claims[i].gpus_per_worker;
      Configuration pool = draft.others[rank];
      pool.pool.workers = grants[i];
      const auto same = std::find_if(draft.retiring.begin(), draft.retiring.end(),
                                     [&](const Configuration& of) { return of.pool.name == pool.pool.name; });
      if (same == draft.retiring.end()) {
        draft.retiring.push_back(std::move(pool));
      } else {
        same->pool.workers += grants[i];
      }
    }
  }
  for (Draft* draft : drafts) {
    for (const Configuration& pool : draft->retiring) {
      if (second_class(*draft, pool.pool.name) == nullptr ||
          draft->granted >= std::max(draft->target.allowed, draft->target.on_any_class))
        continue;
      draft->plan.reasons.push_back(
          Reason{"SecondClass",
                 fmt::format("{} has room for {} of {} workers: {} of pool {} serve next to them",
                             draft->chosen->pool.accelerator, draft->granted,
                             std::max(draft->target.allowed, draft->target.on_any_class), pool.pool.workers, pool.pool.name),
                 {{"pool", pool.pool.name}, {"workers", std::to_string(pool.pool.workers)}}});
    }
  }
}

// Who holds the GPUs of each class by this plan, most first.
struct Holder {
  const Service* service = nullptr;
  int gpus = 0;
};
using Holders = std::map<std::string, std::vector<Holder>>;

Holders holders_of(const std::vector<Draft>& drafts) {
  Holders holders;
  for (const Draft& draft : drafts) {
    std::map<std::string, int> gpus;
    for (const Configuration& pool : draft.applies() ? draft.retiring : draft.as_is)
      gpus[pool.pool.accelerator] += gpus_of(pool);
    if (draft.applies()) {
      gpus[draft.chosen->pool.accelerator] += draft.granted * draft.chosen->pool.gpus_per_worker;
      if (draft.prefill) {
        const PoolPlan& pool = draft.prefill->configuration.pool;
        gpus[pool.accelerator] += draft.prefill_granted * pool.gpus_per_worker;
      }
    }
    for (const auto& [accelerator, count] : gpus) {
      if (count > 0) holders[accelerator].push_back({draft.service, count});
    }
  }
  for (auto& [accelerator, list] : holders) {
    std::stable_sort(list.begin(), list.end(), [](const Holder& a, const Holder& b) { return a.gpus > b.gpus; });
  }
  return holders;
}

std::string who_has(const Draft& draft, const std::string& accelerator, const Snapshot& snapshot,
                    const CapacityByClass& capacities, const Holders& holders) {
  constexpr int kNamed = 3;
  const ClassCapacity& capacity = capacities.at(accelerator);
  std::string text = fmt::format("of the {} there are,", capacity.limit);
  int named = 0;
  int others = 0;
  if (const auto list = holders.find(accelerator); list != holders.end()) {
    for (const Holder& holder : list->second) {
      if (holder.service == draft.service) continue;
      if (named < kNamed) {
        text += fmt::format("{} {}/{} (priority {}) has {}", named == 0 ? "" : ",", holder.service->id.name_space,
                            holder.service->id.name, holder.service->priority, holder.gpus);
        ++named;
      } else {
        others += holder.gpus;
      }
    }
  }
  if (named == 0) text += " no other service has any";
  if (others > 0) text += fmt::format(", further services have {}", others);
  if (capacity.draining > 0) text += fmt::format("; {} are still held by workers that drain", capacity.draining);
  if (const int taken = find_accelerator(snapshot, accelerator)->used_by_others; taken > 0) {
    text += fmt::format("; {} more are taken by other pods", taken);
  }
  return text;
}

void deny(const Draft& draft, const Snapshot& snapshot, const CapacityByClass& capacities, const Holders& holders, Plan& plan) {
  const Service& service = *draft.service;
  const Target& target = draft.target;
  const std::string& accelerator = draft.chosen->pool.accelerator;
  const int wanted = std::max({target.wanted, target.allowed, service.scaling.min_workers});
  if (!target.limited_by.empty()) {
    plan.denied.push_back(Denied{service.id, target.limited_by, target.limit_message, accelerator, wanted, target.allowed});
  }
  if (const int needed = needed_now(draft); draft.granted < needed) {
    plan.denied.push_back(
        Denied{service.id, "InsufficientCapacity",
               fmt::format("{} workers of {} x {} were needed, {} are granted: {}", needed, draft.chosen->pool.gpus_per_worker,
                           accelerator, draft.granted, who_has(draft, accelerator, snapshot, capacities, holders)),
               accelerator, needed, draft.granted});
  }
  if (const int prompts = draft.prefill_wanted; draft.prefill_granted < prompts) {
    const PoolPlan& pool = draft.prefill->configuration.pool;
    plan.denied.push_back(Denied{
        service.id, "InsufficientCapacity",
        fmt::format("{} prefill workers of {} x {} were needed, {} are granted: {}", prompts, pool.gpus_per_worker,
                    pool.accelerator, draft.prefill_granted, who_has(draft, pool.accelerator, snapshot, capacities, holders)),
        pool.accelerator, prompts, draft.prefill_granted});
  }
  const int existing = count_existing(service, draft.chosen->pool.name);
  if (service.refused && snapshot.now_s < service.refused->until_s && existing < draft.granted) {
    plan.denied.push_back(
        Denied{service.id, service.refused->code, service.refused->message, accelerator, draft.granted, existing});
  }
}

// What was weighed, with what each would need for the demand that is provided for; what would do first, cheapest first.
std::vector<Considered> considered(const Draft& draft) {
  std::vector<Considered> out;
  double chosen_cost = 0;
  for (const Weighed& weighed : draft.weighed) {
    Considered entry = weighed.considered;
    if (weighed.slots > 0) {
      Configuration configuration;
      configuration.pool.slots = weighed.slots;
      configuration.times.service_s = weighed.service_s;
      configuration.times.ttft_s = entry.ttft_s;
      configuration.rate_within_tpot_per_s = weighed.rate_within_tpot_per_s;
      entry.workers = std::max(1, workers_for(*draft.service, configuration, draft.target.demand_per_s, draft.view.burstiness));
      entry.cost_per_hour = entry.workers * weighed.price_per_hour;
      if (entry.rejected.empty() && !weighed.outbid) chosen_cost = entry.cost_per_hour;
    }
    out.push_back(std::move(entry));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!draft.weighed[i].outbid) continue;
    out[i].rejected =
        out[i].cost_per_hour < chosen_cost
            ? fmt::format("{:.4g} an hour instead of {:.4g} does not pay for a change", out[i].cost_per_hour, chosen_cost)
            : fmt::format("costs {:.4g} an hour, the chosen one {:.4g}", out[i].cost_per_hour, chosen_cost);
  }
  std::stable_sort(out.begin(), out.end(), [](const Considered& a, const Considered& b) {
    if ((a.workers > 0) != (b.workers > 0)) return a.workers > 0;
    return a.cost_per_hour < b.cost_per_hour;
  });
  return out;
}

void finish(Draft& draft, double now_s) {
  const Service& service = *draft.service;
  ServicePlan& plan = draft.plan;
  std::vector<Configuration> planned = draft.retiring;
  if (draft.chosen) {
    Configuration pool = *draft.chosen;
    pool.pool.workers = draft.granted;
    planned.insert(planned.begin(), std::move(pool));
    if (draft.prefill) {
      Configuration prompts = draft.prefill->configuration;
      prompts.pool.workers = draft.prefill_granted;
      planned.insert(planned.begin() + 1, std::move(prompts));
    }
    plan.reasons.insert(plan.reasons.end(), draft.target.reasons.begin(), draft.target.reasons.end());
  }
  const std::vector<Configuration>& effective = draft.applies() ? planned : draft.as_is;
  for (const Configuration& pool : effective) plan.pools.push_back(pool.pool);
  if (draft.applies()) {
    plan.memory = draft.target.memory;
  } else {
    plan.memory = draft.chosen ? draft.target.memory : remember(draft.memory, service.scaling, now_s, current_workers(service));
    if (draft.chosen) {
      for (const Configuration& pool : planned) plan.recommended_pools.push_back(pool.pool);
      plan.reasons.push_back(Reason{to_string(service.scaling.mode),
                                    fmt::format("worker counts stay as they are; {} workers of pool {} would be planned",
                                                draft.granted, draft.chosen->pool.name),
                                    {}});
    } else if (!draft.as_is.empty()) {
      plan.reasons.push_back(Reason{"HeldAsIs", "nothing can be planned: the workers that run stay", {}});
    }
  }
  if (!draft.applies()) plan.memory.desired.reset();
  plan.memory.slots.clear();
  for (const Configuration& pool : effective) {
    const auto& given = draft.memory.slots;
    const auto same = std::find_if(given.begin(), given.end(), [&](const PoolSlots& before) {
      return before.pool == pool.pool.name && before.slots == pool.pool.slots;
    });
    plan.memory.slots.push_back({pool.pool.name, pool.pool.slots,
                                 draft.is_held() ? std::optional(pool.pool.workers) : std::nullopt,
                                 same != given.end() ? same->changed_s : now_s});
  }
  plan.considered = considered(draft);
  plan.predicted = predict(effective, draft.view, service.slo);
  plan.metrics_fresh = metrics_hint(draft);
  plan.slo_met = slo_hint(service, now_s);
  plan.able_to_scale = scale_hint(draft, now_s);
}

// Lowers what either side of a split service wants beyond what the other's grant makes use of; what runs is left to it, but for
// prompts that nobody would answer. Returns whether anything changed.
bool shrink_pairs(const std::vector<Draft*>& claimants, const std::vector<std::pair<std::size_t, std::size_t>>& pairs,
                  const std::vector<int>& promised, std::vector<Claim>& claims) {
  bool changed = false;
  const auto shrink = [&](Claim& claim, int useful) {
    const int wanted = useful == 0 ? 0 : std::max(useful, claim.keep);
    if (wanted >= claim.wanted) return;
    claim.wanted = wanted;
    claim.keep = std::min(claim.keep, wanted);
    claim.floor = std::min(claim.floor, wanted);
    changed = true;
  };
  for (const auto& [answers, prefills] : pairs) {
    const PrefillSide& side = *claimants[answers]->prefill;
    const int prompts = promised[prefills];
    // None at all: who answers computes prompts too.
    if (prompts > 0) shrink(claims[answers], static_cast<int>(std::clamp(std::floor(prompts / side.share + 1e-9), 1.0, 1e6)));
    shrink(claims[prefills], side.workers(promised[answers]));
  }
  return changed;
}

}  // namespace

Plan make_plan(const Snapshot& snapshot) {
  Plan plan;
  plan.at_s = snapshot.now_s;
  const CapacityByClass capacities = capacity_by_class(snapshot);
  std::map<std::string, int> free_gpus, coming_gpus;
  for (const auto& [name, capacity] : capacities) {
    free_gpus[name] = capacity.limit - capacity.draining;
    coming_gpus[name] = capacity.coming;
  }

  std::vector<Draft> drafts;
  drafts.reserve(snapshot.services.size());
  for (const Service& service : snapshot.services) drafts.push_back(make_draft(service, snapshot, capacities));

  // What stays as it is holds its GPUs before anybody grows.
  for (const Draft& draft : drafts) {
    if (draft.applies()) continue;
    for (const Configuration& pool : draft.as_is) free_gpus[pool.pool.accelerator] -= gpus_of(pool);
  }
  std::vector<Claim> claims;
  std::vector<Draft*> claimants;
  for (Draft& draft : drafts) {
    if (!draft.applies()) continue;
    plan_change(draft, free_gpus, coming_gpus);
    if (!draft.retiring.empty()) set_target(draft, snapshot.now_s);
    claims.push_back(claim_of(draft, snapshot.now_s));
    claimants.push_back(&draft);
  }
  std::vector<std::pair<std::size_t, std::size_t>> pairs;  // claims of one service's two sides: who answers, who prefills
  for (std::size_t i = 0; i < claimants.size(); ++i) {
    if (!claimants[i]->prefill) continue;
    pairs.emplace_back(i, claims.size());
    claims.push_back(prefill_claim_of(*claimants[i], snapshot.now_s));
  }
  const std::size_t first_second = claims.size();
  std::vector<Configuration*> second_pools;  // of the claims from there on
  for (Draft* draft : claimants) {
    for (Configuration& pool : draft->retiring) {
      if (second_class(*draft, pool.pool.name) == nullptr) continue;
      claims.push_back(second_claim_of(*draft, pool, pool.pool.workers));
      second_pools.push_back(&pool);
    }
  }
  std::map<std::string, int> all_gpus = free_gpus;
  for (const auto& [name, gpus] : coming_gpus) all_gpus[name] += gpus;
  std::vector<int> promised = arbitrate(claims, all_gpus);
  // A side is no use without the other: what one cannot have for the other's lack is somebody else's.
  for (int round = 0; round < kPairRounds && shrink_pairs(claimants, pairs, promised, claims); ++round) {
    promised = arbitrate(claims, all_gpus);
  }
  const std::vector<int> grants = startable(claims, promised, free_gpus);
  for (std::size_t i = 0; i < claims.size(); ++i) {
    if (i < claimants.size()) {
      claimants[i]->granted = grants[i];
      claimants[i]->promised = promised[i];
    } else if (i >= first_second) {
      second_pools[i - first_second]->pool.workers = grants[i];
    }
    free_gpus[claims[i].accelerator] -= promised[i] * claims[i].gpus_per_worker;  // nobody else's, also before they are free
  }
  for (const auto& [answers, prefills] : pairs) claimants[answers]->prefill_granted = grants[prefills];
  for (Draft* draft : claimants)
    std::erase_if(draft->retiring, [](const Configuration& pool) { return pool.pool.workers == 0; });
  take_second_classes(claimants, snapshot.now_s, free_gpus);
  // What Apply would do for services that only get advice: with their own GPUs and what is left.
  for (Draft& draft : drafts) {
    if (draft.applies() || !draft.chosen) continue;
    std::map<std::string, int> left = free_gpus;
    for (const Configuration& pool : draft.as_is) left[pool.pool.accelerator] += gpus_of(pool);
    std::vector<Claim> own = {claim_of(draft, snapshot.now_s)};
    if (draft.prefill) own.push_back(prefill_claim_of(draft, snapshot.now_s));
    const std::vector<int> would = arbitrate(own, left);
    draft.granted = would[0];
    if (draft.prefill) draft.prefill_granted = would[1];
  }

  const Holders holders = holders_of(drafts);
  for (Draft& draft : drafts) {
    finish(draft, snapshot.now_s);
    if (draft.applies()) deny(draft, snapshot, capacities, holders, plan);
    plan.services.push_back(std::move(draft.plan));
  }
  return plan;
}

}  // namespace windlass::planner
