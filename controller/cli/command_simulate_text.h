// What `windlass simulate` prints for people: the figures of a ServingReport as tables, with what they rest on. Pure.
#pragma once

#include <string>

#include "planner/sim/scenario.h"
#include "planner/sim/serving_json.h"

namespace windlass::cli {

[[nodiscard]] std::string simulation_text(const sim::PreparedScenario& scenario, const sim::ServingReport& report);

// One sentence where predictions were not measured; empty otherwise.
[[nodiscard]] std::string extrapolation_text(const sim::ServingReport& report);

}  // namespace windlass::cli
