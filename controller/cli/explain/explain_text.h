// Explains the decision about one service in words, for `windlass explain`: what was seen, predicted, considered and decided,
// why, what would change it, and what an objective that cannot be met would need. Pure.
#pragma once

#include <string>

#include "controller/api/model_service.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::cli {

// The full explanation, from the controller's snapshot and the plan made from it.
// REQUIRES: index < snapshot.services.size(); the plan has as many services.
[[nodiscard]] std::string explanation(const planner::Snapshot& snapshot, const planner::Plan& plan, std::size_t index);

// The part that the object's status holds, for readers who cannot reach the controller.
[[nodiscard]] std::string explanation(const api::ModelService& service);

}  // namespace windlass::cli
