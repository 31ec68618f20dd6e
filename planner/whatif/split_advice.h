// split_advice: how a ModelService with scaling.strategy Disaggregated should be split, by the strategies for that: DistServe,
// Splitwise and TetriInfer are asked, and the cheapest plan that holds is taken. With strategy Auto, auto_plan.h is asked, too,
// and for the cheapest plan of whole workers for the same load, which says whether to split at all.
//
// They are asked at the spec's assumed workload, with as many GPUs of each class as they like: how many workers there are is
// the policy's to decide, which follows the demand and knows who else needs GPUs. What they say of one worker is what their
// plan serves divided by its workers of that phase; DistServe knows the goodput of one of each. Pure.
#pragma once

#include <span>

#include "planner/base/result.h"
#include "planner/policy/snapshot.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::search {

// `classes`: those with GPUs; how many does not matter. The effort is for each of the strategies. Error: Cancelled, and no
// other: what cannot be planned is an answer that does not hold.
[[nodiscard]] Result<planner::SplitAdvice> split_advice(const planner::Service& service,
                                                        std::span<const planner::AcceleratorState> classes,
                                                        const Effort& effort);

}  // namespace windlass::search
