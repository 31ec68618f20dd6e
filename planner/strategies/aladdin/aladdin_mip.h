// Aladdin's placement as the mixed integer program that its heuristic approaches (Nie, Fonseca, Liu 2024, Section 4.2, a to h):
// the truth on small cases, for tests and experiments. Solved by Cbc (planner/mip). Pure.
//
// Requests that run stay where they are; the new ones go to workers so that the fewest are used. (e) is asked at the iterations
// at which a request may be predicted to end, since the cache's use rises between them. A prefill costs its constant only where
// there is one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "planner/base/result.h"
#include "planner/dispatch/packed_worker.h"
#include "planner/strategies/aladdin/aladdin_scheduler.h"

namespace windlass::search {

struct ExactPlacement {
  int used = 0;                      // workers, with those that ran something before
  std::vector<std::size_t> workers;  // of the new requests
  bool proven = false;               // false: the node limit was reached, and this is the best found
};

// `workers`: all that may be used, empty ones too. Errors: kNotFound when no placement keeps the constraints, or none was found
// within the nodes; kInternal when Cbc gives up.
[[nodiscard]] Result<ExactPlacement> place_exactly(std::span<const dispatch::PackedWorker> workers,
                                                   const dispatch::PackingRules& rules, std::span<const NewRequest> requests,
                                                   double now_s, long max_nodes = 100'000);

}  // namespace windlass::search
