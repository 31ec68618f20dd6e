// The text output of `windlass simulate`: the figures of a ServingReport as tables, with the sources of the predictions. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "planner/whatif/scenario.h"
#include "planner/whatif/serving_json.h"

namespace windlass::cli {

// The sources of the predictions and the defaults in use, then each service's figures. REQUIRES: one report per service.
[[nodiscard]] std::string simulation_text(const sim::PreparedScenario& scenario, std::span<const sim::ServingReport> reports);
// The two parts of simulation_text().
[[nodiscard]] std::string basis_text(const sim::PreparedScenario& scenario);
[[nodiscard]] std::string service_text(const sim::PreparedScenario& scenario, std::size_t service,
                                       const sim::ServingReport& report);

// One sentence about predictions beyond the measured range; empty if there are none.
[[nodiscard]] std::string extrapolation_text(const sim::ServingReport& report);

}  // namespace windlass::cli
