// ProcessMetrics: what every program tells of itself.
#pragma once

#include "metrics/registry.h"

namespace windlass::metrics {

// process_start_time_seconds lets a reader recognise a restart of the writer even where the
// new counter has already overtaken the old one (see counter_tracker.h).
struct ProcessMetrics {
  explicit ProcessMetrics(Registry& registry);

  Gauge start_time;  // process_start_time_seconds: Unix time at which this bundle was made
};

}  // namespace windlass::metrics
