// auto_plan(): see auto_plan.h.
#include "planner/strategies/auto/auto_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/strategies/auto/auto_answers.h"
#include "planner/strategies/core/auto_candidates.h"
#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/phase_counts.h"
#include "planner/strategies/core/plan_parts.h"
#include "planner/strategies/core/trial.h"

namespace windlass::search {
namespace {

constexpr std::int64_t kPlanMomentsOf = 2000;  // requests whose lengths feed the closed forms
constexpr std::size_t kRound = 4;              // candidates tried per round
constexpr std::size_t kFirst = 4;              // candidates tried for a valid plan even when it is time to stop
constexpr int kFirstTrials = 10;               // per candidate
constexpr std::size_t kMaxNearestTried = 24;

class Auto {
 public:
  Auto(const Problem& problem, const AutoOptions& options, const Effort& effort)
      : problem_(problem),
        options_(options),
        effort_(effort),
        executor_(effort.executor == nullptr ? serial_ : *effort.executor),
        lengths_(length_moments(*problem.requests, problem.seed, kPlanMomentsOf)),
        trial_{problem.requests_per_s, trial_requests(problem, problem.requests_per_s), problem.seed, true},
        answers_(problem, effort.stop, trial_, options.max_requests) {
    if (options.proposers == nullptr) return;
    for (const NamedStrategy& strategy : *options.proposers) {
      if (std::string_view(strategy.name) != "auto" && !strategy.needs_cluster) proposers_.push_back({&strategy});
    }
  }

  Result<Offer> run() {
    AutoCandidates found = auto_candidates(problem_, lengths_, problem_.requests_per_s);
    candidates_ = std::move(found.candidates);
    screened_ = std::move(found.screened);
    const bool too_slow = candidates_.empty();
    std::erase_if(candidates_, [&](const AutoCandidate& of) { return of.unified() ? !options_.unified : !options_.split; });
    std::erase_if(candidates_, [&](const AutoCandidate& of) { return !check_room(problem_, deploy(of, of.least)).ok(); });
    if (options_.incumbent) {
      WINDLASS_RETURN_IF_ERROR(answers_.offer(*options_.incumbent, "keeping the current deployment", 1));
      WINDLASS_RETURN_IF_ERROR(answers_.confirm());
    }
    // If a single request is too slow on every kind, no proposal can be feasible. Without room on one kind, a mix may be.
    if (too_slow && answers_.best() == nullptr) return nearest();
    WINDLASS_RETURN_IF_ERROR(first());
    for (std::int64_t slice = kAutoFirstSlice; go_on();) {
      WINDLASS_RETURN_IF_ERROR(ask_all(slice));
      if (all_done()) break;
      if (slice >= effort_.max_iterations) stopped_ = true;
      constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
      slice = slice > kMax / kAutoSliceGrowth ? kMax : slice * kAutoSliceGrowth;
    }
    return answers_.best() != nullptr ? plan() : nearest();
  }

 private:
  struct Proposer {
    const NamedStrategy* strategy;
    bool done = false;
  };
  struct Looked {
    std::optional<PhaseCounts> counts;
    std::int64_t trials = 0, iterations = 0;
    std::optional<Error> error;
  };

  [[nodiscard]] bool go_on() {
    if (stop_requested(effort_.stop)) stopped_ = true;
    return !stopped_;
  }
  [[nodiscard]] bool searched() const { return next_ >= candidates_.size(); }
  [[nodiscard]] bool all_done() const {
    return searched() && std::all_of(proposers_.begin(), proposers_.end(), [](const Proposer& of) { return of.done; });
  }
  void progress(std::string_view what) const {
    if (!effort_.progress) return;
    const auto all = static_cast<double>(candidates_.size() + proposers_.size());
    const auto done = std::count_if(proposers_.begin(), proposers_.end(), [](const Proposer& of) { return of.done; });
    effort_.progress(what, (static_cast<double>(done) + static_cast<double>(next_)) / all);
  }

  [[nodiscard]] Deployment deploy(const AutoCandidate& of, const PhaseCounts& counts) const {
    Deployment deployment = unified(problem_, of.prefill_kind, problem_.engine, counts.prefill);
    if (of.unified()) return deployment;
    deployment.pools.front().role = dispatch::Role::kPrefill;
    deployment.pools.push_back(problem_.pool(of.decode_kind, dispatch::Role::kDecode, counts.decode));
    return deployment;
  }

  Result<bool> holds(const Deployment& deployment, std::int64_t& trials, std::int64_t& iterations) const {
    WINDLASS_ASSIGN_OR_RETURN(const auto result, try_out(problem_, deployment, trial_));
    ++trials;
    iterations += result.iterations;
    return judge(problem_, result).holds;
  }

  // Tries the first candidates, with few trials each, until one is feasible.
  Result<void> first() {
    std::size_t tried = 0;
    for (std::size_t i = 0; i < candidates_.size() && tried < kFirst; ++i) {
      const AutoCandidate& of = candidates_[i];
      if (!of.unified() && i < candidates_.size() / 2) continue;  // one count is found faster than two
      ++tried;
      PhaseCounts counts = of.guess;
      for (int grown = 0; grown < kFirstTrials; ++grown) {
        const Deployment deployment = deploy(of, counts);
        if (!check_room(problem_, deployment).ok()) break;
        WINDLASS_ASSIGN_OR_RETURN(const bool held, holds(deployment, trials_, iterations_));
        if (held) {
          answers_.add(deployment, "closed forms");
          return {};
        }
        counts = {counts.prefill + 1 + counts.prefill / 4, of.unified() ? 0 : counts.decode + 1 + counts.decode / 4};
      }
    }
    return {};
  }

  // One slice of each strategy and of the own search. A stop ends it early.
  Result<void> ask_all(std::int64_t slice) {
    const std::size_t cheap = std::min(kAutoCheap, proposers_.size());
    WINDLASS_RETURN_IF_ERROR(ask({proposers_.begin(), cheap}, slice));
    WINDLASS_RETURN_IF_ERROR(answers_.confirm());
    WINDLASS_RETURN_IF_ERROR(search(slice));
    WINDLASS_RETURN_IF_ERROR(ask({proposers_.begin() + static_cast<std::ptrdiff_t>(cheap), proposers_.end()}, slice));
    return answers_.confirm();
  }

  Result<void> ask(std::span<Proposer> proposers, std::int64_t slice) {
    Effort effort = effort_;
    effort.max_iterations = slice;
    effort.progress = nullptr;
    for (Proposer& of : proposers) {
      if (of.done) continue;
      if (!go_on()) return {};
      progress(of.strategy->name);
      const auto proposed = of.strategy->plan(problem_, effort);
      if (!proposed.ok()) {
        of.done = proposed.error().code != ErrorCode::kCancelled;
        if (of.done) notes_.push_back(fmt::format("{} found no plan: {}", of.strategy->name, proposed.error().message));
        continue;
      }
      trials_ += proposed->trials;
      iterations_ += proposed->iterations;
      of.done = !proposed->stopped || (go_on() && proposed->iterations < slice);
      if (!proposed->holds) continue;
      WINDLASS_RETURN_IF_ERROR(answers_.offer(proposed->deployment, of.strategy->name, proposed->predicted.attainment));
    }
    return {};
  }

  // Continues the own search until it has taken as many iterations as the slice.
  Result<void> search(std::int64_t slice) {
    while (!searched() && searched_iterations_ < slice && go_on()) {
      progress("deployments");
      const std::size_t end = std::min(candidates_.size(), next_ + kRound);
      WINDLASS_RETURN_IF_ERROR(round(next_, end));
      next_ = end;
    }
    return {};
  }

  // The fewest workers of one candidate below a worth.
  [[nodiscard]] Looked look(const AutoCandidate& of, double below) const {
    Looked looked;
    CountQuestions questions;
    questions.prefill_worth = of.prefill_worth;
    questions.decode_worth = of.unified() ? 1 : of.decode_worth;
    questions.unified = of.unified();
    questions.max_workers = static_cast<int>(std::min<std::int64_t>(trial_.requests, kMaxWorkers));
    questions.fits = [&](const PhaseCounts& counts) { return check_room(problem_, deploy(of, counts)).ok(); };
    questions.hold = [&](std::span<const PhaseCounts> asked) -> Result<std::vector<char>> {
      std::vector<char> answers;
      for (const PhaseCounts& counts : asked) {
        if (counts.prefill < of.least.prefill || counts.decode < of.least.decode) {
          answers.push_back(0);  // excluded by the closed-form bound
          continue;
        }
        if (stop_requested(effort_.stop)) return Error{ErrorCode::kCancelled, "stopped"};
        WINDLASS_ASSIGN_OR_RETURN(const bool held, holds(deploy(of, counts), looked.trials, looked.iterations));
        answers.push_back(held ? 1 : 0);
      }
      return answers;
    };
    CountWalk walk(std::move(questions));
    const auto done = walk.run(of.guess, below);
    if (!done.ok() && done.error().code != ErrorCode::kCancelled) looked.error = done.error();
    looked.counts = walk.best();
    return looked;
  }

  Result<void> round(std::size_t begin, std::size_t end) {
    const double below = answers_.confirmed_worth();
    std::vector<std::size_t> asked;
    for (std::size_t i = begin; i < end; ++i) {
      const AutoCandidate& of = candidates_[i];
      if (of.worth(of.least) < below) {
        asked.push_back(i);
      } else {
        ++bounded_;
        const Deployment least = deploy(of, of.least);
        lost_.push_back({least, fmt::format("fewer workers cannot serve the rate, and this {}, the plan {}",
                                            worth_text(problem_, least), "{}")});
      }
    }
    std::vector<Looked> looked(asked.size());
    executor_.run(asked.size(), [&](std::size_t at) { looked[at] = look(candidates_[asked[at]], below); });
    for (const Looked& one : looked) {
      if (one.error) return *one.error;
      trials_ += one.trials;
      iterations_ += one.iterations;
      searched_iterations_ += one.iterations;
    }
    for (std::size_t at = 0; at < asked.size(); ++at) {
      const AutoCandidate& of = candidates_[asked[at]];
      ++simulated_;
      if (!looked[at].counts) {
        lost_.push_back({deploy(of, of.guess), "none of this kind meets the objectives for less than the plan"});
        continue;
      }
      answers_.add(deploy(of, *looked[at].counts), "simulation");
    }
    return answers_.confirm();
  }

  Result<Offer> plan() {
    const AutoAnswer& best = *answers_.best();
    Offer plan = plan_of(problem_, "auto", best.deployment);
    WINDLASS_ASSIGN_OR_RETURN(const auto result,
                              try_out(problem_, best.deployment, {trial_.requests_per_s, trial_.requests, trial_.seed}));
    ++trials_;
    iterations_ += result.iterations;
    plan.holds = judge(problem_, result).holds;
    plan.predicted = predict(problem_, {&result, 1});
    plan.predicted.capacity_requests_per_s = problem_.requests_per_s;  // at least this; more if there is time to search
    if (go_on()) {
      CapacitySearch search;
      search.requests = trial_.requests;
      search.seed = trial_.seed;
      search.first_guess_per_s = problem_.requests_per_s * 1.05;
      search.figures = false;
      search.stop = effort_.stop;
      const auto capacity = capacity_of(problem_, best.deployment, search);
      if (capacity.ok()) {
        trials_ += capacity->trials;
        iterations_ += capacity->iterations;
        plan.predicted.capacity_requests_per_s = std::max(problem_.requests_per_s, capacity->requests_per_s);
      }
    }
    const std::string told = worth_text(problem_, best.deployment);
    plan.reasons.push_back(fmt::format("{} {}: the best that was found, by {}", describe(best.deployment), told, best.by));
    plan.reasons.push_back(
        best.confirmed ? problem_.objectives.both
                             ? fmt::format("with 95 % confidence, at least {:.6g} % of the requests meet the objectives",
                                           100 * problem_.objectives.attainment)
                             : fmt::format("the limits hold on {} seeds", kAutoSeeds)
                       : std::string("it met the objectives in one trial, without statistical confidence"));
    plan.reasons.push_back(
        fmt::format("{} deployments were simulated, {} cannot be cheaper by their lower bounds, {} kinds are too slow",
                    simulated_, bounded_, screened_.size()));
    plan.reasons.insert(plan.reasons.end(), notes_.begin(), notes_.end());
    std::vector<AutoAnswers::Lost> lost = answers_.take_lost();
    lost.insert(lost.end(), std::move_iterator(lost_.begin()), std::move_iterator(lost_.end()));
    for (AutoAnswers::Lost& of : lost) {
      const auto place = of.because.find("{}");
      if (place != std::string::npos) of.because.replace(place, 2, told);
      Rejection one;
      one.cost_per_hour = cost_per_hour(problem_, of.deployment);
      one.deployment = std::move(of.deployment);
      one.rejected_because = std::move(of.because);
      plan.considered.push_back(std::move(one));
    }
    return finish(std::move(plan));
  }

  Result<Offer> finish(Offer plan) {
    order_considered(problem_, plan.considered);
    plan.trials = trials_ + answers_.work().trials;
    plan.iterations = iterations_ + answers_.work().iterations;
    plan.stopped = stopped_;
    return plan;
  }

  // Distance of the percentile times from the joint objectives; 1 means met. Used if none or all of the requests miss.
  [[nodiscard]] double distance(const Prediction& predicted) const {
    const auto& both = problem_.objectives.both;
    return both ? std::max(predicted.ttft_s / both->ttft_s, predicted.tpot_s / both->tpot_s) : 0;
  }

  // Nothing is feasible: among the deployments that have room, returns the one that misses by least.
  Result<Offer> nearest() {
    std::vector<Deployment> deployments;
    for (int k = 0; k < static_cast<int>(problem_.kinds.size()) && deployments.size() < kMaxNearestTried; ++k) {
      const int room = max_workers(problem_, k);
      if (room < 1) continue;
      const double each = steady_state(problem_.kinds[static_cast<std::size_t>(k)], problem_.engine, lengths_).requests_per_s;
      const double wanted = each > 0 ? 2 * std::ceil(problem_.requests_per_s / each) : 1;
      deployments.push_back(unified(problem_, k, problem_.engine, static_cast<int>(std::clamp<double>(wanted, 1, room))));
    }
    if (deployments.empty()) {
      return Error{ErrorCode::kNotFound,
                   fmt::format("{}: no room for a worker of any of {} kinds", problem_.name, problem_.kinds.size())};
    }
    if (stopped_ && trials_ == 0) return Error{ErrorCode::kCancelled, "stopped before anything was tried"};
    std::vector<std::optional<sim::ServingResult>> results(deployments.size());
    executor_.run(deployments.size(), [&](std::size_t at) {
      auto result = try_out(problem_, deployments[at], {trial_.requests_per_s, trial_.requests, trial_.seed});
      if (result.ok()) results[at] = std::move(result).value();
    });
    std::optional<Offer> best;
    std::vector<Rejection> others;
    std::pair<double, double> least;
    for (std::size_t at = 0; at < deployments.size(); ++at) {
      if (!results[at]) continue;
      ++trials_;
      iterations_ += results[at]->iterations;
      const Verdict verdict = judge(problem_, *results[at]);
      Offer plan = plan_of(problem_, "auto", deployments[at]);
      plan.predicted = predict(problem_, {&*results[at], 1});
      others.push_back({plan.deployment, plan.cost_per_hour, plan.predicted, verdict.broken});
      const std::pair<double, double> missed{verdict.worst, distance(plan.predicted)};
      if (best && missed >= least) continue;
      least = missed;
      plan.reasons = {
          fmt::format("no deployment was found that meets the objectives; this one comes closest: {}", verdict.broken),
          fmt::format("at that percentile its TTFT is {:.4g} s and its TPOT {:.4g} s", plan.predicted.ttft_s,
                      plan.predicted.tpot_s)};
      best = std::move(plan);
    }
    if (!best) return Error{ErrorCode::kNotFound, fmt::format("{}: nothing could be simulated", problem_.name)};
    best->reasons.insert(best->reasons.end(), screened_.begin(), screened_.end());
    best->reasons.insert(best->reasons.end(), notes_.begin(), notes_.end());
    best->considered = std::move(others);
    return finish(std::move(*best));
  }

  const Problem& problem_;
  const AutoOptions& options_;
  const Effort& effort_;
  SerialExecutor serial_;
  Executor& executor_;
  LengthMoments lengths_;
  const Trial trial_;
  AutoAnswers answers_;
  std::vector<Proposer> proposers_;
  std::vector<AutoCandidate> candidates_;
  std::size_t next_ = 0;  // of the candidates, in the own search
  std::vector<std::string> screened_, notes_;
  std::vector<AutoAnswers::Lost> lost_;
  std::int64_t trials_ = 0, iterations_ = 0, searched_iterations_ = 0;  // without those of the answers
  std::int64_t simulated_ = 0, bounded_ = 0;
  bool stopped_ = false;
};

}  // namespace

Result<Offer> auto_plan(const Problem& problem, const AutoOptions& options, const Effort& effort) {
  WINDLASS_RETURN_IF_ERROR(validate(problem));
  return Auto(problem, options, effort).run();
}

}  // namespace windlass::search
