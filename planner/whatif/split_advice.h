// split_advice recommends how to split the phases of a ModelService with scaling.strategy Disaggregated. It runs the strategies
// DistServe, Splitwise and TetriInfer and takes the cheapest feasible plan.
//
// With strategy Auto it also runs auto_plan.h twice. The first run is another candidate for the cheapest plan. The second finds
// the cheapest plan of whole workers for the same load; the comparison with it decides whether to split at all.
//
// The strategies plan for the spec's assumed workload with unlimited GPUs of each class. The policy decides the number of
// workers, because it follows demand and knows who else needs GPUs. The rate of one worker is what the plan serves divided by
// its workers of that phase; DistServe gives the goodput of each directly. Pure.
#pragma once

#include <span>

#include "planner/base/result.h"
#include "planner/policy/snapshot.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::search {

// `classes`: those with GPUs; the number does not matter. The effort is per strategy. The only error is Cancelled: if no plan
// is possible, the answer says that no split holds.
[[nodiscard]] Result<planner::SplitAdvice> split_advice(const planner::Service& service,
                                                        std::span<const planner::AcceleratorState> classes,
                                                        const Effort& effort);

}  // namespace windlass::search
