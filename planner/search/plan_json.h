// A strategy's plan as JSON, as `windlass plan` prints it. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "planner/search/problem.h"
#include "planner/search/strategy.h"

namespace windlass::search {

// Null for what nobody has predicted.
[[nodiscard]] nlohmann::ordered_json to_json(const Prediction& predicted);
[[nodiscard]] nlohmann::ordered_json to_json(const Problem& problem, const Plan& plan, double wall_s);

}  // namespace windlass::search
