// Writes the reasons for a choice among whole workers: which configurations were compared, why the others lost, and which times
// are believed for the winner.
#pragma once

#include <optional>

#include "planner/policy/configuration.h"
#include "planner/sizing/replicated.h"

namespace windlass::planner {

// Adds the times believed for these workers, their origin, and what the data sheet says instead.
void explain_belief(const Service& service, const AcceleratorSpec& spec, const Configuration& chosen, const Lengths& lengths,
                    ConfigurationChoice& choice);

// Lists every configuration compared; feasible ones first.
void weigh(const ReplicatedResult& result, const std::optional<Candidate>& winner, const ReplicatedInput& input,
           ConfigurationChoice& choice);

// Adds why the other accelerators lost.
void explain_losers(const ReplicatedResult& result, const Candidate& winner, ConfigurationChoice& choice);

}  // namespace windlass::planner
