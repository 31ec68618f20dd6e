// One service's decision in words, for `windlass explain`: what was seen, what was predicted, what was weighed, what was
// decided and why, what would change it, and what an objective that cannot be met would need. Pure.
#pragma once

#include <string>

#include "controller/api/model_service.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::cli {

// The whole story, from what the controller saw and decided. `plan` was made from `snapshot`.
// REQUIRES: index < snapshot.services.size(), and the same for the plan.
[[nodiscard]] std::string explanation(const planner::Snapshot& snapshot, const planner::Plan& plan, std::size_t index);

// The part of it that stands in the object's status, for a reader who cannot reach the controller.
[[nodiscard]] std::string explanation(const api::ModelService& service);

}  // namespace windlass::cli
