// See synthetic_source.h.
#include "planner/workload/synthetic_source.h"

#include <cassert>
#include <cmath>

namespace windlass::workload {

SyntheticSource::SyntheticSource(const SyntheticWorkload& workload)
    : workload_(workload), arrivals_(workload.seed, "arrivals"), sizes_(workload.seed, "sizes") {
  assert(std::isfinite(workload.rate_per_s) && workload.rate_per_s > 0);
  assert(std::isfinite(workload.gap_cv) && workload.gap_cv >= 0);
}

std::optional<Request> SyntheticSource::next() {
  now_s_ += gap_s();
  Request request;
  request.arrival_s = now_s_;
  request.size = sizes_.exponential(1);
  return request;
}

double SyntheticSource::gap_s() {
  const double cv = workload_.gap_cv;
  if (cv == 1) return arrivals_.exponential(workload_.rate_per_s);
  if (cv == 0) return 1 / workload_.rate_per_s;
  // A Gamma of shape k has the coefficient of variation 1 / sqrt(k).
  return arrivals_.gamma(1 / (cv * cv), cv * cv / workload_.rate_per_s);
}

}  // namespace windlass::workload
