// Describes which resources a mix lacks. Only for mix*.cc. Pure.
#pragma once

#include "planner/base/result.h"
#include "planner/strategies/mix/mix.h"

namespace windlass::search {

// Fills in Mix::missing if requests stay unserved: what no kind serves, and which GPUs and money an unlimited mix would need
// beyond the budgets.
[[nodiscard]] Result<void> say_missing(const MixProblem& problem, Mix& mix);

}  // namespace windlass::search
