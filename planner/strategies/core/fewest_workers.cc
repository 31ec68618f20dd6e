// See fewest_workers.h.
#include "planner/strategies/core/fewest_workers.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace windlass::search {
namespace {

constexpr double kLeastTrialSeconds = 30;
constexpr double kMaxTrialRequests = 40'000;
constexpr double kWorkersGrowth = 1.3;  // growth factor of workers until they are feasible

}  // namespace

std::int64_t trial_requests(const Problem& problem, double requests_per_s) {
  const auto arrivals = static_cast<std::int64_t>(std::ceil(std::min(kMaxTrialRequests, requests_per_s * kLeastTrialSeconds)));
  return std::max(problem.requests_per_trial, arrivals);
}

int max_workers(const Problem& problem, int kind) {
  const WorkerKind& of = problem.kinds[static_cast<std::size_t>(kind)];
  const AcceleratorChoice& choice = problem.accelerators[static_cast<std::size_t>(of.accelerator)];
  int most = std::min(kMaxWorkers, std::min(choice.gpus, problem.max_gpus) / of.gpus());
  const double price = problem.price_per_hour(of);
  if (price > 0) most = static_cast<int>(std::min<double>(most, std::floor(problem.max_cost_per_hour / price * (1 + 1e-12))));
  return most;
}

Deployment unified(const Problem& problem, int kind, const planner::EngineSettings& engine, int workers) {
  Deployment deployment;
  deployment.pools = {problem.pool(kind, dispatch::Role::kUnified, workers)};
  deployment.pools.front().spec.engine = engine;
  return deployment;
}

double worth_of_worker(const Problem& problem, int kind) {
  constexpr double kFree = 1e-9;  // assumed cost of a worker without a price
  return std::max(kFree, worth_of(problem, unified(problem, kind, problem.engine, 1)));
}

Result<WorkersFound> fewest_workers(const Problem& problem, Deployment deployment, const WorkersAsked& asked) {
  WorkersFound found;
  Trial trial = asked.trial;
  trial.verdict_only = true;
  const int most = static_cast<int>(std::min<std::int64_t>(asked.most, std::max<std::int64_t>(asked.least, trial.requests)));
  int fails = asked.least - 1, holds = 0;
  int next = std::clamp(asked.first, asked.least, most);
  while (fails < most && (holds == 0 || holds - fails > 1)) {
    if (stop_requested(asked.stop)) return Error{ErrorCode::kCancelled, "stopped before the fewest workers were found"};
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
      next = std::min(most, std::max(next + 1, static_cast<int>(std::ceil(next * kWorkersGrowth))));
    } else {
      // The guess is usually close: try its neighbour first, then bisect.
      next = fails < asked.least && holds == asked.first ? holds - 1 : fails + (holds - fails) / 2;
      next = std::max(next, fails + 1);
    }
  }
  found.workers = holds;
  return found;
}

}  // namespace windlass::search
