// vidur_plan(): see vidur.h. Finds the cheapest workers that meet the objectives, over Vidur-Search's space.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/plan_parts.h"
#include "planner/strategies/vidur/vidur.h"
#include "planner/strategies/vidur/vidur_space.h"

namespace windlass::search {
namespace {

constexpr int kMaxNearest = 24;  // configurations tried if none is feasible

struct Candidate {
  VidurPoint point;
  int least = 1;  // minimum workers; fewer cannot be feasible
  int guess = 1;
  int room = 1;
  double worth = 0;  // per worker
  WorkersFound found;
  std::optional<Error> error;
};

class VidurPlanning {
 public:
  VidurPlanning(const Problem& problem, const VidurOptions& options, const Effort& effort)
      : problem_(problem),
        options_(options),
        effort_(effort),
        executor_(effort.executor == nullptr ? serial_ : *effort.executor) {
    problem_.objectives.limits.push_back({Metric::kSchedulingDelay, options.scheduling_percentile, options.scheduling_delay_s});
    trial_ = {problem.requests_per_s, trial_requests(problem, problem.requests_per_s), problem.seed, true};
  }

  Result<Offer> run() {
    WINDLASS_RETURN_IF_ERROR(list());
    for (std::size_t begin = 0; begin < candidates_.size() && !stopped_; begin += kVidurRound) {
      if (iterations_ >= effort_.max_iterations || stop_requested(effort_.stop)) {
        stopped_ = true;
        break;
      }
      WINDLASS_RETURN_IF_ERROR(round(begin, std::min(candidates_.size(), begin + kVidurRound)));
      if (effort_.progress) {
        effort_.progress("configurations", static_cast<double>(begin) / static_cast<double>(candidates_.size()));
      }
    }
    if (!best_) return nearest();
    return plan();
  }

 private:
  Result<void> list() {
    const LengthMoments lengths = length_moments(*problem_.requests, problem_.seed, kVidurMomentsOf);
    std::string why = "there are no kinds";
    for (VidurPoint& point : vidur_points(problem_, options_.space, lengths)) {
      if (!point.passed_over.empty()) {
        why = describe(problem_, point) + ": " + point.passed_over;
        continue;
      }
      Candidate candidate;
      const double rate = problem_.requests_per_s, one = point.steady_requests_per_s;
      candidate.room = max_workers(problem_, point.kind);
      const double guess = std::ceil(rate / (one * kVidurGuess)), least = std::ceil(rate / (one * kSteadyRateMargin));
      candidate.guess = static_cast<int>(std::clamp<double>(guess, 1, candidate.room));
      candidate.least = static_cast<int>(std::clamp<double>(least, 1, candidate.room));
      candidate.worth = worth_of_worker(problem_, point.kind);
      candidate.point = std::move(point);
      candidates_.push_back(std::move(candidate));
    }
    if (candidates_.empty())
      return Error{ErrorCode::kNotFound, fmt::format("{}: no configuration can be deployed: {}", problem_.name, why)};
    // Sorted by expected cost; ties: most spare capacity first, because it serves more per dollar.
    std::stable_sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
      const double one = a.guess * a.worth, two = b.guess * b.worth;
      if (one != two) return one < two;
      return a.guess * a.point.steady_requests_per_s > b.guess * b.point.steady_requests_per_s;
    });
    return {};
  }

  // The most workers that still cost less than the best so far.
  [[nodiscard]] int affordable(const Candidate& candidate) const {
    if (!best_) return candidate.room;
    return static_cast<int>(std::min<double>(candidate.room, std::ceil(best_worth_ / candidate.worth * (1 - 1e-12)) - 1));
  }

  Result<void> round(std::size_t begin, std::size_t end) {
    std::vector<std::size_t> asked;
    for (std::size_t i = begin; i < end; ++i) {
      if (affordable(candidates_[i]) >= candidates_[i].least) {
        asked.push_back(i);
      } else {
        bounded_.push_back(i);
      }
    }
    executor_.run(asked.size(), [&](std::size_t at) {
      Candidate& candidate = candidates_[asked[at]];
      const int most = affordable(candidate);
      auto found = fewest_workers(problem_, deployment(candidate, 1),
                                  {0, candidate.least, std::min(candidate.guess, most), most, trial_, effort_.stop});
      if (found.ok()) {
        candidate.found = std::move(found).value();
      } else {
        candidate.error = found.error();
      }
    });
    for (const std::size_t i : asked) {
      const Candidate& candidate = candidates_[i];
      if (candidate.error && candidate.error->code == ErrorCode::kCancelled) {
        stopped_ = true;
        continue;
      }
      if (candidate.error) return *candidate.error;
      trials_ += candidate.found.trials;
      iterations_ += candidate.found.iterations;
      looked_.push_back(i);
    }
    for (const std::size_t i : asked) {
      const Candidate& candidate = candidates_[i];
      const double worth = candidate.found.workers * candidate.worth;
      if (candidate.found.workers == 0 || (best_ && worth >= best_worth_)) continue;
      best_ = i;
      best_worth_ = worth;
    }
    return {};
  }

  [[nodiscard]] Deployment deployment(const Candidate& candidate, int workers) const {
    return unified(problem_, candidate.point.kind, candidate.point.engine, workers);
  }

  Result<Offer> plan() {
    const Candidate& best = candidates_[*best_];
    Offer plan = plan_of(problem_, "vidur", deployment(best, best.found.workers));
    plan.holds = true;
    WINDLASS_ASSIGN_OR_RETURN(const auto result,
                              try_out(problem_, plan.deployment, {trial_.requests_per_s, trial_.requests, trial_.seed}));
    plan.predicted = predict(problem_, {&result, 1});
    CapacitySearch search;
    search.requests = trial_.requests;
    search.seed = trial_.seed;
    search.first_guess_per_s = problem_.requests_per_s * 1.05;
    search.tolerance = options_.tolerance;
    search.figures = false;
    search.stop = effort_.stop;
    plan.predicted.capacity_requests_per_s = problem_.requests_per_s;
    ++trials_;
    iterations_ += result.iterations;
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
    plan.reasons.push_back(fmt::format("{} workers of {} are the best of {} configurations that meets the objectives: it {}",
                                       best.found.workers, describe(problem_, best.point), candidates_.size(),
                                       worth_text(problem_, plan.deployment)));
    plan.reasons.push_back(
        fmt::format("{} of them were simulated; {} cannot be better by their steady rates", looked_.size(), bounded_.size()));
    for (const std::size_t i : looked_) {
      if (i != *best_) plan.considered.push_back(considered(candidates_[i], plan));
    }
    return finish(std::move(plan));
  }

  [[nodiscard]] Rejection considered(const Candidate& candidate, const Offer& plan) const {
    Rejection one;
    const bool held = candidate.found.workers > 0;
    one.deployment = deployment(candidate, std::max(1, held ? candidate.found.workers : candidate.found.tried));
    one.cost_per_hour = cost_per_hour(problem_, one.deployment);
    one.rejected_because =
        held ? fmt::format("{}: {}, the plan {}", describe(problem_, candidate.point), worth_text(problem_, one.deployment),
                           worth_text(problem_, plan.deployment))
             : fmt::format("{}: with {} workers, the most that cost less than the plan: {}",
                           describe(problem_, candidate.point), candidate.found.tried, candidate.found.broken);
    return one;
  }

  Result<Offer> finish(Offer plan) {
    order_considered(problem_, plan.considered);
    plan.trials = trials_;
    plan.iterations = iterations_;
    plan.stopped = stopped_;
    return plan;
  }

  // Nothing is feasible: among the configurations expected to be best, each with as many workers as help, returns the one that
  // misses by least.
  Result<Offer> nearest() {
    if (stopped_ && looked_.empty()) return Error{ErrorCode::kCancelled, "stopped before a configuration was tried"};
    std::vector<std::size_t> tried = looked_;
    if (tried.size() > kMaxNearest) tried.resize(kMaxNearest);
    std::vector<std::optional<sim::ServingResult>> results(tried.size());
    const auto with_room = [&](const Candidate& candidate) {
      return deployment(candidate, std::max(1, std::min(candidate.room, 2 * candidate.guess)));
    };
    executor_.run(tried.size(), [&](std::size_t at) {
      auto result = try_out(problem_, with_room(candidates_[tried[at]]), {trial_.requests_per_s, trial_.requests, trial_.seed});
      if (result.ok()) results[at] = std::move(result).value();
    });
    std::optional<Offer> best;
    double least = std::numeric_limits<double>::infinity();
    std::vector<Rejection> others;
    for (std::size_t at = 0; at < tried.size(); ++at) {
      if (!results[at]) continue;
      ++trials_;
      iterations_ += results[at]->iterations;
      const Verdict verdict = judge(problem_, *results[at]);
      Offer plan = plan_of(problem_, "vidur", with_room(candidates_[tried[at]]));
      plan.predicted = predict(problem_, {&*results[at], 1});
      others.push_back({plan.deployment, plan.cost_per_hour, plan.predicted, verdict.broken});
      if (best && verdict.worst >= least) continue;
      least = verdict.worst;
      plan.holds = verdict.holds;
      plan.reasons = {fmt::format("no configuration meets the objectives; this one comes closest: {}", verdict.broken)};
      best = std::move(plan);
    }
    if (!best) return Error{ErrorCode::kNotFound, fmt::format("{}: no configuration could be simulated", problem_.name)};
    best->considered = std::move(others);
    return finish(std::move(*best));
  }

  Problem problem_;
  const VidurOptions& options_;
  const Effort& effort_;
  SerialExecutor serial_;
  Executor& executor_;
  Trial trial_;
  std::vector<Candidate> candidates_;
  std::vector<std::size_t> looked_, bounded_;
  std::optional<std::size_t> best_;
  double best_worth_ = 0;
  std::int64_t trials_ = 0, iterations_ = 0;
  bool stopped_ = false;
};

}  // namespace

Result<Offer> vidur_plan(const Problem& problem, const VidurOptions& options, const Effort& effort) {
  WINDLASS_RETURN_IF_ERROR(validate(options));
  WINDLASS_RETURN_IF_ERROR(validate(problem));
  Problem delayed = problem;
  delayed.objectives.limits.push_back({Metric::kSchedulingDelay, options.scheduling_percentile, options.scheduling_delay_s});
  WINDLASS_RETURN_IF_ERROR(validate(delayed));
  return VidurPlanning(problem, options, effort).run();
}

Result<Offer> vidur_plan(const Problem& problem, const Effort& effort) { return vidur_plan(problem, VidurOptions{}, effort); }

}  // namespace windlass::search
