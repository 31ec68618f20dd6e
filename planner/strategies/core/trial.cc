// See trial.h.
#include "planner/strategies/core/trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

namespace windlass::search {
namespace {

constexpr double kFirstStride = 0.08;  // relative step from a guess to the next rate
constexpr double kOnGrid = 1e-9;       // rates this close to a grid point are that point

double figure(const sim::ServingResult& result, const Limit& limit) {
  const auto slowdown = [&](sim::TimeSummary sim::ServingResult::Slowdown::*member) {
    return result.slowdown ? at_percentile(*result.slowdown.*member, limit.percentile)
                           : std::numeric_limits<double>::infinity();
  };
  switch (limit.metric) {
    case Metric::kTtft: return at_percentile(result.ttft, limit.percentile);
    case Metric::kTpot: return at_percentile(result.tpot, limit.percentile);
    case Metric::kE2e: return at_percentile(result.e2e, limit.percentile);
    case Metric::kSchedulingDelay: return at_percentile(result.scheduling_delay, limit.percentile);
    case Metric::kTtftSlowdown: return slowdown(&sim::ServingResult::Slowdown::ttft);
    case Metric::kTbtSlowdown: return slowdown(&sim::ServingResult::Slowdown::tbt);
    case Metric::kE2eSlowdown: return slowdown(&sim::ServingResult::Slowdown::e2e);
  }
  return 0;
}

// Share of requests that miss the objectives, relative to the allowed share.
double misses(const Objectives& objectives, const sim::ServingResult& result) {
  return (1 - result.attainment) / (1 - objectives.attainment);
}

sim::Figure figure_of(Metric metric) {
  switch (metric) {
    case Metric::kTtft: return sim::Figure::kTtft;
    case Metric::kTpot: return sim::Figure::kTpot;
    case Metric::kE2e: return sim::Figure::kE2e;
    case Metric::kSchedulingDelay: return sim::Figure::kSchedulingDelay;
    case Metric::kTtftSlowdown: return sim::Figure::kTtftSlowdown;
    case Metric::kTbtSlowdown: return sim::Figure::kTbtSlowdown;
    case Metric::kE2eSlowdown: return sim::Figure::kE2eSlowdown;
  }
  return sim::Figure::kTtft;
}

// The criteria of judge().
sim::VerdictOnly judged_by(const Objectives& objectives, std::int64_t requests) {
  sim::VerdictOnly verdict;
  verdict.requests = requests;
  if (objectives.both) verdict.attainment = objectives.attainment;
  for (const Limit& limit : objectives.limits)
    verdict.limits.push_back({figure_of(limit.metric), limit.percentile / 100, limit.most});
  return verdict;
}

}  // namespace

Result<sim::ServingResult> try_out(const Problem& problem, const Deployment& deployment, const Trial& trial) {
  WINDLASS_ASSIGN_OR_RETURN(Served served, serving_service(problem, deployment));
  sim::ServingOptions options;
  static_cast<sim::ServingService&>(options) = std::move(served.service);
  options.seed = trial.seed;
  if (trial.verdict_only) options.verdict_only = judged_by(problem.objectives, trial.requests);
  const auto source = problem.requests->source(trial.seed, trial.requests_per_s, trial.requests);
  return sim::simulate_serving(*source, options);
}

Verdict judge(const Problem& problem, const sim::ServingResult& result) {
  constexpr double kAsAllowed = 1 + 1e-9;  // the exact attainment, with room for rounding
  Verdict verdict;
  if (result.early == sim::EarlyVerdict::kHolds) return {true, 1, ""};
  const std::int64_t lost = result.refused + result.failed;
  if (lost > 0 || result.completed == 0) {
    verdict.worst = std::numeric_limits<double>::infinity();
    verdict.broken = lost == 0 ? std::string("no request was served")
                               : fmt::format("{} of {} requests did not fit on any worker or were lost", lost, result.requests);
    return verdict;
  }
  if (result.early == sim::EarlyVerdict::kBroken) {
    return {false, std::numeric_limits<double>::infinity(), "too many requests miss the objectives"};
  }
  const Objectives& objectives = problem.objectives;
  const auto worsen = [&](double share, const auto& text) {
    if (share <= verdict.worst) return;
    verdict.worst = share;
    if (share > kAsAllowed) verdict.broken = text();
  };
  if (objectives.both) {
    worsen(misses(objectives, result), [&] {
      return fmt::format("{:.2f}% of the requests meet the objectives, {:.6g}% are required", 100 * result.attainment,
                         100 * objectives.attainment);
    });
  }
  for (const Limit& limit : objectives.limits) {
    const double found = figure(result, limit);
    worsen(found / limit.most, [&] {
      const char* unit = is_slowdown(limit.metric) ? "x" : " s";
      return fmt::format("{} P{:.0f} is {:.4g}{}, above the limit of {:.4g}{}", to_string(limit.metric), limit.percentile,
                         found, unit, limit.most, unit);
    });
  }
  verdict.holds = verdict.worst <= kAsAllowed;
  return verdict;
}

double at_percentile(const sim::TimeSummary& times, double percentile) {
  constexpr double kRounding = 1e-9;  // in 100 times a share
  if (percentile > 95 + kRounding) return times.p99_s;
  if (percentile > 90 + kRounding) return times.p95_s;
  return percentile > 50 + kRounding ? times.p90_s : times.p50_s;
}

double wilson_low(double successes, double trials) {
  if (!(trials > 0)) return 0;
  constexpr double kZ = 1.959963984540054;
  const double share = successes / trials, z2 = kZ * kZ / trials;
  const double low = (share + z2 / 2 - kZ * std::sqrt(share * (1 - share) / trials + z2 / (4 * trials))) / (1 + z2);
  return std::max(0.0, low);
}

Result<Capacity> capacity_of(const Problem& problem, const Deployment& deployment, const CapacitySearch& search) {
  Capacity capacity;
  const auto found = [&]() -> Result<Capacity> {
    if (search.figures && capacity.at.early != sim::EarlyVerdict::kNone) {
      WINDLASS_ASSIGN_OR_RETURN(capacity.at,
                                try_out(problem, deployment, {capacity.requests_per_s, search.requests, search.seed}));
      ++capacity.trials;
      capacity.iterations += capacity.at.iterations;
    }
    return std::move(capacity);
  };
  const auto passes_at = [&](double rate) -> Result<bool> {
    if (stop_requested(search.stop)) return Error{ErrorCode::kCancelled, "stopped before the capacity was found"};
    WINDLASS_ASSIGN_OR_RETURN(auto result, try_out(problem, deployment, {rate, search.requests, search.seed, !search.passes}));
    ++capacity.trials;
    capacity.iterations += result.iterations;
    const bool passes = search.passes ? search.passes(result) : judge(problem, result).holds;
    if (passes && rate > capacity.requests_per_s) {
      capacity.requests_per_s = rate;
      capacity.at = std::move(result);
    }
    return passes;
  };
  const double step = std::log1p(search.tolerance);
  const auto place_of = [step](double rate) { return std::log(rate) / step; };
  const auto passes_in = [&](std::int64_t place) { return passes_at(std::exp(static_cast<double>(place) * step)); };
  const auto least = static_cast<std::int64_t>(std::ceil(place_of(search.least_per_s)));
  const auto most = static_cast<std::int64_t>(std::floor(place_of(search.max_per_s)));
  std::int64_t passed = least - 1, failed = most + 1;
  if (search.only_above_per_s > search.least_per_s) {
    const auto above = static_cast<std::int64_t>(std::floor(place_of(search.only_above_per_s) + kOnGrid)) + 1;
    if (above > most) return found();
    WINDLASS_ASSIGN_OR_RETURN(const bool passes, passes_in(above));
    if (!passes) return found();
    passed = above;
  }
  const double guess = std::min(std::max(search.first_guess_per_s, search.least_per_s), search.max_per_s);
  std::int64_t place = std::llround(place_of(guess)), stride = std::llround(kFirstStride / step) + 1;
  while (failed - passed > 1) {
    place = std::clamp(place, passed + 1, failed - 1);
    WINDLASS_ASSIGN_OR_RETURN(const bool passes, passes_in(place));
    (passes ? passed : failed) = place;
    if (failed == most + 1 || passed == least - 1) {  // one side is open
      place += passes ? stride : -stride;
      stride *= 2;
    } else {
      place = passed + (failed - passed) / 2;
    }
  }
  return found();
}

}  // namespace windlass::search
