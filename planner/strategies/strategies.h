// Looks up strategies by name, for command lines and objects. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::search {

// `auto` first; then, by name, those that use the GPUs of each class; then those that place on nodes.
[[nodiscard]] const std::vector<NamedStrategy>& strategies();

// The same in the order in which `auto` asks: by the usual time to a first plan.
[[nodiscard]] const std::vector<NamedStrategy>& cheap_strategies_first();
// The error lists the allowed names.
[[nodiscard]] Result<const NamedStrategy*> strategy_by_name(std::string_view name);

}  // namespace windlass::search
