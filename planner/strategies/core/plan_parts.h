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

// Tries a plan that closed forms made: one run at the problem's rate, of as many requests as a trial has. `predicted` is the
// run's but for the capacity, which stays the plan's own; the plan holds if it serves the rate by its own count and the run is
// inside the objectives, else `missed` says what it misses. Nothing is predicted of a plan that cannot be simulated.
void confirm(const Problem& problem, Offer& plan);

// A plan of this deployment: what it costs, nothing predicted.
[[nodiscard]] Offer plan_of(const Problem& problem, const std::string& strategy, Deployment deployment);

// "costs 12 an hour", "takes 5600 W", "takes 8 GPUs": as the problem's goal counts.
[[nodiscard]] std::string worth_text(const Problem& problem, const Deployment& deployment);

// Cheapest first as the goal counts, then fewer GPUs; no more than kMaxConsidered.
void order_considered(const Problem& problem, std::vector<Rejection>& considered);

}  // namespace windlass::search
