// Pools next to the chosen one: their limits within the service's own, and the service as decide_target() sees it.
#pragma once

#include <vector>

#include "planner/policy/configuration.h"
#include "planner/policy/target.h"

namespace windlass::planner {

// The service's own limit that these workers exceed; an empty code means none.
[[nodiscard]] Reason objection_to_unit(const Service& service, const Configuration& chosen, const SidePools& sides,
                                       const std::vector<int>& beside);

// Copy of the service for decide_target(): without side workers, and with worker counts that mean those of the chosen pool.
[[nodiscard]] Service chosen_side(const Service& service, const SidePools& sides);

// Lowers the target to the service's own limits with all pools counted; returns the number of workers of each side pool for it.
// One chosen worker stays wherever there is room for one.
[[nodiscard]] std::vector<int> limit_units(const Service& service, const Configuration& chosen, const SidePools& sides,
                                           const Retiring& retiring, Target& target);

}  // namespace windlass::planner
