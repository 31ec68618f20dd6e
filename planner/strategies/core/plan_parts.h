// What plans are made of, whichever strategy made them: figures of a deployment and of its simulation, in numbers and in words.
//
// Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/sim/serving_simulation.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::search {

// What whole runs at the problem's rate, each with its own seed, say of a deployment. `capacity_requests_per_s` is left to the
// caller. REQUIRES: at least one run.
[[nodiscard]] Prediction predict(const Problem& problem, std::span<const sim::ServingResult> runs);

// A plan of this deployment: what it costs, nothing predicted.
[[nodiscard]] Offer plan_of(const Problem& problem, const std::string& strategy, Deployment deployment);

// "costs 12 an hour", "takes 5600 W", "takes 8 GPUs": as the problem's goal counts.
[[nodiscard]] std::string worth_text(const Problem& problem, const Deployment& deployment);

// Cheapest first as the goal counts, then fewer GPUs; no more than kMaxConsidered.
void order_considered(const Problem& problem, std::vector<Rejection>& considered);

}  // namespace windlass::search
