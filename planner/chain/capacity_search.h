// Finds the best reserved capacity c of a composition (Sun, He, Hou 2026, Sections 3.1.3 and 3.2.3); used by compose().
#pragma once

#include <optional>
#include <vector>

#include "planner/chain/compose.h"

namespace windlass::chain {

struct BestCapacity {
  int capacity = 0;
  std::vector<ConsideredCapacity> considered;  // as in Composition
};

// The answer of trying every c in 1..max_capacity(instance), as compose() describes it. None: no c gives a full chain.
[[nodiscard]] std::optional<BestCapacity> best_capacity(const Instance& instance, Tuning tuning, Servers servers);

}  // namespace windlass::chain
