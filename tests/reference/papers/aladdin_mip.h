// Finds the optimal placement of small cases: the mixed-integer program that Aladdin's heuristic approximates (Nie, Fonseca,
// Liu 2024, Section 4.2, a to h). Tests and an experiment compare best fit with it. Solved by Cbc (planner/mip). Pure.
//
// Running requests stay; new ones are placed so that the fewest workers are used. Constraint (e) is checked at the iterations
// at which a request is predicted to end, since cache use rises between them. The constant cost of a prefill counts only if
// there is one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "planner/base/result.h"
#include "planner/dispatch/packed_worker.h"

namespace windlass::search {

struct NewRequest {
  int input_tokens = 1;
  int predicted_tokens = 1;
};

struct ExactPlacement {
  int used = 0;                      // workers, including those already running something
  std::vector<std::size_t> workers;  // one per new request
  bool proven = false;               // false: the node limit was reached; this is the best found
};

// `workers`: all that may be used, including empty ones. Errors: kNotFound if no placement satisfies the constraints, or none
// was found within the node limit; kInternal if Cbc fails.
[[nodiscard]] Result<ExactPlacement> place_exactly(std::span<const dispatch::PackedWorker> workers,
                                                   const dispatch::PackingRules& rules, std::span<const NewRequest> requests,
                                                   double now_s, long max_nodes = 100'000);

}  // namespace windlass::search
