// What a mix is short of, in words: for mix*.cc alone. Pure.
#pragma once

#include "planner/base/result.h"
#include "planner/strategies/mix/mix.h"

namespace windlass::search {

// Fills Mix::missing, where requests stay unserved: what no kind serves, and what of GPUs and money a mix without budgets takes
// beyond what there is.
[[nodiscard]] Result<void> say_missing(const MixProblem& problem, Mix& mix);

}  // namespace windlass::search
