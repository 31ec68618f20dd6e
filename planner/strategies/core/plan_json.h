// Converts a strategy's plan to JSON, as `windlass plan` prints it. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::search {

// Null for figures that were not predicted.
[[nodiscard]] nlohmann::ordered_json to_json(const Prediction& predicted);
[[nodiscard]] nlohmann::ordered_json to_json(const Problem& problem, const Offer& plan, double wall_s);

}  // namespace windlass::search
