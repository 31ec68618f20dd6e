// DemandView: which of a service's signals can be trusted now, and their values.
#pragma once

#include <optional>
#include <string>

#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"
#include "planner/sizing/worker_config.h"

namespace windlass::planner {

struct DemandView {
  bool complete = false;      // arrival rate and queue length are both fresh and finite; required for any scale-down
  std::string problem;        // if not complete: which signal is wrong, and how
  double arrivals_per_s = 0;  // 0 if unusable
  double queued = 0;
  double arrivals_window_s = 60;
  double level_per_s = 0;  // mean of the last minute if counts exist, otherwise arrivals_per_s
  double level_window_s = 60;
  double burstiness = 1;  // at the rate believed_per_s
  std::optional<DemandForecast> forecast;
  double believed_per_s = 0;  // rate to predict with: the observed one, otherwise the spec's assumption
  Lengths lengths;            // observed if fresh, rounded to a step; otherwise the spec's assumption
  bool lengths_observed = false;
  // Requests inside serving workers, as they report.
  double in_workers = 0;
  int new_workers = 0;     // serving workers without fresh metrics that became ready too recently to be at fault
  int silent_workers = 0;  // serving workers without fresh metrics

  [[nodiscard]] bool any_demand() const { return arrivals_per_s > 0 || queued > 0; }
};

// `memory` must include the arrivals up to now.
[[nodiscard]] DemandView view_demand(const Service& service, const PolicyMemory& memory, double now_s);

// Present, finite, not negative, not older than kSignalMaxAgeS, and not from the future.
[[nodiscard]] bool is_usable(const std::optional<Reading>& reading, double now_s);

}  // namespace windlass::planner
