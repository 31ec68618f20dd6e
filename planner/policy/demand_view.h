// DemandView: what may be believed of a service's signals now.
#pragma once

#include <optional>
#include <string>

#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"
#include "planner/sizing/worker_config.h"

namespace windlass::planner {

struct DemandView {
  bool complete = false;      // arrivals and queue are both fresh and finite: the condition for any scale-down
  std::string problem;        // when not complete: which signal and what is wrong with it
  double arrivals_per_s = 0;  // 0 when it is not usable
  double queued = 0;
  double arrivals_window_s = 60;
  double level_per_s = 0;  // the mean of the last minute where counts are at hand; else arrivals_per_s
  double level_window_s = 60;
  double burstiness = 1;  // of arrivals that come as believed_per_s
  std::optional<DemandForecast> forecast;
  double believed_per_s = 0;  // the arrival rate to predict with: the observed one, or else what the spec assumes
  Lengths lengths;            // observed where fresh, rounded to a step; else what the spec assumes
  bool lengths_observed = false;
  // Requests inside the workers that serve, by their own word.
  double in_workers = 0;
  int new_workers = 0;     // serve, have said nothing fresh yet, and became ready so lately that this is no fault
  int silent_workers = 0;  // serve and say nothing fresh

  [[nodiscard]] bool any_demand() const { return arrivals_per_s > 0 || queued > 0; }
};

// `memory`: with the arrivals counted up to now.
[[nodiscard]] DemandView view_demand(const Service& service, const PolicyMemory& memory, double now_s);

// Present, finite, not negative, not older than kSignalMaxAgeS and not from the future.
[[nodiscard]] bool is_usable(const std::optional<Reading>& reading, double now_s);

}  // namespace windlass::planner
