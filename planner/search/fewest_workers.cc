// See fewest_workers.h.
#include "planner/search/fewest_workers.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace windlass::search {
namespace {

constexpr double kLeastTrialSeconds = 30;
constexpr double kMostTrialRequests = 40'000;
constexpr int kMostWorkers = 100'000;
constexpr double kGrowth = 1.3;  // of workers, until they hold

double at_least(const sim::TimeSummary& times, double share) {
  if (share > 0.95) return times.p99_s;
  if (share > 0.90) return times.p95_s;
  if (share > 0.50) return times.p90_s;
  return times.p50_s;
}

}  // namespace

std::int64_t trial_requests(const Problem& problem, double requests_per_s) {
  const auto arrivals = static_cast<std::int64_t>(std::ceil(std::min(kMostTrialRequests, requests_per_s * kLeastTrialSeconds)));
  return std::max(problem.requests_per_trial, arrivals);
}

int most_workers(const Problem& problem, int kind) {
  const WorkerKind& of = problem.kinds[static_cast<std::size_t>(kind)];
  const AcceleratorChoice& choice = problem.accelerators[static_cast<std::size_t>(of.accelerator)];
  int most = std::min(kMostWorkers, std::min(choice.gpus, problem.max_gpus) / of.gpus());
  const double price = problem.price_per_hour(of);
  if (price > 0) most = static_cast<int>(std::min<double>(most, std::floor(problem.max_cost_per_hour / price * (1 + 1e-12))));
  return most;
}

Deployment unified(int kind, const sim::EngineOptions& engine, int workers) {
  Deployment deployment;
  PlannedPool pool;
  pool.kind = kind;
  pool.engine = engine;
  pool.workers = workers;
  deployment.pools = {std::move(pool)};
  return deployment;
}

Result<WorkersFound> fewest_workers(const Problem& problem, Deployment deployment, const WorkersAsked& asked) {
  WorkersFound found;
  Trial trial = asked.trial;
  trial.verdict_only = true;
  int fails = asked.least - 1, holds = 0;
  int next = std::clamp(asked.first, asked.least, asked.most);
  while (fails < asked.most && (holds == 0 || holds - fails > 1)) {
    deployment.pools[asked.pool].workers = next;
    WINDLASS_ASSIGN_OR_RETURN(const auto result, try_out(problem, deployment, trial));
    ++found.trials;
    found.iterations += result.iterations;
    const Verdict verdict = judge(problem, result);
    if (verdict.holds) {
      holds = next;
    } else {
      fails = next;
      if (next > found.tried) found.broken = verdict.broken;
    }
    found.tried = std::max(found.tried, next);
    if (holds == 0) {
      next = std::min(asked.most, std::max(next + 1, static_cast<int>(std::ceil(next * kGrowth))));
    } else {
      // The guess is a good one: its neighbour first, then halves.
      next = fails < asked.least && holds == asked.first ? holds - 1 : fails + (holds - fails) / 2;
      next = std::max(next, fails + 1);
    }
  }
  found.workers = holds;
  return found;
}

Prediction predict(const Problem& problem, const sim::ServingResult& result) {
  const Objectives& objectives = problem.objectives;
  const double share = objectives.both ? objectives.attainment : objectives.limits.front().percentile / 100;
  Prediction prediction;
  prediction.ttft_s = at_least(result.ttft, share);
  prediction.tpot_s = at_least(result.tpot, share);
  const auto requests = static_cast<double>(result.requests);
  if (objectives.both) {
    prediction.attainment = result.attainment;
    prediction.attainment_low = wilson_low(result.attainment * requests, requests);
  } else {
    prediction.attainment = prediction.attainment_low = judge(problem, result).holds ? 1 : 0;
  }
  prediction.simulated = true;
  return prediction;
}

Plan plan_of(const Problem& problem, const std::string& strategy, Deployment deployment) {
  Plan plan;
  plan.strategy = strategy;
  plan.cost_per_hour = cost_per_hour(problem, deployment);
  plan.power_watts = power_watts(problem, deployment);
  plan.gpus = gpus_of(problem, deployment);
  plan.deployment = std::move(deployment);
  return plan;
}

std::string worth_text(const Problem& problem, const Deployment& deployment) {
  switch (problem.goal) {
    case Goal::kCost: return fmt::format("costs {:.6g} an hour", cost_per_hour(problem, deployment));
    case Goal::kPower: return fmt::format("takes {:.6g} W", power_watts(problem, deployment));
    case Goal::kThroughput: return fmt::format("takes {} GPUs", gpus_of(problem, deployment));
  }
  return "";
}

void order_considered(const Problem& problem, std::vector<Considered>& considered) {
  std::stable_sort(considered.begin(), considered.end(), [&](const Considered& a, const Considered& b) {
    return std::tuple(worth_of(problem, a.deployment), gpus_of(problem, a.deployment)) <
           std::tuple(worth_of(problem, b.deployment), gpus_of(problem, b.deployment));
  });
  if (considered.size() > kMostConsidered) considered.resize(kMostConsidered);
}

}  // namespace windlass::search
