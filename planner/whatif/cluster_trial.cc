// See cluster_trial.h.
#include "planner/whatif/cluster_trial.h"

#include <span>
#include <utility>

#include <fmt/format.h>

#include "planner/strategies/core/plan_parts.h"
#include "planner/whatif/placed_service.h"

namespace windlass::hetero {

Result<sim::ServingResult> try_out(const ClusterProblem& problem, const ClusterPlan& plan, const search::Trial& trial) {
  WINDLASS_ASSIGN_OR_RETURN(PlacedService placed, to_serving(problem, plan));
  sim::ServingOptions options;
  static_cast<sim::ServingService&>(options) = std::move(placed.service);
  options.seed = trial.seed;
  const auto source = problem.search->requests->source(trial.seed, trial.requests_per_s, trial.requests);
  return sim::simulate_serving(*source, options);
}

ClusterTrial trial_of(const ClusterProblem& problem, const ClusterPlan& plan) {
  const search::Problem& search = *problem.search;
  ClusterTrial trial;
  const auto result = try_out(problem, plan, {search.requests_per_s, search.requests_per_trial, search.seed});
  if (!result.ok()) {
    trial.missed = fmt::format("not simulated: {}", result.error().message);
    trial.predicted.capacity_requests_per_s = plan.capacity_requests_per_s;
    return trial;
  }
  trial.predicted = search::predict(search, std::span(&*result, 1));
  trial.predicted.capacity_requests_per_s = plan.capacity_requests_per_s;
  const search::Verdict verdict = search::judge(search, *result);
  if (!plan.holds) {
    trial.missed =
        fmt::format("serves {:.4g} requests/s, asked are {:.4g}", plan.capacity_requests_per_s, search.requests_per_s);
  } else if (!verdict.holds) {
    trial.missed = verdict.broken;
  }
  trial.meets_objectives = plan.holds && verdict.holds;
  return trial;
}

}  // namespace windlass::hetero
