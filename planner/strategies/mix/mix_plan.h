// mix: unified workers of several kinds, as many of each as serve the requests of every size at the least cost.
//
// The cheapest mix (mix.h) of what each size takes of each kind (mix_capacity.h) says how many; the simulator says for which
// rate the mix has to be asked, since closed forms know no queues: the rate is raised until its mix holds and lowered until it
// does not, then workers go one by one while the rest holds. Requests go to the kind on which their size is comparatively cheap
// (planner/dispatch/by_size.h). docs/algorithms/mix.md. Pure.
#pragma once

#include "planner/base/result.h"
#include "planner/strategies/core/strategy.h"
#include "planner/strategies/mix/mix.h"
#include "planner/strategies/mix/mix_capacity.h"

namespace windlass::search {

struct MixPlanOptions {
  MixQuestionOptions question;
  MixHeuristicOptions heuristic = {400, 4, 2'000};
  double first_rate = 1.1;  // of the problem's: what the mix is asked for at first
  double tolerance = 0.03;  // of the rate that the mix is asked for, relative
};

// Errors beside those of a Strategy: kNotFound when no kind serves any size, or when there is no room for a worker.
[[nodiscard]] Result<Offer> mix_plan(const Problem& problem, const MixPlanOptions& options, const Effort& effort);
[[nodiscard]] inline Result<Offer> mix_plan(const Problem& problem, const Effort& effort) {
  return mix_plan(problem, {}, effort);
}

}  // namespace windlass::search
