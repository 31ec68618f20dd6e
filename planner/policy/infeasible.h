// An objective that no configuration keeps: what to run all the same, and what would meet it.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "planner/policy/configuration.h"
#include "planner/sizing/replicated.h"

namespace windlass::planner {

// What to run though nothing keeps the objective: what comes closest to it. Of what was not measured, what would keep it if its
// data sheet were off by kSheetMayBeOff, and first of all what runs, for it is measured soonest.
[[nodiscard]] std::optional<Candidate> closest_of(const ReplicatedResult& result, const ReplicatedInput& input,
                                                  const std::optional<WorkerSpec>& running);

// The condition and the reasons: what the best try gives, and so what would meet the objective.
void explain_infeasible(const ReplicatedResult& result, const ReplicatedInput& asked, const ConfigurationInput& given,
                        ConfigurationChoice& choice);

}  // namespace windlass::planner
