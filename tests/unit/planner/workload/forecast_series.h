// Rates as a gateway measures them, for tests of forecasts: Poisson arrivals counted over irregular intervals.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/base/rng.h"
#include "planner/workload/forecast_types.h"

namespace windlass::workload {

// Samples 5 to 15 s apart until end_s; expected_per_s(time) is the true rate in the middle of an interval.
template <class Curve>
std::vector<RateSample> poisson_series(double end_s, std::uint64_t seed, const Curve& expected_per_s) {
  Rng gaps(seed, "gaps");
  Rng arrivals(seed, "arrivals");
  std::vector<RateSample> series;
  double time_s = 0;
  while (time_s < end_s) {
    const double elapsed_s = gaps.uniform(5, 15);
    const double mean = expected_per_s(time_s + elapsed_s / 2) * elapsed_s;
    time_s += elapsed_s;
    series.push_back({time_s, static_cast<double>(arrivals.poisson(mean)) / elapsed_s});
  }
  return series;
}

}  // namespace windlass::workload
