// Parts of a plan that all strategies fill in the same way: the figures of a deployment and of its simulation, as numbers and
// as text. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/sim/serving_simulation.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::search {

// Predicts a deployment's behaviour from complete runs at the problem's rate, each with its own seed. The caller sets
// `capacity_requests_per_s`. REQUIRES: at least one run.
[[nodiscard]] Prediction predict(const Problem& problem, std::span<const sim::ServingResult> runs);

// Simulates a plan made by closed forms: one run at the problem's rate, with as many requests as a trial. `predicted` comes
// from the run, except for the capacity, which stays the plan's. The plan is feasible if its own capacity covers the rate and
// the run meets the objectives; otherwise `missed` says what it misses. A plan that cannot be simulated gets no prediction.
void confirm(const Problem& problem, Offer& plan);

// Adds the interval to a plan's prediction, by simulations at both ends of the workers' times; none if they fail. It takes as
// long as about twenty trials.
void add_interval(const Problem& problem, Executor& executor, Offer& plan);

// A plan of this deployment with its costs and no prediction.
[[nodiscard]] Offer plan_of(const Problem& problem, const std::string& strategy, Deployment deployment);

// "costs 12 per hour", "takes 5600 W", "takes 8 GPUs", by the problem's goal.
[[nodiscard]] std::string worth_text(const Problem& problem, const Deployment& deployment);

// Cheapest first by the goal, then fewer GPUs; at most kMaxConsidered.
void order_considered(const Problem& problem, std::vector<Rejection>& considered);

}  // namespace windlass::search
