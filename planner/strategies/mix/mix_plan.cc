// See mix_plan.h.
#include "planner/strategies/mix/mix_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/strategies/core/auto_candidates.h"
#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/plan_parts.h"
#include "planner/strategies/core/trial.h"

namespace windlass::search {
namespace {

constexpr double kMaxRate = 4;          // multiple of the problem's rate beyond which more workers do not help
constexpr double kRateStep = 1.15;      // factor from a rate whose mix is not feasible to the next
constexpr double kMaxAlone = 2;         // limit for a single kind, as a multiple of its steady rate
constexpr double kSame = 1e-9;          // relative tolerance between equal worths
constexpr double kCapacityStep = 0.02;  // relative step of the predicted capacity
constexpr std::size_t kNamed = 3;       // notes on kinds listed in a plan

using Workers = std::vector<int>;  // by the mix's kinds

class MixPlanning {
 public:
  MixPlanning(const Problem& problem, const MixPlanOptions& options, const Effort& effort)
      : problem_(problem), options_(options), effort_(effort), question_(mix_question(problem, options.question)) {
    trial_ = {problem.requests_per_s, trial_requests(problem, problem.requests_per_s), problem.seed, true};
  }

  Result<Offer> run() {
    if (question_.kinds.empty()) {
      return Error{ErrorCode::kNotFound,
                   fmt::format("{}: no kind serves any size of its requests: {}", problem_.name, notes())};
    }
    WINDLASS_RETURN_IF_ERROR(find_rate());
    if (best_) WINDLASS_RETURN_IF_ERROR(trim());
    WINDLASS_RETURN_IF_ERROR(alone());
    if (!best_) return nearest();
    return plan();
  }

 private:
  struct Asked {
    Workers workers;
    Mix mix;
    double rate = 0;  // the rate of this mix, as a multiple of the problem's
  };

  [[nodiscard]] bool go_on() {
    if (iterations_ >= effort_.max_iterations || stop_requested(effort_.stop)) stopped_ = true;
    return !stopped_;
  }

  [[nodiscard]] std::string notes() const {
    const std::size_t told = std::min(kNamed, question_.notes.size());
    std::string text = fmt::format(
        "{}", fmt::join(question_.notes.begin(), question_.notes.begin() + static_cast<std::ptrdiff_t>(told), "; "));
    if (told < question_.notes.size()) text += fmt::format("; and {} more", question_.notes.size() - told);
    return text;
  }

  Result<Asked> ask(double rate) {
    MixEffort effort;
    effort.stop = effort_.stop;
    WINDLASS_ASSIGN_OR_RETURN(Mix mix,
                              heuristic_mix(at_rate(question_, rate * problem_.requests_per_s), options_.heuristic, effort));
    Workers workers = mix.models.front().workers;
    return Asked{std::move(workers), std::move(mix), rate};
  }

  [[nodiscard]] Deployment deploy(const Workers& workers) const {
    Deployment deployment;
    for (std::size_t k = 0; k < workers.size(); ++k) {
      if (workers[k] == 0) continue;
      deployment.pools.push_back(problem_.pool(question_.kinds[k], dispatch::Role::kUnified, workers[k]));
    }
    if (deployment.pools.size() > 1) {
      deployment.dispatch.policy = dispatch::PolicyKind::kBySize;
      const LatencyBounds bounds = latency_bounds(problem_.objectives);
      if (std::isfinite(bounds.ttft_s)) deployment.dispatch.placement.ttft_s = bounds.ttft_s;
      if (std::isfinite(bounds.tpot_s)) deployment.dispatch.placement.tpot_s = bounds.tpot_s;
    }
    return deployment;
  }

  // Whether these workers are feasible; each set is simulated once.
  Result<bool> holds(const Workers& workers) {
    if (const auto known = known_.find(workers); known != known_.end()) return known->second;
    const Deployment deployment = deploy(workers);
    bool held = false;
    if (deployment.pools.empty() || !check_room(problem_, deployment).ok()) {
      held = false;
    } else {
      WINDLASS_ASSIGN_OR_RETURN(const auto result, try_out(problem_, deployment, trial_));
      ++trials_;
      iterations_ += result.iterations;
      const Verdict verdict = judge(problem_, result);
      held = verdict.holds;
      if (!held) tried_.push_back({deployment, cost_per_hour(problem_, deployment), {}, verdict.broken});
    }
    known_.emplace(workers, held);
    return held;
  }

  void keep(Asked asked) {
    const Deployment deployment = deploy(asked.workers);
    const double worth = worth_of(problem_, deployment);
    if (best_ && worth >= worth_of(problem_, deploy(best_->workers))) {
      tried_.push_back({deployment, cost_per_hour(problem_, deployment), {}, worth_text(problem_, deployment)});
      return;
    }
    if (best_) {
      const Deployment before = deploy(best_->workers);
      tried_.push_back({before, cost_per_hour(problem_, before), {}, worth_text(problem_, before)});
    }
    best_ = std::move(asked);
  }

  // Finds the lowest rate whose mix is feasible.
  Result<void> find_rate() {
    double fails = 0, held = 0, rate = options_.first_rate;
    while (held == 0 || held / std::max(fails, 1e-9) > 1 + options_.tolerance) {
      WINDLASS_ASSIGN_OR_RETURN(Asked asked, ask(rate));
      const bool all = asked.mix.unserved_per_s <= question_.outside_share * rate * problem_.requests_per_s +
                                                       kMixTolerance * rate * problem_.requests_per_s;
      if (!last_ || !best_) last_ = asked;
      WINDLASS_ASSIGN_OR_RETURN(const bool ok, holds(asked.workers));
      if (ok) {
        held = rate;
        keep(std::move(asked));
      } else {
        fails = std::max(fails, rate);
        if (!all) return {};  // no room for more
      }
      if (!go_on() && (best_ || trials_ >= 1)) return {};
      if (held == 0) {
        rate *= kRateStep;
        if (rate > kMaxRate) return {};
      } else {
        rate = fails > 0 ? std::sqrt(fails * held) : held / kRateStep;
        if (rate < 1 / kMaxRate) return {};
      }
      if (effort_.progress) effort_.progress("mixes", 0.5);
    }
    return {};
  }

  // Removes workers while the rest stays feasible, the most expensive first.
  Result<void> trim() {
    std::vector<std::size_t> order(question_.kinds.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return worth_of_worker(problem_, question_.kinds[a]) > worth_of_worker(problem_, question_.kinds[b]);
    });
    bool gone = true;
    while (gone) {
      gone = false;
      for (const std::size_t k : order) {
        if (best_->workers[k] == 0) continue;
        if (!go_on()) return {};
        Asked fewer = *best_;
        --fewer.workers[k];
        WINDLASS_ASSIGN_OR_RETURN(const bool ok, holds(fewer.workers));
        if (!ok) continue;
        keep(std::move(fewer));
        gone = true;
        break;
      }
    }
    return {};
  }

  // Tries a single kind for everything, unless its lower bound already costs more. The program rules out sizes that miss the
  // objectives on a kind, but the attainment may allow them.
  Result<void> alone() {
    const LengthMoments lengths = length_moments(*problem_.requests, problem_.seed, options_.question.requests);
    for (std::size_t k = 0; k < question_.kinds.size(); ++k) {
      const int kind = question_.kinds[k];
      const double worth = worth_of_worker(problem_, kind);
      const double one = steady_state(problem_.kinds[static_cast<std::size_t>(kind)], problem_.engine, lengths).requests_per_s;
      const double least = std::max(1.0, std::ceil(problem_.requests_per_s / (kSteadyRateMargin * one)));
      const double guess = std::ceil(kMaxAlone * problem_.requests_per_s / one);
      const double below = best_ ? std::ceil(worth_of(problem_, deploy(best_->workers)) / worth * (1 - kSame)) - 1 : guess;
      double most = std::min({guess, below, static_cast<double>(max_workers(problem_, kind))});
      while (most >= least) {
        if (!go_on()) return {};
        Asked asked;
        asked.workers.assign(question_.kinds.size(), 0);
        asked.workers[k] = static_cast<int>(most);
        asked.rate = 1;
        asked.mix.models.push_back({asked.workers, {}, 0});
        for (std::size_t b = 0; b < question_.buckets.size(); ++b) {
          asked.mix.models.front().shares.emplace_back(question_.kinds.size(), 0.0);
          asked.mix.models.front().shares.back()[k] = 1;
        }
        asked.mix.cost_per_hour = most * worth;
        WINDLASS_ASSIGN_OR_RETURN(const bool ok, holds(asked.workers));
        if (!ok) break;
        keep(std::move(asked));
        --most;
      }
    }
    return {};
  }

  Result<Offer> plan() {
    Offer plan = plan_of(problem_, "mix", deploy(best_->workers));
    plan.holds = true;
    WINDLASS_ASSIGN_OR_RETURN(const auto result,
                              try_out(problem_, plan.deployment, {trial_.requests_per_s, trial_.requests, trial_.seed}));
    plan.predicted = predict(problem_, {&result, 1});
    plan.predicted.capacity_requests_per_s = problem_.requests_per_s;
    ++trials_;
    iterations_ += result.iterations;
    if (go_on()) {
      CapacitySearch search;
      search.requests = trial_.requests;
      search.seed = trial_.seed;
      search.first_guess_per_s = problem_.requests_per_s * 1.05;
      search.tolerance = kCapacityStep;
      search.figures = false;
      search.stop = effort_.stop;
      const auto capacity = capacity_of(problem_, plan.deployment, search);
      if (capacity.ok()) {
        plan.predicted.capacity_requests_per_s = std::max(problem_.requests_per_s, capacity->requests_per_s);
        trials_ += capacity->trials;
        iterations_ += capacity->iterations;
      } else if (capacity.error().code == ErrorCode::kCancelled) {
        stopped_ = true;
      } else {
        return capacity.error();
      }
    }
    WINDLASS_RETURN_IF_ERROR(explain(plan));
    return finish(std::move(plan));
  }

  // Explains the plan: which sizes go where, the program's result, and what a single kind would cost.
  Result<void> explain(Offer& plan) {
    const Mix& mix = best_->mix;
    if (mix.bound_per_hour > 0) {
      plan.reasons.push_back(fmt::format("the mix for {:.3g} times the rate; the lower bound is {:.3g} % below its cost",
                                         best_->rate, 100 * (1 - mix.bound_per_hour / mix.cost_per_hour)));
    } else {
      plan.reasons.emplace_back("one kind for all sizes: few enough requests miss the objectives on it");
    }
    const MixShares& shares = mix.models.front();
    for (std::size_t k = 0; k < question_.kinds.size(); ++k) {
      double requests = 0, input = 0, output = 0;
      for (std::size_t b = 0; b < question_.buckets.size(); ++b) {
        const double share = question_.buckets[b].share * shares.shares[b][k];
        requests += share;
        input += share * question_.buckets[b].lengths.input_tokens;
        output += share * question_.buckets[b].lengths.output_tokens;
      }
      if (!(requests > 1e-6)) continue;
      plan.reasons.push_back(fmt::format("{}: about {:.0f} % of the requests, {:.0f} + {:.0f} tokens on average",
                                         question_.mix.models.front().kinds[k].name, 100 * requests, input / requests,
                                         output / requests));
    }
    // The same problem with one kind at a time.
    std::optional<std::pair<double, std::string>> single;
    const MixModel& model = question_.mix.models.front();
    for (std::size_t k = 0; k < model.kinds.size(); ++k) {
      double work = 0;
      for (const MixBucket& bucket : model.buckets) work += bucket.requests_per_s * bucket.load_s[k];
      const double workers = std::ceil(work * best_->rate * problem_.requests_per_s - 1e-9);
      const double cost = workers * model.kinds[k].price_per_hour;
      if (std::isfinite(cost) && (!single || cost < single->first))
        single = {cost, fmt::format("{} x {}", workers, model.kinds[k].name)};
    }
    if (single && mix.cost_per_hour > 0) {
      plan.reasons.push_back(
          fmt::format("by the same closed forms, the cheapest single kind is {}, at {:.3g} times the mix's cost",
                      single->second, single->first / mix.cost_per_hour));
    } else if (!single) {
      plan.reasons.emplace_back("no single kind meets the objectives for every size");
    }
    if (question_.outside_share > 0) {
      plan.reasons.push_back(fmt::format("{:.2g} % of the requests have sizes for which no kind meets the objectives",
                                         100 * question_.outside_share));
    }
    if (!question_.notes.empty()) plan.reasons.push_back(notes());
    return {};
  }

  // Nothing is feasible: the last mix that had room.
  Result<Offer> nearest() {
    if (!last_ || deploy(last_->workers).pools.empty()) {
      const std::vector<std::string> missing = last_ ? last_->mix.missing : std::vector<std::string>();
      return Error{ErrorCode::kNotFound,
                   fmt::format("{}: no room for one worker: {}", problem_.name, fmt::join(missing, "; "))};
    }
    if (stopped_ && trials_ == 0) return Error{ErrorCode::kCancelled, "stopped before a mix was tried"};
    Offer plan = plan_of(problem_, "mix", deploy(last_->workers));
    WINDLASS_ASSIGN_OR_RETURN(const auto result,
                              try_out(problem_, plan.deployment, {trial_.requests_per_s, trial_.requests, trial_.seed}));
    ++trials_;
    iterations_ += result.iterations;
    plan.predicted = predict(problem_, {&result, 1});
    plan.reasons.push_back(fmt::format("no mix was found that meets the objectives; this is the last one tried: {}",
                                       judge(problem_, result).broken));
    plan.reasons.insert(plan.reasons.end(), last_->mix.missing.begin(), last_->mix.missing.end());
    if (!question_.notes.empty()) plan.reasons.push_back(notes());
    return finish(std::move(plan));
  }

  Result<Offer> finish(Offer plan) {
    for (Rejection& other : tried_) {
      if (other.rejected_because.empty()) other.rejected_because = "it misses the objectives";
      if (other.rejected_because == worth_text(problem_, other.deployment))
        other.rejected_because += ", the plan " + worth_text(problem_, plan.deployment);
      plan.considered.push_back(std::move(other));
    }
    order_considered(problem_, plan.considered);
    plan.trials = trials_;
    plan.iterations = iterations_;
    plan.stopped = stopped_;
    return plan;
  }

  const Problem& problem_;
  const MixPlanOptions& options_;
  const Effort& effort_;
  MixQuestion question_;
  Trial trial_;
  std::map<Workers, bool> known_;
  std::vector<Rejection> tried_;
  std::optional<Asked> best_, last_;
  std::int64_t trials_ = 0, iterations_ = 0;
  bool stopped_ = false;
};

}  // namespace

Result<Offer> mix_plan(const Problem& problem, const MixPlanOptions& options, const Effort& effort) {
  WINDLASS_RETURN_IF_ERROR(validate(problem));
  if (!(options.first_rate > 0) || !(options.tolerance > 0)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("mix: first_rate and tolerance: must be above 0 (got {} and {})",
                                                          options.first_rate, options.tolerance)};
  }
  return MixPlanning(problem, options, effort).run();
}

}  // namespace windlass::search
