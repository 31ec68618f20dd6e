// SyntheticSource generates endless requests with independent gaps and sizes. Gaps are gamma distributed with a given
// coefficient of variation (1: Poisson arrivals, 0: one request every 1 / rate seconds); sizes are exponential with mean 1.
//
// Gaps and sizes draw from separate streams ("arrivals", "sizes"). So two sources with one seed and different rates yield the
// same requests, faster or slower, and comparisons share their randomness.
#pragma once

#include <cstdint>
#include <optional>

#include "planner/base/rng.h"
#include "planner/workload/gamma_gaps.h"
#include "planner/workload/request_source.h"

namespace windlass::workload {

struct SyntheticWorkload {
  double rate_per_s = 1;  // mean arrivals per second; > 0
  double gap_cv = 1;      // standard deviation / mean of the gaps between arrivals; >= 0
  std::uint64_t seed = 1;
};

class SyntheticSource final : public RequestSource {
 public:
  explicit SyntheticSource(const SyntheticWorkload& workload);  // REQUIRES: finite fields in their ranges

  [[nodiscard]] std::optional<Request> next() override;  // never none

 private:
  GammaGaps gaps_;
  Rng arrivals_;
  Rng sizes_;
  double now_s_ = 0;
};

}  // namespace windlass::workload
