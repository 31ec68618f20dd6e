// mix: unified workers of several kinds, in the numbers that serve requests of every size at the least cost.
//
// The numbers of workers are those of the cheapest mix (mix.h), computed from the time that each size takes on each kind
// (mix_capacity.h). These closed forms ignore queues, so a mix computed for the problem's own rate may be wrong. The
// simulator finds the rate to compute it for: the rate is raised until its mix is feasible and lowered until it is not. Then
// workers are removed one by one while the rest stays feasible.
//
// Each request goes to the kind on which its size is relatively cheap (planner/dispatch/by_size.h). See docs/algorithms/mix.md.
// Pure.
#pragma once

#include "planner/base/result.h"
#include "planner/strategies/core/strategy.h"
#include "planner/strategies/mix/mix.h"
#include "planner/strategies/mix/mix_capacity.h"

namespace windlass::search {

struct MixPlanOptions {
  MixQuestionOptions question;
  MixHeuristicOptions heuristic = {400, 4, 2'000};
  double first_rate = 1.1;  // first rate of the mix, as a multiple of the problem's
  double tolerance = 0.03;  // relative tolerance of that rate
};

// Errors besides those of Strategy: kNotFound if no kind serves any size, or there is no room for a worker.
[[nodiscard]] Result<Offer> mix_plan(const Problem& problem, const MixPlanOptions& options, const Effort& effort);
[[nodiscard]] inline Result<Offer> mix_plan(const Problem& problem, const Effort& effort) {
  return mix_plan(problem, {}, effort);
}

}  // namespace windlass::search
