// What `windlass simulate` prints for people: the figures of a ServingReport as tables, with what they rest on. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "planner/whatif/scenario.h"
#include "planner/whatif/serving_json.h"

namespace windlass::cli {

// What the predictions rest on and which defaults were used; then each service's figures. REQUIRES: a report a service.
[[nodiscard]] std::string simulation_text(const sim::PreparedScenario& scenario, std::span<const sim::ServingReport> reports);
// The two parts of it.
[[nodiscard]] std::string basis_text(const sim::PreparedScenario& scenario);
[[nodiscard]] std::string service_text(const sim::PreparedScenario& scenario, std::size_t service,
                                       const sim::ServingReport& report);

// One sentence where predictions were not measured; empty otherwise.
[[nodiscard]] std::string extrapolation_text(const sim::ServingReport& report);

}  // namespace windlass::cli
