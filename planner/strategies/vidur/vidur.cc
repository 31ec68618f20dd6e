// vidur_search(): see vidur.h.
#include "planner/strategies/vidur/vidur.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/trial.h"
#include "planner/strategies/vidur/vidur_space.h"

namespace windlass::search {
namespace {

constexpr double kLeastRequests = 300;   // minimum per trial
constexpr double kMaxRequests = 40'000;  // maximum per trial
constexpr double kReplicasMargin = 0.1;  // allowance: one replica's capacity may misjudge that of several replicas by this
constexpr double kReplicated = 1.02;     // allowance: replicas together may serve more than the same number alone by this
                                         // factor

class SpaceSearch {
 public:
  SpaceSearch(const Problem& problem, const VidurOptions& options, const Effort& effort)
      : asked_(problem),
        problem_(problem),
        options_(options),
        effort_(effort),
        executor_(effort.executor == nullptr ? serial_ : *effort.executor) {
    if (options.limits == VidurLimits::kAtCapacity) {
      problem_.objectives.both.reset();
      problem_.objectives.limits.clear();
    }
    problem_.objectives.limits.push_back({Metric::kSchedulingDelay, options.scheduling_percentile, options.scheduling_delay_s});
  }

  Result<VidurFound> run() {
    found_.points = vidur_points(problem_, options_.space, length_moments(*problem_.requests, problem_.seed, kVidurMomentsOf));
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < found_.points.size(); ++i) {
      if (found_.points[i].passed_over.empty()) order.push_back(i);
    }
    if (order.empty()) {
      return Error{ErrorCode::kNotFound, fmt::format("{}: no configuration has room: {}", problem_.name,
                                                     found_.points.empty() ? "no kinds" : found_.points.front().passed_over)};
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return steady_worth(a) > steady_worth(b); });
    WINDLASS_RETURN_IF_ERROR(look_at(order, 1 - kReplicasMargin, false));
    choose();
    WINDLASS_RETURN_IF_ERROR(replicate());
    return std::move(found_);
  }

 private:
  struct Looked {
    Capacity capacity;
    std::int64_t trial_requests = 0;
    bool meets = false;
    std::optional<Error> error;
  };

  [[nodiscard]] double worth(const VidurPoint& point) const { return worth_of_worker(problem_, point.kind); }
  [[nodiscard]] double steady_worth(std::size_t i) const {
    return found_.points[i].steady_requests_per_s / worth(found_.points[i]);
  }
  [[nodiscard]] double best_worth() const {
    return found_.best < 0 ? 0 : found_.points[static_cast<std::size_t>(found_.best)].per_worth;
  }
  [[nodiscard]] int replicas_of(const VidurPoint& point) const {
    const auto& choice =
        problem_.accelerators[static_cast<std::size_t>(problem_.kinds[static_cast<std::size_t>(point.kind)].accelerator)];
    const bool bounded =
        std::min(choice.gpus, problem_.max_gpus) < std::numeric_limits<int>::max() || std::isfinite(problem_.max_cost_per_hour);
    return bounded ? max_workers(problem_, point.kind) : 1;
  }

  // Rates at most `above` need not be distinguished.
  [[nodiscard]] Looked look(const VidurPoint& point, int replicas, double guess, double above) const {
    CapacitySearch search;
    search.requests = static_cast<std::int64_t>(
        std::clamp(std::ceil(point.steady_requests_per_s * replicas * options_.arrivals_s), kLeastRequests, kMaxRequests));
    search.seed = problem_.seed;
    search.first_guess_per_s = guess;
    search.only_above_per_s = above;
    search.tolerance = options_.tolerance;
    search.stop = effort_.stop;
    Looked looked;
    auto capacity = capacity_of(problem_, unified(problem_, point.kind, point.engine, replicas), search);
    if (!capacity.ok()) {
      looked.error = capacity.error();
      return looked;
    }
    looked.capacity = std::move(capacity).value();
    looked.trial_requests = search.requests;
    looked.meets = looked.capacity.requests_per_s > 0 && judge(asked_, looked.capacity.at).holds;
    return looked;
  }

  // Chooses the best among points with known capacities.
  void choose() {
    found_.best = -1;
    for (std::size_t i = 0; i < found_.points.size(); ++i) {
      if (found_.points[i].meets && found_.points[i].per_worth > best_worth()) found_.best = static_cast<int>(i);
    }
  }

  // Determines capacities in rounds. Skips a configuration if it cannot exceed `share` of the best one.
  [[nodiscard]] Result<void> look_at(const std::vector<std::size_t>& order, double share, bool replicas) {
    for (std::size_t begin = 0; begin < order.size(); begin += kVidurRound) {
      if (found_.iterations >= effort_.max_iterations || stop_requested(effort_.stop)) {
        found_.stopped = true;
        return begin == 0 && !replicas ? Result<void>(Error{ErrorCode::kCancelled, "stopped before a capacity was found"})
                                       : Result<void>{};
      }
      const double floor = options_.every_capacity && !replicas ? 0 : best_worth() * share;
      std::vector<std::size_t> round;
      for (std::size_t at = begin; at < std::min(order.size(), begin + kVidurRound); ++at) {
        VidurPoint& point = found_.points[order[at]];
        if (!replicas && steady_worth(order[at]) * kSteadyRateMargin <= floor) {
          point.passed_over =
              fmt::format("its steady rate of {:.3g} requests/s is too low to win", point.steady_requests_per_s);
        } else {
          round.push_back(order[at]);
        }
      }
      std::vector<Looked> looked(round.size());
      executor_.run(round.size(), [&](std::size_t at) {
        const VidurPoint& point = found_.points[round[at]];
        const int count = replicas ? replicas_of(point) : 1;
        const double alone = replicas ? point.requests_per_s * kReplicated : point.steady_requests_per_s * kVidurGuess;
        looked[at] = look(point, count, alone * count, floor * worth(point) * count);
      });
      for (std::size_t at = 0; at < round.size(); ++at) {
        if (looked[at].error) {
          if (looked[at].error->code != ErrorCode::kCancelled) return *looked[at].error;
          found_.stopped = true;
          continue;
        }
        found_.trials += looked[at].capacity.trials;
        found_.iterations += looked[at].capacity.iterations;
        keep(found_.points[round[at]], looked[at], replicas ? replicas_of(found_.points[round[at]]) : 1);
      }
      if (!replicas) choose();
      if (effort_.progress) {
        effort_.progress(replicas ? "replicas" : "configurations",
                         static_cast<double>(begin + round.size()) / static_cast<double>(order.size()));
      }
      if (found_.stopped) return {};
    }
    return {};
  }

  void keep(VidurPoint& point, const Looked& looked, int replicas) {
    const Capacity& capacity = looked.capacity;
    if (capacity.requests_per_s <= 0) {
      if (replicas == 1)
        point.passed_over =
            best_worth() > 0 ? "it serves fewer requests per cost than the best" : "it meets the limits at no rate";
      if (replicas > 1) point.meets = false;  // one replica gave a wrong estimate
      return;
    }
    point.replicas = replicas;
    point.requests_per_s = capacity.requests_per_s;
    point.trial_requests = looked.trial_requests;
    point.per_worth = capacity.requests_per_s / (worth(point) * replicas);
    point.ttft_p90_s = capacity.at.ttft.p90_s;
    point.tbt_p99_s = capacity.at.tpot.p99_s;
    point.meets = looked.meets;
  }

  // Simulates the leading candidates with all their replicas behind one dispatcher.
  [[nodiscard]] Result<void> replicate() {
    if (found_.best < 0 || found_.stopped) return {};
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < found_.points.size(); ++i) {
      const VidurPoint& point = found_.points[i];
      if (point.meets && point.per_worth >= best_worth() * (1 - kReplicasMargin) && replicas_of(point) > 1) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return found_.points[a].per_worth > found_.points[b].per_worth; });
    WINDLASS_RETURN_IF_ERROR(look_at(order, 1 - kReplicasMargin, true));
    choose();
    return {};
  }

  const Problem& asked_;
  Problem problem_;
  const VidurOptions& options_;
  const Effort& effort_;
  SerialExecutor serial_;
  Executor& executor_;
  VidurFound found_;
};

}  // namespace

Result<VidurFound> vidur_search(const Problem& problem, const VidurOptions& options, const Effort& effort) {
  WINDLASS_RETURN_IF_ERROR(validate(options));
  Problem asked = problem;
  asked.requests_per_s = 1;  // any rate
  WINDLASS_RETURN_IF_ERROR(validate(asked));
  // The scheduling delay is an additional limit: its percentile is checked like the problem's.
  asked.objectives.limits.push_back({Metric::kSchedulingDelay, options.scheduling_percentile, options.scheduling_delay_s});
  WINDLASS_RETURN_IF_ERROR(validate(asked));
  return SpaceSearch(problem, options, effort).run();
}

}  // namespace windlass::search
