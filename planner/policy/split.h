// Split phases by closed forms: some workers compute prompts (prefill), others compute answers (decode). A service that asks
// for them starts on these figures; a strategy's offer replaces them once the simulator has confirmed it.
#pragma once

#include <optional>

#include "planner/policy/configuration.h"

namespace windlass::planner {

// Whether the service runs split phases now: by the last plan, or, after a restart, by what most of its workers do.
[[nodiscard]] bool runs_split(const Service& service, const PolicyMemory& memory);

// The most prompts in one prefill worker, and the most requests in one decode worker. Depend on the spec only.
[[nodiscard]] int max_concurrency_of_phase(const Service& service, const AcceleratorSpec& spec, int gpus, dispatch::Role role);

// Requests per second of one worker of a phase, by the closed forms. Its ratio between two sets of lengths and times scales a
// strategy's figure for one worker.
[[nodiscard]] double phase_rate_per_s(const Service& service, const LatencyModel& model, const Lengths& lengths,
                                      dispatch::Role role);

// The kinds of workers whose phase costs least per request at the assumed lengths, on classes with room for one. It ignores
// waiting and transfers. None: no kind meets the objective.
[[nodiscard]] std::optional<Offer> split_by_closed_forms(const ConfigurationInput& input);

}  // namespace windlass::planner
