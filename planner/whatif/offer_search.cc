// See offer_search.h.
#include "planner/whatif/offer_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/deployment/engine_space.h"
#include "planner/policy/capacity.h"
#include "planner/policy/choose_offer.h"
#include "planner/sizing/worker_count.h"
#include "planner/strategies/auto/auto_plan.h"
#include "planner/strategies/core/trial.h"
#include "planner/strategies/strategies.h"
#include "planner/whatif/placing_strategies.h"
#include "planner/whatif/question.h"

namespace windlass::search {
namespace {

constexpr std::array<std::string_view, 4> kWhole = {"aladdin", "vidur", "mix", "huawei"};
constexpr std::array<std::string_view, 4> kSplit = {"distserve", "splitwise", "tetriinfer", "hexgen2"};
constexpr double kLeastRatePerS = 0.1;  // for a service that assumes no rate
constexpr int kGpus = 64;               // of each class at least, unless the service has a limit of its own
// The rate is searched only up to what about this many of the service's best workers serve.
constexpr int kMaxSearchedWorkers = 24;
constexpr double kFar = 16;            // a capacity of this many times the asked rate is not exact
constexpr double kMaxFarRatio = 2;     // then its ratio to the closed forms' counts at most this much, either way
constexpr double kCapacityStep = 0.1;  // relative tolerance of a capacity
constexpr std::array<std::int64_t, 2> kMaxIterations = {200'000, 3'200'000};

using planner::Family;
using planner::OfferedPool;

// The service with the limits that a search respects. Drops classes without GPUs, even if the spec allows them. Nullopt if no
// class remains.
std::optional<planner::Service> within_reach(const planner::Service& asked,
                                             const std::vector<planner::AcceleratorState>& classes) {
  planner::Service service = asked;
  service.workload.requests_per_s = std::max(kLeastRatePerS, service.workload.requests_per_s);
  if (service.accelerators.empty()) return classes.empty() ? std::nullopt : std::optional(std::move(service));
  std::erase_if(service.accelerators, [&](const planner::AllowedAccelerator& allowed) {
    return planner::find_accelerator(classes, allowed.accelerator) == nullptr;
  });
  return service.accelerators.empty() ? std::nullopt : std::optional(std::move(service));
}

std::vector<planner::AcceleratorState> plenty_of(const std::vector<planner::AcceleratorState>& classes) {
  std::vector<planner::AcceleratorState> plenty = classes;
  for (planner::AcceleratorState& state : plenty) {
    state.mode = planner::CapacityMode::kElastic;
    state.max_gpus = std::max(kGpus, state.spec.gpus_per_node);
  }
  return plenty;
}

// The policy's view of a service without load, for its closed forms.
class ClosedForms {
 public:
  ClosedForms(planner::Service service, std::vector<planner::AcceleratorState> classes) {
    service.memory = {};
    service.workers.clear();
    snapshot_.accelerators = std::move(classes);
    snapshot_.services = {std::move(service)};
    capacities_ = planner::capacity_by_class(snapshot_);
    const planner::AssumedWorkload& workload = this->service().workload;
    input_ = {&this->service(), &snapshot_, &capacities_, &this->service().memory,
              planner::Lengths{workload.input_tokens, workload.output_tokens}};
  }
  ClosedForms(const ClosedForms&) = delete;
  ClosedForms& operator=(const ClosedForms&) = delete;

  [[nodiscard]] const planner::Service& service() const { return snapshot_.services.front(); }
  // Sets how the offer's capacity carries over to other rates, lengths and times: what the closed forms say of its pools, and
  // the simulator's figures over theirs.
  void carry_over(planner::Offer& offer) const {
    // First the rate of one worker, because the choice of a phase scales by it.
    for (OfferedPool& pool : offer.pools) pool.closed_form_per_s = planner::closed_form_per_s(input_, pool);
    const std::vector<double> with_its_slots = capacities_of(offer);
    for (std::size_t p = 0; p < offer.pools.size(); ++p) {
      OfferedPool& pool = offer.pools[p];
      if (pool.role != dispatch::Role::kUnified || !(with_its_slots[p] > 0)) continue;
      // Without slots for what the simulator found, the gateways would hold requests back.
      const double ratio = offer.capacity_per_s / with_its_slots[p];
      const bool far = offer.capacity_per_s > kFar * offer.requests_per_s;
      pool.slots_ratio = std::max(
          1.0,
          far ? std::min(ratio, std::max(kMaxFarRatio, planner::kDesignHeadroom * offer.requests_per_s / with_its_slots[p]))
              : ratio);
      pool.closed_form_per_s = planner::closed_form_per_s(input_, pool);
    }
    const std::vector<double> closed = capacities_of(offer);
    // Far above the asked rate, trials of some thousand requests say little.
    if (offer.pools.front().role == dispatch::Role::kUnified && closed.front() > 0 &&
        offer.capacity_per_s > kFar * offer.requests_per_s) {
      const double most = std::max(closed.front() * kMaxFarRatio, planner::kDesignHeadroom * offer.requests_per_s);
      const double bounded = std::clamp(offer.capacity_per_s, std::min(most, closed.front() / kMaxFarRatio), most);
      for (OfferedPool& pool : offer.pools) pool.requests_per_s *= bounded / offer.capacity_per_s;
      offer.capacity_per_s = bounded;
    }
    for (std::size_t p = 0; p < offer.pools.size(); ++p) {
      // The number of prefill workers follows the others.
      if (offer.pools[p].role == dispatch::Role::kPrefill || !(closed[p] > 0)) continue;
      offer.pools[p].capacity_ratio = offer.capacity_per_s / closed[p];
    }
  }
  // The highest rate of one whole worker; 0: none meets the objective, or the model's shape is unknown.
  [[nodiscard]] double best_worker_per_s() const {
    if (!service().shape) return 0;
    const planner::ConfigurationChoice choice = planner::choose_whole(input_);
    return choice.chosen ? planner::requests_per_s(*choice.chosen) : 0;
  }

 private:
  // By pool: the rate of the service at which its workers suffice by the closed forms.
  [[nodiscard]] std::vector<double> capacities_of(const planner::Offer& offer) const {
    const planner::ConfigurationChoice choice = planner::choice_of(input_, offer);
    std::vector<double> capacities(offer.pools.size(), 0);
    if (!choice.chosen) return capacities;
    for (std::size_t p = 0; p < capacities.size(); ++p) {
      const planner::Configuration& configuration = p == 0 ? *choice.chosen : choice.sides.pools[p - 1].configuration;
      capacities[p] = planner::capacity_of(service(), configuration, offer.pools[p].workers);
    }
    return capacities;
  }

  planner::Snapshot snapshot_;
  planner::CapacityByClass capacities_;
  planner::ConfigurationInput input_;
};

// The share of its role's requests that each pool of a deployment ends, from one run.
std::vector<double> load_shares(const Problem& problem, const Deployment& deployment) {
  std::vector<double> shares(deployment.pools.size(), 1);
  std::map<dispatch::Role, int> pools;
  for (const Pool& pool : deployment.pools) ++pools[pool.role];
  const bool alone = std::all_of(pools.begin(), pools.end(), [](const auto& of) { return of.second == 1; });
  if (alone) return shares;
  const auto run = try_out(problem, deployment, {problem.requests_per_s, problem.requests_per_trial, problem.seed});
  if (!run.ok()) return shares;
  // Workers are numbered by pool, in order.
  std::map<dispatch::Role, double> tokens;
  std::size_t worker = 0;
  std::vector<double> done(shares.size(), 0);
  for (std::size_t p = 0; p < shares.size(); ++p) {
    for (int i = 0; i < deployment.pools[p].workers && worker < run->workers.size(); ++i, ++worker) {
      const sim::WorkerFigures& figures = run->workers[worker];
      done[p] += deployment.pools[p].role == dispatch::Role::kPrefill ? static_cast<double>(figures.prefill_tokens)
                                                                      : static_cast<double>(figures.completed);
    }
    tokens[deployment.pools[p].role] += done[p];
  }
  for (std::size_t p = 0; p < shares.size(); ++p) {
    const double all = tokens[deployment.pools[p].role];
    shares[p] = all > 0 ? done[p] / all : 1.0 / pools[deployment.pools[p].role];
  }
  return shares;
}

// The simulator's capacity of a deployment. `known_per_s`: what the strategy knows of it. A search that was cut short knows
// only that it serves the asked rate; few workers may serve much more, so that is measured. Many cannot: with one fewer, the
// largest pool did not serve the rate, so the capacity is less than what would let one of the chosen pool go.
double capacity_of_plan(const Problem& problem, const Deployment& deployment, double known_per_s, int chosen_workers,
                        const StopCheck& stop) {
  constexpr int kFew = 4;
  const double asked = problem.requests_per_s;
  double found = std::max(asked, known_per_s);
  if (found <= asked && chosen_workers <= kFew) {
    CapacitySearch search;
    search.requests = problem.requests_per_trial;
    search.seed = problem.seed;
    search.first_guess_per_s = 1.5 * asked;
    search.tolerance = kCapacityStep;
    search.least_per_s = asked;
    search.figures = false;
    search.stop = stop;
    if (const auto capacity = capacity_of(problem, deployment, search); capacity.ok()) {
      found = std::max(found, capacity->requests_per_s);
    }
  }
  if (chosen_workers < 2) return found;
  return std::min(found, asked * (chosen_workers - 0.01) / (chosen_workers - 1));
}

// The policy's form of a plan, without what has to be simulated for it; nullopt if the controller cannot run it.
std::optional<planner::Offer> runnable(const Problem& problem, const search::Offer& plan) {
  if (!plan.deployment.chains.empty() || plan.deployment.pairs_share_a_node) return std::nullopt;
  planner::Offer offer;
  offer.strategy = plan.strategy;
  // A strategy that chooses no policy is judged with JSQ; then gateways use their own.
  if (plan.deployment.dispatch.policy != dispatch::PolicyKind::kJsq) {
    offer.dispatch = dispatch::at_gateway(plan.deployment.dispatch);
  }
  offer.requests_per_s = problem.requests_per_s / planner::kDesignHeadroom;
  offer.attainment = plan.predicted.attainment;
  offer.cost_per_hour = plan.cost_per_hour;
  for (const Pool& pool : plan.deployment.pools) {
    if (pool.workers < 1) continue;
    OfferedPool offered{pool.spec, pool.role, pool.workers};
    if (offered.spec.engine == problem.engine) offered.spec.engine = {};  // the engine's own
    if (!problem.engines.holds(offered.spec) || offered.spec.pipeline_stages > 1) return std::nullopt;
    offer.pools.push_back(std::move(offered));
  }
  return offer.pools.empty() ? std::nullopt : std::optional(std::move(offer));
}

// Completes a runnable() offer of this deployment by simulation: how its pools share the requests, and its capacity. False if
// one of its pools serves nothing.
bool measure(const Problem& problem, const Deployment& deployment, double known_per_s, const ClosedForms& closed,
             const StopCheck& stop, planner::Offer& offer) {
  const std::vector<double> shares = load_shares(problem, deployment);
  auto pool = offer.pools.begin();
  for (std::size_t p = 0; p < deployment.pools.size(); ++p) {
    if (deployment.pools[p].workers > 0) (pool++)->load_share = shares[p];
  }
  // First the pool whose workers are counted: of the decode or whole workers, the one with most of the requests.
  std::stable_sort(offer.pools.begin(), offer.pools.end(), [](const OfferedPool& a, const OfferedPool& b) {
    const bool a_last = a.role == dispatch::Role::kPrefill, b_last = b.role == dispatch::Role::kPrefill;
    return a_last != b_last ? b_last : a.load_share > b.load_share;
  });
  offer.capacity_per_s =
      capacity_of_plan(problem, deployment, known_per_s, offer.pools.front().workers, stop) / planner::kDesignHeadroom;
  for (OfferedPool& of : offer.pools) {
    of.requests_per_s = offer.capacity_per_s * of.load_share / of.workers;
    if (!(of.requests_per_s > 0)) return false;
  }
  closed.carry_over(offer);
  return true;
}

// The strategies of a family, each remembering its last plan.
class Proposers {
 public:
  // `on_nodes`: the question with nodes, for strategies that place on them; borrowed.
  Proposers(Family family, const Problem& on_nodes) {
    for (const NamedStrategy& strategy : cheap_strategies_first()) {
      const std::string_view name = strategy.name;
      const auto among = [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
      const bool whole = among(kWhole) && family != Family::kDisaggregated;
      const bool split = among(kSplit) && family != Family::kReplicated;
      if (!whole && !split) continue;
      auto last = std::make_shared<std::optional<Result<search::Offer>>>();
      plans_.emplace_back(strategy.name, last);
      NamedStrategy remembering = strategy;
      remembering.needs_cluster = false;
      remembering.plan = [&strategy, &on_nodes, last](const Problem& problem, const Effort& effort) {
        auto made =
            strategy.needs_cluster ? plan_anywhere(strategy, on_nodes, problem, effort) : strategy.plan(problem, effort);
        *last = made;
        return made;
      };
      strategies_.push_back(std::move(remembering));
    }
  }

  [[nodiscard]] const std::vector<NamedStrategy>& strategies_to_ask() const { return strategies_; }
  [[nodiscard]] const auto& plans() const { return plans_; }

 private:
  std::vector<NamedStrategy> strategies_;
  std::vector<std::pair<std::string, std::shared_ptr<std::optional<Result<search::Offer>>>>> plans_;
};

// Collects what was found, for the policy and for people.
class Collected {
 public:
  Collected(const Problem& problem, const ClosedForms& closed, StopCheck stop)
      : problem_(problem), closed_(closed), stop_(std::move(stop)) {
    offers_.requests_per_s = problem.requests_per_s / planner::kDesignHeadroom;
  }

  void add(const std::string& strategy, const Result<search::Offer>& plan) {
    planner::StrategyAnswer answer;
    answer.strategy = strategy;
    if (!plan.ok()) {
      answer.outcome = without_name(plan.error().message);
    } else {
      answer.deployment = describe(plan->deployment);
      answer.cost_per_hour = plan->cost_per_hour;
      std::optional<planner::Offer> offer;
      if (plan->holds) offer = runnable(problem_, *plan);
      if (!plan->holds) {
        answer.outcome = plan->missed.empty() ? fmt::format("meets the objective for {:.4g} % of the requests only",
                                                            plan->predicted.attainment * 100)
                                              : fmt::format("misses the objective: {}", plan->missed);
      } else if (!offer) {
        answer.outcome = "needs settings or a placement that the service's engine cannot be given";
      } else {
        answer.outcome = "";  // from the costs, once all are known
        const bool sure = strategy == "auto" || plan->predicted.attainment_low >= problem_.objectives.attainment;
        found_.push_back(
            {*std::move(offer), plan->deployment, plan->predicted.capacity_requests_per_s, sure, offers_.answers.size()});
      }
    }
    offers_.answers.push_back(std::move(answer));
  }

  // `least`: cost of the plan that was confirmed with confidence; cheaper ones were not.
  planner::Offers finish(bool complete, std::optional<double> least) {
    const double floor = least.value_or(0) * (1 - 1e-9);
    std::stable_sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) { return a.rank() < b.rank(); });
    std::set<std::pair<bool, std::set<std::string>>> listed;
    for (auto& [offer, deployment, known_per_s, sure, answer] : found_) {
      if (!least || offer.cost_per_hour < floor) continue;
      std::set<std::string> classes;
      for (const OfferedPool& pool : offer.pools) classes.insert(pool.spec.accelerator);
      const std::pair kind(offer.split(), std::move(classes));
      if (listed.contains(kind)) continue;
      if (!measure(problem_, deployment, known_per_s, closed_, stop_, offer)) {
        offers_.answers[answer].outcome = "one of its pools serves no request";
        continue;
      }
      listed.insert(kind);
      offers_.confirmed.push_back(std::move(offer));
    }
    keep_each_family();
    for (planner::StrategyAnswer& answer : offers_.answers) {
      if (!answer.outcome.empty()) continue;
      const double cheapest = offers_.confirmed.empty() ? 0 : offers_.confirmed.front().cost_per_hour;
      answer.outcome = !least || answer.cost_per_hour < floor
                           ? "met the objective in its own trials, but not with 95 % confidence"
                       : answer.cost_per_hour > cheapest * (1 + 1e-9) ? fmt::format("the cheapest costs {:.4g}", cheapest)
                                                                      : "none is cheaper";
    }
    offers_.complete = complete;
    return std::move(offers_);
  }

 private:
  // A strategy's error without the service's name, up to its first reason.
  [[nodiscard]] std::string without_name(const std::string& message) const {
    const std::string name = problem_.name + ": ";
    const std::size_t begin = message.starts_with(name) ? name.size() : 0;
    return message.substr(begin, message.find("; ", begin) - begin);
  }

  struct Found {
    planner::Offer offer;
    Deployment deployment;
    double known_per_s = 0;  // capacity, by its strategy
    bool sure = false;       // holds with 95 % confidence
    std::size_t answer = 0;  // index in the answers

    // Of equal costs, those that need no settings of the engine come first.
    [[nodiscard]] std::tuple<double, bool, bool> rank() const {
      constexpr double kCent = 1e-6;
      const bool plain = std::all_of(offer.pools.begin(), offer.pools.end(),
                                     [](const OfferedPool& pool) { return pool.spec.engine == planner::EngineSettings{}; });
      return {std::round(offer.cost_per_hour / kCent), !(plain && sure), !sure};
    }
  };

  // At most kMaxOffers, among them the cheapest of each family.
  void keep_each_family() {
    std::vector<planner::Offer>& all = offers_.confirmed;
    if (all.size() <= planner::kMaxOffers) return;
    const auto last = all.begin() + static_cast<std::ptrdiff_t>(planner::kMaxOffers) - 1;
    const bool first_split = all.front().split();
    const auto other = std::find_if(all.begin(), all.end(), [&](const auto& of) { return of.split() != first_split; });
    if (other != all.end() && other > last) *last = std::move(*other);
    all.resize(planner::kMaxOffers);
  }

  const Problem& problem_;
  const ClosedForms& closed_;
  StopCheck stop_;
  planner::Offers offers_;
  std::vector<Found> found_;
};

planner::Offers nothing(double requests_per_s, std::string why) {
  planner::Offers none;
  none.requests_per_s = requests_per_s;
  none.complete = true;
  none.why = std::move(why);
  return none;
}

}  // namespace

std::int64_t max_iterations(int round) { return kMaxIterations[static_cast<std::size_t>(std::clamp(round, 0, 1))]; }

Result<planner::Offers> search_offers(const OfferQuestion& question, Effort effort) {
  effort.max_iterations = max_iterations(question.round);
  std::optional<planner::Service> service = within_reach(question.service, question.classes);
  const double asked_per_s = question.service.workload.requests_per_s;
  if (!service) return nothing(asked_per_s, "no class in spec.accelerators has GPUs");
  const ClosedForms closed(*service, plenty_of(question.classes));
  if (const double one = closed.best_worker_per_s(); one > 0) {
    service->workload.requests_per_s = std::min(service->workload.requests_per_s, kMaxSearchedWorkers * one);
  }
  const auto made = question_of(*service, plenty_of(question.classes));
  if (!made.ok()) return nothing(asked_per_s, made.error().message);
  const Problem& problem = made->problem();
  const Family family = service->may_split ? service->scaling.strategy : Family::kReplicated;
  auto on_nodes = question_of(*service, plenty_of(question.classes), nodes_to_place_on(problem));
  if (!on_nodes.ok()) return nothing(asked_per_s, on_nodes.error().message);
  const Proposers proposers(family, on_nodes->problem());
  AutoOptions options;
  options.proposers = &proposers.strategies_to_ask();
  options.unified = family != Family::kDisaggregated;
  options.split = family != Family::kReplicated;
  const auto best = auto_plan(problem, options, effort);
  if (stop_requested(effort.stop)) return Error{ErrorCode::kCancelled, "search_offers: stopped"};
  Collected collected(problem, closed, effort.stop);
  collected.add("auto", best);
  for (const auto& [name, plan] : proposers.plans()) {
    if (*plan) collected.add(name, **plan);
  }
  const bool holds = best.ok() && best->holds;
  if (stop_requested(effort.stop)) return Error{ErrorCode::kCancelled, "search_offers: stopped"};
  planner::Offers offers =
      collected.finish(!best.ok() || !best->stopped, holds ? std::optional(best->cost_per_hour) : std::nullopt);
  offers.input_tokens = service->workload.input_tokens;
  if (offers.confirmed.empty()) {
    for (const planner::StrategyAnswer& answer : offers.answers) {
      offers.why += fmt::format("{}{}: {}", offers.why.empty() ? "no deployment meets the objective: " : "; ", answer.strategy,
                                answer.outcome);
    }
  }
  return offers;
}

}  // namespace windlass::search
