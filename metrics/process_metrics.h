// ProcessMetrics: metrics that every program exposes about itself.
#pragma once

#include "metrics/registry.h"

namespace windlass::metrics {

// process_start_time_seconds lets a reader detect a restart of the writer even when the new counter has already passed the old
// value (see counter_tracker.h).
struct ProcessMetrics {
  explicit ProcessMetrics(Registry& registry);

  Gauge start_time;  // process_start_time_seconds: Unix time at which this bundle was created
};

}  // namespace windlass::metrics
