// The reasons for a choice among whole workers: what was weighed, why others lost, and what is believed of those that won.
#pragma once

#include <optional>

#include "planner/policy/configuration.h"
#include "planner/sizing/replicated.h"

namespace windlass::planner {

// What is believed of these workers, from where, and what the data sheet says instead.
void explain_belief(const Service& service, const AcceleratorSpec& spec, const Configuration& chosen, const Lengths& lengths,
                    ConfigurationChoice& choice);

// Everything that was weighed, what would do before what would not.
void weigh(const ReplicatedResult& result, const std::optional<Candidate>& winner, const ReplicatedInput& input,
           ConfigurationChoice& choice);

// Why the other accelerators lost.
void explain_losers(const ReplicatedResult& result, const Candidate& winner, ConfigurationChoice& choice);

}  // namespace windlass::planner
