// what_if answers at which arrival rates the number of workers of one service would change. It sizes the configuration as the
// policy does, with what the policy has learned about lengths and bursts. Each rate is treated as if it had been observed for
// longer than every window, with nothing waiting.
#pragma once

#include <cstddef>
#include <optional>

#include "planner/policy/snapshot.h"

namespace windlass::planner {

// Rates in requests per second, to within 1 %; absent if no rate in the searched range changes the number.
struct WhatIf {
  int workers = 0;  // wanted at the present rate once every window has passed: at least minWorkers, before other limits
  std::optional<double> more_at_per_s;  // lowest rate, up to 16 times the present one, that needs more workers
  int more_workers = 0;
  std::optional<double> fewer_at_per_s;  // highest rate below the present one that needs fewer
  int fewer_workers = 0;

  bool operator==(const WhatIf&) const = default;
};

// Nullopt if the service's arrival rate is unknown or nothing can be planned for it. REQUIRES: service < services.size().
[[nodiscard]] std::optional<WhatIf> what_if(const Snapshot& snapshot, std::size_t service);

}  // namespace windlass::planner
