// Types shared by the arrival-rate forecasts: the samples, the forecast, and the gain for exponential smoothing.
//
// A sample gives the mean rate since the previous sample (number of arrivals / time between). Its weight is the time that it
// covers, so irregular intervals need no resampling.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace windlass::workload {

struct RateSample {
  double time_s = 0;      // end of the interval it describes
  double rate_per_s = 0;  // mean rate since the previous sample
  bool operator==(const RateSample&) const = default;
};

// Forecast for the seconds of the horizon after the last sample. Both values are expected rates without the noise of the
// arrivals; the caller adds headroom for that (the error of the forecast says how much).
struct RateForecast {
  double mean_per_s = 0;
  double peak_per_s = 0;  // highest expected rate within the horizon; >= mean_per_s
  bool operator==(const RateForecast&) const = default;
};

// Weight of the newest of `samples` values if older ones fade by a factor of e in `memory_s`. It depends on the elapsed time as
// in Wright, "Forecasting data published at irregular time intervals using an extension of Holt's method" (Management Science
// 32, 1986). The term 1 / samples makes the first values a plain mean, so that the first sample does not dominate. REQUIRES:
// memory_s > 0, elapsed_s >= 0, samples >= 1.
[[nodiscard]] inline double smoothing_gain(double elapsed_s, double memory_s, std::int64_t samples) {
  return std::max(-std::expm1(-elapsed_s / memory_s), 1 / static_cast<double>(samples));
}

}  // namespace windlass::workload
