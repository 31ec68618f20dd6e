// The strategies by name, for people and objects that name one. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/search/strategy.h"

namespace windlass::search {

struct NamedStrategy {
  const char* name;   // "aladdin"
  const char* about;  // a line for people
  Strategy plan;
};

// `auto` first, then by name.
[[nodiscard]] const std::vector<NamedStrategy>& strategies();

// The error lists the allowed names.
[[nodiscard]] Result<const NamedStrategy*> strategy_by_name(std::string_view name);

}  // namespace windlass::search
