// Arrivals over time: turns raw counts into intervals, the mean level of the last minute, and a forecast for the time one
// worker takes to start.
//
// A missing or invalid count, a count that fell (the writer restarted), or one that was not read for long leaves a gap. A gap
// is unknown; it never counts as no arrivals. PolicyMemory holds the state: at most a minute of intervals and the forecaster's
// plain state, however old the service is.
#pragma once

#include <optional>

#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

// Seconds until a worker started now serves: the P90 of the service's own starts, or an assumption until there are enough of
// them.
[[nodiscard]] double start_time_s(const Service& service);

// Closes the current interval if it is long enough, and updates the forecaster. A second call at the same time changes nothing.
void count_arrivals(PolicyMemory& memory, const Service& service, double now_s);

struct ArrivalsLevel {
  double per_s = 0;
  double window_s = 0;  // length of the window it was counted over
};

// Mean of the closed intervals of the last minute. None: nothing was counted.
[[nodiscard]] std::optional<ArrivalsLevel> arrivals_level(const PolicyMemory& memory, double now_s);

// Expected burstiness of arrivals at this rate, derived from what was learned at other rates.
[[nodiscard]] double burstiness_at(const PolicyMemory& memory, double rate_per_s);

// Forecast for start_time_s ahead. None: nothing was counted recently.
[[nodiscard]] std::optional<DemandForecast> forecast_arrivals(const PolicyMemory& memory, const Service& service, double now_s);

}  // namespace windlass::planner
