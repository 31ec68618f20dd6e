// See plan_parts.h.
#include "planner/strategies/core/plan_parts.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/strategies/core/trial.h"
#include "planner/strategies/core/worker_models.h"

namespace windlass::search {

Prediction predict(const Problem& problem, std::span<const sim::ServingResult> runs) {
  const Objectives& objectives = problem.objectives;
  const double percentile = objectives.both ? 100 * objectives.attainment : objectives.limits.front().percentile;
  Prediction prediction;
  prediction.simulated = true;
  double inside = 0, requests = 0;
  bool all_hold = true;
  for (const sim::ServingResult& run : runs) {
    const double share = 1 / static_cast<double>(runs.size());
    prediction.ttft_s += share * at_percentile(run.ttft, percentile);
    prediction.tpot_s += share * at_percentile(run.tpot, percentile);
    inside += run.attainment * static_cast<double>(run.requests);
    requests += static_cast<double>(run.requests);
    all_hold = all_hold && judge(problem, run).holds;
  }
  if (objectives.both) {
    prediction.attainment = inside / requests;
    prediction.attainment_low = wilson_low(inside, requests);
  } else {
    prediction.attainment = prediction.attainment_low = all_hold ? 1 : 0;
  }
  return prediction;
}

void confirm(const Problem& problem, Offer& plan) {
  const double capacity = plan.predicted.capacity_requests_per_s;
  const bool serves_rate = std::exchange(plan.holds, false);
  const auto result = try_out(problem, plan.deployment, {problem.requests_per_s, problem.requests_per_trial, problem.seed});
  if (!result.ok()) {
    plan.missed = fmt::format("not simulated: {}", result.error().message);
    return;
  }
  plan.predicted = predict(problem, std::span(&*result, 1));
  plan.predicted.capacity_requests_per_s = capacity;
  const Verdict verdict = judge(problem, *result);
  if (!serves_rate) {
    plan.missed = fmt::format("serves {:.4g} requests/s, but {:.4g} are required", capacity, problem.requests_per_s);
  } else {
    plan.missed = verdict.broken;
  }
  plan.holds = serves_rate && verdict.holds;
}

namespace {

// The deployment at one end of the workers' times.
struct AtEnd {
  Prediction predicted;
  double capacity_per_s = 0;
};

Result<AtEnd> at_end(const Problem& problem, const Offer& plan, planner::End times) {
  Problem at = problem;
  at.times = times;
  AtEnd end;
  WINDLASS_ASSIGN_OR_RETURN(const auto run,
                            try_out(at, plan.deployment, {problem.requests_per_s, problem.requests_per_trial, problem.seed}));
  end.predicted = predict(at, std::span(&run, 1));
  const bool has_capacity = plan.deployment.chains.empty() && plan.predicted.capacity_requests_per_s > 0;
  if (!has_capacity || times == planner::End::kExpected) return end;
  CapacitySearch search;
  search.requests = problem.requests_per_trial;
  search.seed = problem.seed;
  search.figures = false;
  search.first_guess_per_s = plan.predicted.capacity_requests_per_s;
  WINDLASS_ASSIGN_OR_RETURN(const Capacity capacity, capacity_of(at, plan.deployment, search));
  end.capacity_per_s = capacity.requests_per_s;
  return end;
}

planner::Provenance provenance_of(const Problem& problem, const Deployment& deployment) {
  if (!deployment.chains.empty()) return planner::Provenance::kDataSheet;
  planner::Provenance from = planner::Provenance::kMeasured;
  for (const Pool& pool : deployment.pools) from = std::max(from, kind_of(problem, pool.spec).errors.from);
  return from;
}

}  // namespace

void add_interval(const Problem& problem, Executor& executor, Offer& plan) {
  constexpr std::array kTimes = {planner::End::kShort, planner::End::kExpected, planner::End::kLong};
  Prediction& predicted = plan.predicted;
  if (!predicted.simulated && !(predicted.ttft_s > 0)) return;
  const auto runs =
      parallel_map<Result<AtEnd>>(executor, kTimes.size(), [&](std::size_t i) { return at_end(problem, plan, kTimes[i]); });
  if (!runs.ok() || std::any_of(runs->begin(), runs->end(), [](const auto& run) { return !run.ok(); })) return;
  const AtEnd &shorter = *(*runs)[0], &expected = *(*runs)[1], &longer = *(*runs)[2];
  // The prediction may come from other runs, or from closed forms, so it takes over by how much the runs differ.
  const auto interval_of = [&](const auto& interval, double Prediction::*figure) {
    return interval(predicted.*figure, expected.predicted.*figure, shorter.predicted.*figure, longer.predicted.*figure);
  };
  PredictionInterval interval;
  interval.ttft_s = interval_of(planner::interval_of_time, &Prediction::ttft_s);
  interval.tpot_s = interval_of(planner::interval_of_time, &Prediction::tpot_s);
  interval.attainment = interval_of(planner::interval_of_share, &Prediction::attainment);
  const double capacity = predicted.capacity_requests_per_s;
  if (plan.deployment.chains.empty() && capacity > 0) {
    interval.capacity_requests_per_s = planner::Interval{std::min({capacity, shorter.capacity_per_s, longer.capacity_per_s}),
                                                         std::max({capacity, shorter.capacity_per_s, longer.capacity_per_s})};
  }
  interval.from = provenance_of(problem, plan.deployment);
  predicted.interval = interval;
}

Offer plan_of(const Problem& problem, const std::string& strategy, Deployment deployment) {
  Offer plan;
  plan.strategy = strategy;
  plan.cost_per_hour = cost_per_hour(problem, deployment);
  plan.power_watts = power_watts(problem, deployment);
  plan.gpus = gpus_of(deployment);
  plan.deployment = std::move(deployment);
  return plan;
}

std::string worth_text(const Problem& problem, const Deployment& deployment) {
  switch (problem.goal) {
    case Goal::kCost: return fmt::format("costs {:.6g} per hour", cost_per_hour(problem, deployment));
    case Goal::kPower: return fmt::format("takes {:.6g} W", power_watts(problem, deployment));
    case Goal::kThroughput: return fmt::format("takes {} GPUs", gpus_of(deployment));
  }
  return "";
}

void order_considered(const Problem& problem, std::vector<Rejection>& considered) {
  std::stable_sort(considered.begin(), considered.end(), [&](const Rejection& a, const Rejection& b) {
    return std::tuple(worth_of(problem, a.deployment), gpus_of(a.deployment)) <
           std::tuple(worth_of(problem, b.deployment), gpus_of(b.deployment));
  });
  if (considered.size() > kMaxConsidered) considered.resize(kMaxConsidered);
}

}  // namespace windlass::search
