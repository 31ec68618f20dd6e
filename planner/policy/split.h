// Split phases: a service (scaling.strategy Disaggregated, or Auto where it costs clearly less) whose prompts are computed by
// other workers than those that answer.
//
// What kinds of workers, and how many of one for each of the other, a strategy has said (SplitAdvice). How many follow the
// demand as of any service: the target is of the workers that answer, and those that compute prompts go with them in the
// strategy's proportion, corrected by the closed forms for lengths that differ from the assumed ones. Where GPUs are short of
// one side, a worker of the other serves all the same: a decode worker computes the prompts of requests that found no prefill
// worker.
#pragma once

#include <span>

#include "planner/policy/configuration.h"
#include "planner/policy/target.h"

namespace windlass::planner {

// `chosen`: of the workers that answer. Nothing is chosen while no strategy has answered (StrategySearching), where none holds
// (NoSplitHolds), and where maxWorkers leaves no pair.
[[nodiscard]] ConfigurationChoice choose_split(const ConfigurationInput& input);

// Whether the service's phases are split now: by what was planned last, after a restart by most of its workers.
[[nodiscard]] bool runs_split(const Service& service, const PolicyMemory& memory);

// Strategy Auto: whether the strategies are worth asking. In closed form, for the assumed workload: whole workers do not hold
// the objective, or more than one is needed and workers of one phase each cost clearly less a request. Pipelines, waiting and
// transfers are left out, so that this errs towards asking. `classes`: those with GPUs.
[[nodiscard]] bool split_may_pay(const Service& service, std::span<const AcceleratorState> classes);

// Requests a second of one worker of a phase, by the closed forms: by what they move, what a strategy said of one holds for
// other lengths and times.
[[nodiscard]] double phase_rate_per_s(const Service& service, const LatencyModel& model, const Lengths& lengths,
                                      dispatch::Role role);

// The service's own limit that one worker that answers and so many that compute its prompts exceed; empty: none.
[[nodiscard]] Reason objection_to_pair(const Service& service, const Configuration& answering, const PrefillSide& prefill,
                                       int prompt_workers);

// The service as decide_target() is to see it: without its prefill workers, its counts of workers being of those that answer.
[[nodiscard]] Service answering_side(const Service& service, const PrefillSide& prefill);

// What the service's own limits leave of the target when both sides count; returns the workers that are to compute prompts for
// it. One answers wherever there is room for one.
[[nodiscard]] int limit_pair(const Service& service, const Configuration& answering, const PrefillSide& prefill,
                             const Retiring& retiring, Target& target);

}  // namespace windlass::planner
