// Generates requests with random gaps and sizes; see synthetic_source.h.
#include "planner/workload/synthetic_source.h"

#include <cassert>
#include <cmath>

namespace windlass::workload {

SyntheticSource::SyntheticSource(const SyntheticWorkload& workload)
    : gaps_(workload.rate_per_s, workload.gap_cv), arrivals_(workload.seed, "arrivals"), sizes_(workload.seed, "sizes") {
  assert(std::isfinite(workload.rate_per_s) && workload.rate_per_s > 0);
  assert(std::isfinite(workload.gap_cv) && workload.gap_cv >= 0);
}

std::optional<Request> SyntheticSource::next() {
  now_s_ += gaps_.draw_s(arrivals_);
  Request request;
  request.arrival_s = now_s_;
  request.size = sizes_.exponential(1);
  return request;
}

}  // namespace windlass::workload
