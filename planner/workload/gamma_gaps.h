// GammaGaps draws independent gaps between arrivals with a given mean rate and coefficient of variation, from the caller's
// stream. Plain value.
#pragma once

#include "planner/base/rng.h"

namespace windlass::workload {

class GammaGaps {
 public:
  // cv 0: every gap is 1 / rate; cv 1: a Poisson process. REQUIRES: rate_per_s > 0; cv is 0 or in 1e-6..1000.
  GammaGaps(double rate_per_s, double cv) : rate_per_s_(rate_per_s), cv_(cv) {}

  [[nodiscard]] double draw_s(Rng& rng) const {
    if (cv_ == 1) return rng.exponential(rate_per_s_);
    if (cv_ == 0) return 1 / rate_per_s_;
    // A gamma distribution of shape k has the coefficient of variation 1 / sqrt(k).
    return rng.gamma(1 / (cv_ * cv_), cv_ * cv_ / rate_per_s_);
  }

 private:
  double rate_per_s_;
  double cv_;
};

}  // namespace windlass::workload
