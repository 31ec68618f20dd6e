// The page of `windlass simulate --report`: one self-contained HTML file with figures and plots. Pure.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "controller/cli/simulate/command_simulate_log.h"
#include "planner/sim/recorder.h"
#include "planner/whatif/scenario.h"
#include "planner/whatif/serving_json.h"

namespace windlass::cli {

// The multiples of the scenario's rate at which attainment is plotted.
inline constexpr std::array kRateFactors = {0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0};

struct RatePoint {
  double requests_per_second = 0;
  sim::MeanEstimate attainment;
};

// `log` is of the first replication; `rates` has one list per service, which may be empty. REQUIRES: one report per service.
[[nodiscard]] std::string simulation_page(const std::string& title, const sim::PreparedScenario& scenario,
                                          std::span<const sim::ServingReport> reports, const RequestLog& log,
                                          std::span<const std::vector<RatePoint>> rates);

}  // namespace windlass::cli
