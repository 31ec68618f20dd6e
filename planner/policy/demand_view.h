// DemandView: what may be believed of a service's signals now.
#pragma once

#include <string>

#include "planner/policy/snapshot.h"
#include "planner/search/worker_config.h"

namespace windlass::planner {

struct DemandView {
  bool complete = false;      // arrivals and queue are both fresh and finite: the condition for any scale-down
  std::string problem;        // when not complete: which signal and what is wrong with it
  double arrivals_per_s = 0;  // 0 when it is not usable
  double queued = 0;
  double believed_per_s = 0;  // the arrival rate to predict with: the observed one, or else what the spec assumes
  double arrivals_window_s = 60;
  Lengths lengths;  // observed where fresh, rounded up to a step; else what the spec assumes
  bool lengths_observed = false;
  // Requests inside ready workers by their own word; a ready worker that says nothing fresh counts as full.
  double in_workers = 0;
  int silent_workers = 0;

  [[nodiscard]] bool any_demand() const { return arrivals_per_s > 0 || queued > 0; }
};

[[nodiscard]] DemandView view_demand(const Service& service, double now_s);

// Present, finite, not negative, not older than kSignalMaxAgeS and not from the future.
[[nodiscard]] bool is_usable(const std::optional<Reading>& reading, double now_s);

}  // namespace windlass::planner
