// auto_replan(): see auto_plan.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "planner/strategies/auto/auto_plan.h"
#include "planner/strategies/core/auto_candidates.h"
#include "planner/strategies/core/deployment.h"
#include "planner/strategies/core/worker_models.h"

namespace windlass::search {
namespace {

constexpr std::int64_t kReplanMomentsOf = 500;  // fewer than for a plan, because it may run for a thousand services
constexpr double kMargin = 0.02;                // of a capacity: its own tolerance

// Rate of a deployment by the closed forms: the minimum over its roles.
double steady_of(const Problem& problem, const Deployment& deployment, const LengthMoments& lengths) {
  const LatencyBounds bounds = latency_bounds(problem.objectives);
  double whole = 0, prompts = 0, decodes = 0;
  for (const Pool& pool : deployment.pools) {
    const WorkerKind& kind = kind_of(problem, pool.spec);
    switch (pool.role) {
      case dispatch::Role::kUnified:
        whole += pool.workers * steady_state(kind, pool.spec.engine, lengths, bounds.tpot_s).requests_per_s;
        break;
      case dispatch::Role::kPrefill: {
        const planner::Batch prompt{1, lengths.input_tokens, lengths.input_square, 0, 0};
        prompts += pool.workers * kind.pipeline_stages / kind.model->iteration_s(prompt);
        break;
      }
      case dispatch::Role::kDecode:
        decodes +=
            pool.workers * steady_state(kind, pool.spec.engine, lengths, bounds.tpot_s, SteadyPart::kDecode).requests_per_s;
        break;
    }
  }
  return whole > 0 ? whole : std::min(prompts, decodes);
}

// Cost of the cheapest deployment by the closed forms, in fractional workers: whole workers would jump although nothing
// changed.
double closed_worth(const Problem& problem, const LengthMoments& lengths, double requests_per_s) {
  double least = std::numeric_limits<double>::infinity();
  for (const AutoCandidate& of : auto_candidates(problem, lengths, requests_per_s).candidates) {
    const double share = of.steady_requests_per_s > 0 ? requests_per_s / of.steady_requests_per_s : 1;
    least = std::min(least, of.worth(of.guess) * std::min(1.0, share));
  }
  return least;
}

}  // namespace

AutoMemory remember(const Problem& problem, Offer plan) {
  AutoMemory memory;
  memory.lengths = length_moments(*problem.requests, problem.seed, kReplanMomentsOf);
  memory.requests_per_s = problem.requests_per_s;
  memory.closed_worth = closed_worth(problem, memory.lengths, problem.requests_per_s);
  memory.steady_per_s = steady_of(problem, plan.deployment, memory.lengths);
  memory.plan = std::move(plan);
  return memory;
}

Result<AutoReplan> auto_replan(const Problem& problem, const AutoMemory& last, const AutoOptions& options, const Effort& effort,
                               double tolerance) {
  if (!(tolerance >= 0)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("tolerance: must be at least 0 (got {})", tolerance)};
  }
  WINDLASS_RETURN_IF_ERROR(validate(problem));
  for (const Pool& pool : last.plan.deployment.pools) {
    if (find_kind(problem, pool.spec) == nullptr) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("{}: last plan: workers: must be of the problem's kinds (got {})",
                                                            problem.name, worker_text(pool.spec))};
    }
  }
  AutoReplan replan;
  const Deployment& deployment = last.plan.deployment;
  const LengthMoments lengths = length_moments(*problem.requests, problem.seed, kReplanMomentsOf);
  const double steady = steady_of(problem, deployment, lengths);
  const double factor = last.steady_per_s > 0 ? steady / last.steady_per_s : 0;
  const double capacity = last.plan.predicted.capacity_requests_per_s * factor * (1 - kMargin);
  // The cheapest cost moves with the closed forms' cheapest. If the last plan exceeds that by more than the tolerance, and by
  // at least one worker, search for something cheaper.
  const double closed = closed_worth(problem, lengths, problem.requests_per_s);
  const double worth = worth_of(problem, deployment);
  double least_worker = std::numeric_limits<double>::infinity();
  for (const Pool& pool : deployment.pools) {
    Deployment one;
    one.pools = {pool};
    one.pools.front().workers = 1;
    least_worker = std::min(least_worker, worth_of(problem, one));
  }
  const double expected = last.closed_worth > 0 ? worth * closed / last.closed_worth : worth;
  const auto room = check_room(problem, deployment);
  const bool same = problem.requests_per_s == last.requests_per_s && factor == 1;
  if (!last.plan.holds) {
    replan.reason = "the last plan did not meet the objectives";
  } else if (!room.ok()) {
    replan.reason = room.error().message;
  } else if (!same && problem.requests_per_s > capacity) {
    replan.reason =
        fmt::format("the rate of {:.4g}/s is above the last plan's capacity of {:.4g}/s", problem.requests_per_s, capacity);
  } else if (expected < worth * (1 - tolerance) && expected <= worth - least_worker) {
    replan.reason = fmt::format("{:.4g} is expected to be enough, and the last plan takes {:.4g}", expected, worth);
  } else {
    replan.kept = true;
    replan.reason =
        fmt::format("the last plan's capacity of {:.4g}/s is enough, and nothing is expected to be cheaper by {:.3g} %",
                    capacity, 100 * tolerance);
    replan.memory = last;
    return replan;
  }
  AutoOptions warm = options;
  if (room.ok()) warm.incumbent = deployment;
  WINDLASS_ASSIGN_OR_RETURN(auto plan, auto_plan(problem, warm, effort));
  replan.memory = remember(problem, std::move(plan));
  return replan;
}

}  // namespace windlass::search
