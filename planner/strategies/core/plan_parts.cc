// See plan_parts.h.
#include "planner/strategies/core/plan_parts.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/strategies/core/trial.h"

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
