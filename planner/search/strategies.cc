// See strategies.h.
#include "planner/search/strategies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace windlass::search {

const std::vector<NamedStrategy>& strategies() {
  static const std::vector<NamedStrategy> kStrategies = {};
  return kStrategies;
}

Result<const NamedStrategy*> strategy_by_name(std::string_view name) {
  std::vector<std::string_view> names;
  for (const NamedStrategy& strategy : strategies()) {
    if (name == strategy.name) return &strategy;
    names.emplace_back(strategy.name);
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("strategy: found '{}', allowed is {}", name, fmt::join(names, ", "))};
}

}  // namespace windlass::search
