// What the forecasts of an arrival rate share: the sample they are fed, their answer, and the gain of smoothing over time.
//
// Plain data and one formula. A sample says the mean rate since the sample before it (arrivals counted, divided by the time
// between), so that a sample's weight is the time it stands for, and irregular intervals need no resampling.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace windlass::workload {

struct RateSample {
  double time_s = 0;      // the end of the interval that it describes
  double rate_per_s = 0;  // its mean over the time since the sample before
  bool operator==(const RateSample&) const = default;
};

// About the horizon's seconds after the last sample. Both are of the expected rate: the noise of the arrivals is not in them,
// and headroom for it is the caller's (the forecast's error says how much).
struct RateForecast {
  double mean_per_s = 0;
  double peak_per_s = 0;  // the highest expected rate within the horizon; >= mean_per_s
  bool operator==(const RateForecast&) const = default;
};

// The weight of the newest of `samples` values when older ones fade by e in `memory_s`: Wright, "Forecasting data published at
// irregular time intervals using an extension of Holt's method" (Management Science 32, 1986) lets the weight depend on the
// time elapsed; 1 / samples makes the first values a plain mean, so that a start owes nothing to its first sample.
// REQUIRES: memory_s > 0, elapsed_s >= 0, samples >= 1.
[[nodiscard]] inline double smoothing_gain(double elapsed_s, double memory_s, std::int64_t samples) {
  return std::max(-std::expm1(-elapsed_s / memory_s), 1 / static_cast<double>(samples));
}

}  // namespace windlass::workload
