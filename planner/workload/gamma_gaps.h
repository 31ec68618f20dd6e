// GammaGaps: independent gaps between arrivals with a mean rate and a coefficient of variation. A plain value; the caller's
// stream is drawn from.
#pragma once

#include "planner/base/rng.h"

namespace windlass::workload {

class GammaGaps {
 public:
  // 0 is a gap of 1 / rate every time, 1 a Poisson process. REQUIRES: rate_per_s > 0; cv 0, or 1e-6..1000.
  GammaGaps(double rate_per_s, double cv) : rate_per_s_(rate_per_s), cv_(cv) {}

  [[nodiscard]] double draw_s(Rng& rng) const {
    if (cv_ == 1) return rng.exponential(rate_per_s_);
    if (cv_ == 0) return 1 / rate_per_s_;
    // A Gamma of shape k has the coefficient of variation 1 / sqrt(k).
    return rng.gamma(1 / (cv_ * cv_), cv_ * cv_ / rate_per_s_);
  }

 private:
  double rate_per_s_;
  double cv_;
};

}  // namespace windlass::workload
