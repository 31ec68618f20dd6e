// Decides what to run if no configuration meets the objective, and explains which objective could be met.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "planner/policy/configuration.h"
#include "planner/sizing/replicated.h"

namespace windlass::planner {

// The configuration to run although none meets the objective: the closest one. Unmeasured configurations qualify if they would
// meet it with a data sheet off by kSheetMayBeOff. The running one comes first, because it is measured soonest.
[[nodiscard]] std::optional<Candidate> closest_of(const ReplicatedResult& result, const ReplicatedInput& input,
                                                  const std::optional<WorkerSpec>& running);

// Sets the condition and adds the reasons: the times of the best candidate, and so which objective could be met.
void explain_infeasible(const ReplicatedResult& result, const ReplicatedInput& asked, const ConfigurationInput& given,
                        ConfigurationChoice& choice);

}  // namespace windlass::planner
