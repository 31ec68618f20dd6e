// See hop_times.h.
#include "planner/perf/hop_times.h"

#include <limits>

namespace windlass::planner {

HopTimes hop_times(const ModelShape& shape, double bytes_per_s, double latency_s) {
  if (!(bytes_per_s > 0)) return {std::numeric_limits<double>::infinity(), 0};
  return {2 * latency_s, shape.hidden * static_cast<double>(sizeof(float)) / bytes_per_s};
}

}  // namespace windlass::planner
