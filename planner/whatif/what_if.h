// what_if: what would change the decision about one service. Sizes its configuration as the policy does, by what it has learned
// of lengths and bursts, for other arrival rates as if they had been seen for longer than every window while nothing waits, and
// searches for those at which the answer changes.
#pragma once

#include <cstddef>
#include <optional>

#include "planner/policy/snapshot.h"

namespace windlass::planner {

// Rates are requests per second, to within 1 %; absent where no rate in the range that was searched changes the answer.
struct WhatIf {
  int workers = 0;  // wanted at the present rate once every window has passed: minWorkers or more, before other limits
  std::optional<double> more_at_per_s;  // the least rate, up to 16 times the present one, that wants more workers
  int more_workers = 0;
  std::optional<double> fewer_at_per_s;  // the highest rate below the present one that wants fewer
  int fewer_workers = 0;

  bool operator==(const WhatIf&) const = default;
};

// nullopt: the service's arrival rate is not known, or nothing can be planned for it. REQUIRES: service < services.size().
[[nodiscard]] std::optional<WhatIf> what_if(const Snapshot& snapshot, std::size_t service);

}  // namespace windlass::planner
