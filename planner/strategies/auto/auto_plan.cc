// auto_plan(): see auto_plan.h.
#include "planner/strategies/auto/auto_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

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
constexpr int kEnlarged = 4;                   // how often a deployment that passed once is enlarged to pass with confidence
constexpr int kSeeds = 3;                      // on which limits must hold
constexpr std::int64_t kMoreRequests = 4;      // factor of requests if the first trial is not conclusive
constexpr std::size_t kMaxNearestTried = 24;

struct Tried {
  Deployment deployment;
  std::string rejected_because;
};

class Auto {
 public:
  Auto(const Problem& problem, const AutoOptions& options, const Effort& effort)
      : problem_(problem),
        options_(options),
        effort_(effort),
        executor_(effort.executor == nullptr ? serial_ : *effort.executor),
        lengths_(length_moments(*problem.requests, problem.seed, kPlanMomentsOf)) {
    trial_ = {problem.requests_per_s, trial_requests(problem, problem.requests_per_s), problem.seed, true};
  }

  Result<Offer> run() {
    AutoCandidates found = auto_candidates(problem_, lengths_, problem_.requests_per_s);
    candidates_ = std::move(found.candidates);
    screened_ = std::move(found.screened);
    std::erase_if(candidates_, [&](const AutoCandidate& of) { return of.unified() ? !options_.unified : !options_.split; });
    std::erase_if(candidates_, [&](const AutoCandidate& of) { return !check_room(problem_, deploy(of, of.least)).ok(); });
    if (options_.incumbent) WINDLASS_RETURN_IF_ERROR(offer(*options_.incumbent, "keeping the current deployment"));
    // If a single request is too slow on every kind, no proposal can be feasible.
    if (candidates_.empty() && !best_) return nearest();
    WINDLASS_RETURN_IF_ERROR(first());
    for (std::size_t begin = 0; begin < candidates_.size() && go_on(); begin += kRound) {
      WINDLASS_RETURN_IF_ERROR(round(begin, std::min(candidates_.size(), begin + kRound)));
      progress("deployments", 0.7 * static_cast<double>(begin) / static_cast<double>(candidates_.size()));
    }
    WINDLASS_RETURN_IF_ERROR(propose());
    if (best_) return plan();
    if (!fallback_) return nearest();
    best_ = fallback_;
    best_by_ = "closed forms";
    sure_ = false;
    return plan();
  }

 private:
  struct Looked {
    std::optional<PhaseCounts> counts;
    std::int64_t trials = 0, iterations = 0;
    std::optional<Error> error;
  };

  [[nodiscard]] bool go_on() {
    if (iterations_ >= effort_.max_iterations || stop_requested(effort_.stop)) stopped_ = true;
    return !stopped_;
  }
  void progress(std::string_view what, double share) const {
    if (effort_.progress) effort_.progress(what, share);
  }

  [[nodiscard]] Deployment deploy(const AutoCandidate& of, const PhaseCounts& counts) const {
    Deployment deployment = unified(problem_, of.prefill_kind, problem_.engine, counts.prefill);
    if (of.unified()) return deployment;
    deployment.pools.front().role = dispatch::Role::kPrefill;
    deployment.pools.push_back(problem_.pool(of.decode_kind, dispatch::Role::kDecode, counts.decode));
    return deployment;
  }

  Result<bool> holds(const Deployment& deployment, std::int64_t requests, std::uint64_t seed, std::int64_t& trials,
                     std::int64_t& iterations) const {
    Trial trial = trial_;
    trial.requests = requests;
    trial.seed = seed;
    WINDLASS_ASSIGN_OR_RETURN(const auto result, try_out(problem_, deployment, trial));
    ++trials;
    iterations += result.iterations;
    return judge(problem_, result).holds;
  }

  // Whether a deployment that passed once is confident, as defined in auto_plan.h.
  Result<bool> confident(const Deployment& deployment) {
    if (!problem_.objectives.both) {
      for (int i = 1; i < kSeeds; ++i) {
        WINDLASS_ASSIGN_OR_RETURN(const bool held, holds(deployment, trial_.requests,
                                                         trial_.seed + static_cast<std::uint64_t>(i), trials_, iterations_));
        if (!held) return false;
      }
      return true;
    }
    double inside = 0, all = 0;
    std::uint64_t seed = trial_.seed;
    for (std::int64_t requests = trial_.requests; requests <= options_.max_requests; requests *= kMoreRequests) {
      WINDLASS_ASSIGN_OR_RETURN(const auto result, try_out(problem_, deployment, {trial_.requests_per_s, requests, seed++}));
      ++trials_;
      iterations_ += result.iterations;
      if (!problem_.objectives.limits.empty() && !judge(problem_, result).holds) return false;
      if (result.refused + result.failed > 0) return false;
      inside += result.attainment * static_cast<double>(result.requests);
      all += static_cast<double>(result.requests);
      const double asked = problem_.objectives.attainment;
      if (wilson_low(inside, all) >= asked) return true;
      if (1 - wilson_low(all - inside, all) < asked) return false;  // certainly not
    }
    return false;
  }

  // A deployment that passed a trial becomes the best if it is cheaper and confident, enlarged a little if necessary.
  Result<void> accept(Deployment deployment, const std::string& by) {
    for (int enlarged = 0; enlarged <= kEnlarged; ++enlarged) {
      if (best_ && worth_of(problem_, deployment) >= best_worth_) {
        tried_.push_back({deployment, fmt::format("{}, the plan {}", worth_text(problem_, deployment), "{}")});
        return {};
      }
      if (const auto room = check_room(problem_, deployment); !room.ok()) {
        tried_.push_back({deployment, room.error().message});
        return {};
      }
      WINDLASS_ASSIGN_OR_RETURN(const bool sure, confident(deployment));
      if (sure) {
        if (best_) tried_.push_back({*best_, fmt::format("{}, the plan {}", worth_text(problem_, *best_), "{}")});
        best_worth_ = worth_of(problem_, deployment);
        best_ = std::move(deployment);
        best_by_ = by;
        return {};
      }
      tried_.push_back({deployment, "it met the objectives in one trial, but not with confidence"});
      Pool& pool = deployment.pools[static_cast<std::size_t>(enlarged) % deployment.pools.size()];
      pool.workers += std::max(1, pool.workers / 50);
    }
    return {};
  }

  // Tries a deployment from elsewhere.
  Result<void> offer(const Deployment& deployment, const std::string& by) {
    if (best_ && worth_of(problem_, deployment) >= best_worth_) {
      tried_.push_back({deployment, fmt::format("{}: {}, the plan {}", by, worth_text(problem_, deployment), "{}")});
      return {};
    }
    if (const auto room = check_room(problem_, deployment); !room.ok()) {
      tried_.push_back({deployment, fmt::format("{}: {}", by, room.error().message)});
      return {};
    }
    WINDLASS_ASSIGN_OR_RETURN(const bool held, holds(deployment, trial_.requests, trial_.seed, trials_, iterations_));
    if (held) return accept(deployment, by);
    tried_.push_back({deployment, by + ": it misses the objectives when tried again"});
    return {};
  }

  // Tries the first candidates, with few trials each, until one is feasible.
  Result<void> first() {
    std::size_t tried = 0;
    for (std::size_t i = 0; i < candidates_.size() && !best_ && !fallback_; ++i) {
      if (tried >= kFirst && !go_on()) return {};
      const AutoCandidate& of = candidates_[i];
      if (!of.unified() && i < candidates_.size() / 2) continue;  // one count is found faster than two
      ++tried;
      PhaseCounts counts = of.guess;
      for (int grown = 0; grown < kFirstTrials; ++grown) {
        const Deployment deployment = deploy(of, counts);
        if (!check_room(problem_, deployment).ok()) break;
        WINDLASS_ASSIGN_OR_RETURN(const bool held, holds(deployment, trial_.requests, trial_.seed, trials_, iterations_));
        if (held) {
          fallback_ = deployment;  // an immediate valid plan
          break;
        }
        counts = {counts.prefill + 1 + counts.prefill / 4, of.unified() ? 0 : counts.decode + 1 + counts.decode / 4};
      }
    }
    if (!fallback_ || !go_on()) return {};
    return accept(*fallback_, "closed forms");
  }

  // The fewest workers of one candidate below a worth.
  [[nodiscard]] Looked look(const AutoCandidate& of, double below) const {
    Looked looked;
    CountQuestions questions;
    questions.prefill_worth = of.prefill_worth;
    questions.decode_worth = of.unified() ? 1 : of.decode_worth;
    questions.unified = of.unified();
    questions.fits = [&](const PhaseCounts& counts) { return check_room(problem_, deploy(of, counts)).ok(); };
    questions.hold = [&](std::span<const PhaseCounts> asked) -> Result<std::vector<char>> {
      std::vector<char> answers;
      for (const PhaseCounts& counts : asked) {
        if (counts.prefill < of.least.prefill || counts.decode < of.least.decode) {
          answers.push_back(0);  // excluded by the closed-form bound
          continue;
        }
        if (stop_requested(effort_.stop)) return Error{ErrorCode::kCancelled, "stopped"};
        WINDLASS_ASSIGN_OR_RETURN(const bool held,
                                  holds(deploy(of, counts), trial_.requests, trial_.seed, looked.trials, looked.iterations));
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
    const double below = best_ ? best_worth_ : std::numeric_limits<double>::infinity();
    std::vector<std::size_t> asked;
    for (std::size_t i = begin; i < end; ++i) {
      const AutoCandidate& of = candidates_[i];
      if (of.worth(of.least) < below) {
        asked.push_back(i);
      } else {
        ++bounded_;
        const Deployment least = deploy(of, of.least);
        tried_.push_back({least, fmt::format("fewer workers cannot serve the rate, and this {}, the plan {}",
                                             worth_text(problem_, least), "{}")});
      }
    }
    std::vector<Looked> looked(asked.size());
    executor_.run(asked.size(), [&](std::size_t at) { looked[at] = look(candidates_[asked[at]], below); });
    for (const Looked& one : looked) {
      if (one.error) return *one.error;
      trials_ += one.trials;
      iterations_ += one.iterations;
    }
    for (std::size_t at = 0; at < asked.size(); ++at) {
      const AutoCandidate& of = candidates_[asked[at]];
      ++simulated_;
      if (!looked[at].counts) {
        tried_.push_back({deploy(of, of.guess), "none of this kind meets the objectives for less than the plan"});
        continue;
      }
      WINDLASS_RETURN_IF_ERROR(accept(deploy(of, *looked[at].counts), "simulation"));
    }
    return {};
  }

  // Tries what the other strategies propose.
  Result<void> propose() {
    if (options_.proposers == nullptr) return {};
    for (const NamedStrategy& strategy : *options_.proposers) {
      if (std::string_view(strategy.name) == "auto" || strategy.needs_cluster) continue;
      if (!go_on()) return {};
      Effort effort = effort_;
      effort.max_iterations = effort_.max_iterations - iterations_;
      effort.progress = nullptr;
      progress(strategy.name, 0.7);
      auto proposed = strategy.plan(problem_, effort);
      if (!proposed.ok()) {
        notes_.push_back(fmt::format("{} found no plan: {}", strategy.name, proposed.error().message));
        continue;
      }
      trials_ += proposed->trials;
      iterations_ += proposed->iterations;
      if (proposed->holds) WINDLASS_RETURN_IF_ERROR(offer(proposed->deployment, strategy.name));
    }
    return {};
  }

  Result<Offer> plan() {
    Offer plan = plan_of(problem_, "auto", *best_);
    WINDLASS_ASSIGN_OR_RETURN(const auto result,
                              try_out(problem_, *best_, {trial_.requests_per_s, trial_.requests, trial_.seed}));
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
      const auto capacity = capacity_of(problem_, *best_, search);
      if (capacity.ok()) {
        trials_ += capacity->trials;
        iterations_ += capacity->iterations;
        plan.predicted.capacity_requests_per_s = std::max(problem_.requests_per_s, capacity->requests_per_s);
      }
    }
    const std::string told = worth_text(problem_, *best_);
    plan.reasons.push_back(fmt::format("{} {}: the best that was found, by {}", describe(*best_), told, best_by_));
    plan.reasons.push_back(
        sure_ ? problem_.objectives.both
                    ? fmt::format("with 95 % confidence, at least {:.6g} % of the requests meet the objectives",
                                  100 * problem_.objectives.attainment)
                    : fmt::format("the limits hold on {} seeds", kSeeds)
              : std::string("it met the objectives in one trial, without statistical confidence"));
    plan.reasons.push_back(
        fmt::format("{} deployments were simulated, {} cannot be cheaper by their lower bounds, {} kinds are too slow",
                    simulated_, bounded_, screened_.size()));
    plan.reasons.insert(plan.reasons.end(), notes_.begin(), notes_.end());
    for (Tried& tried : tried_) {
      const auto place = tried.rejected_because.find("{}");
      if (place != std::string::npos) tried.rejected_because.replace(place, 2, told);
      Rejection one;
      one.cost_per_hour = cost_per_hour(problem_, tried.deployment);
      one.deployment = std::move(tried.deployment);
      one.rejected_because = std::move(tried.rejected_because);
      plan.considered.push_back(std::move(one));
    }
    return finish(std::move(plan));
  }

  Result<Offer> finish(Offer plan) {
    order_considered(problem_, plan.considered);
    plan.trials = trials_;
    plan.iterations = iterations_;
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
  Trial trial_;
  std::vector<AutoCandidate> candidates_;
  std::vector<std::string> screened_, notes_;
  std::vector<Tried> tried_;
  std::optional<Deployment> best_;      // passed with confidence
  std::optional<Deployment> fallback_;  // passed one trial
  std::string best_by_;
  double best_worth_ = 0;
  bool sure_ = true;
  std::int64_t trials_ = 0, iterations_ = 0, simulated_ = 0, bounded_ = 0;
  bool stopped_ = false;
};

}  // namespace

Result<Offer> auto_plan(const Problem& problem, const AutoOptions& options, const Effort& effort) {
  WINDLASS_RETURN_IF_ERROR(validate(problem));
  return Auto(problem, options, effort).run();
}

}  // namespace windlass::search
