// Arrivals over time: raw counts closed into intervals, the level of the last minute, and the forecast over one worker start.
//
// A missing or broken count, one that fell (its writer began anew) and one that was not read for long are gaps: what lies in
// them is not known, and is never taken for no arrivals. What is known stands in PolicyMemory: at most a minute of intervals
// and the forecaster's plain state, whatever the service's age.
#pragma once

#include <optional>

#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

// How long a worker that is started now takes to serve: the P90 of the service's own starts, or an assumption until there are
// enough of them.
[[nodiscard]] double start_time_s(const Service& service);

// Closes the interval that is being counted when it is long enough, and feeds the forecaster. Counting twice at one time
// changes nothing the second time.
void count_arrivals(PolicyMemory& memory, const Service& service, double now_s);

struct ArrivalsLevel {
  double per_s = 0;
  double window_s = 0;  // what it was counted over
};

// The mean of the closed intervals of the last minute. None: nothing was counted.
[[nodiscard]] std::optional<ArrivalsLevel> arrivals_level(const PolicyMemory& memory, double now_s);

// How bursty arrivals of this rate are taken to be, by what was learned at others.
[[nodiscard]] double burstiness_at(const PolicyMemory& memory, double rate_per_s);

// Over start_time_s. None: nothing was counted lately.
[[nodiscard]] std::optional<DemandForecast> forecast_arrivals(const PolicyMemory& memory, const Service& service, double now_s);

}  // namespace windlass::planner
