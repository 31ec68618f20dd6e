// Chooses a configuration with split phases: some workers compute prompts (prefill), others compute answers (decode). For
// services with scaling.strategy Disaggregated, and for Auto where splitting is clearly cheaper.
//
// A strategy decides which kinds of workers to use and in what proportion (SplitAdvice). The number of workers follows demand,
// as for any service: the target counts decode workers. Prefill workers follow in the strategy's proportion, which closed forms
// correct if lengths differ from the assumed ones. If one side is short of GPUs, the workers of the other still serve: a decode
// worker computes the prompts of requests that found no prefill worker.
#pragma once

#include <span>

#include "planner/policy/configuration.h"
#include "planner/policy/target.h"

namespace windlass::planner {

// `chosen` describes the decode workers. Nothing is chosen while no strategy has answered (StrategySearching), if no split
// meets the objective (NoSplitHolds), or if maxWorkers leaves no room for a pair.
[[nodiscard]] ConfigurationChoice choose_split(const ConfigurationInput& input);

// Whether the service runs split phases now: by the last plan, or, after a restart, by what most of its workers do.
[[nodiscard]] bool runs_split(const Service& service, const PolicyMemory& memory);

// Strategy Auto: whether the search strategies are worth running. A closed-form check for the assumed workload: true if whole
// workers cannot meet the objective, or if more than one is needed and single-phase workers cost clearly less per request. It
// ignores pipelines, waiting and transfers, so it errs towards true. `classes`: the classes with GPUs.
[[nodiscard]] bool split_may_pay(const Service& service, std::span<const AcceleratorState> classes);

// Requests per second of one worker of a phase, by the closed forms. Its ratio between two sets of lengths and times scales a
// strategy's figure for one worker.
[[nodiscard]] double phase_rate_per_s(const Service& service, const LatencyModel& model, const Lengths& lengths,
                                      dispatch::Role role);

// The service's own limit that one decode worker and this many prefill workers exceed; empty if none.
[[nodiscard]] Reason objection_to_pair(const Service& service, const Configuration& answering, const PrefillSide& prefill,
                                       int prompt_workers);

// Copy of the service for decide_target(): without prefill workers, and with worker counts that mean decode workers.
[[nodiscard]] Service answering_side(const Service& service, const PrefillSide& prefill);

// Lowers the target to the service's own limits with both sides counted; returns the number of prefill workers for it. One
// decode worker stays wherever there is room for one.
[[nodiscard]] int limit_pair(const Service& service, const Configuration& answering, const PrefillSide& prefill,
                             const Retiring& retiring, Target& target);

}  // namespace windlass::planner
