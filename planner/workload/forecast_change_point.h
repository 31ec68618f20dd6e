// Forecasts an arrival rate as the mean since the last detected change; every change restarts the mean.
//
// The detector is the two-sided CUSUM of Page, "Continuous inspection schemes" (Biometrika 41, 1954), on the square root of the
// rate, whose noise is the same at every level for Poisson arrivals (Anscombe, 1948):
// - Reference and noise are estimated as it runs. A deviation is divided by sqrt(1 + 1 / samples) to allow for the reference's
//   own error (Hawkins, "Self-starting CUSUM charts for location and scale", The Statistician 36, 1987).
// - A deviation counts as at most kGreatestDeviation standard deviations, so that no single sample is a change.
// - A CUSUM above the threshold is a change. It began where that CUSUM last left zero (Page), and the level restarts as the
//   mean of the samples since then. The noise estimate is kept.
//
// With the defaults 0.5 and 8, Siegmund's approximation (1985) gives one false change in about 9,600 samples of independent
// normal noise with known reference and noise. Here both are estimated: the tests find one in 4,800 samples of 50 or 200
// Poisson arrivals each, and one in 2,200 at 5 arrivals each (skew). Overlapping or smoothed samples cause more false alarms.
// The forecast is flat, like that of the EWMA; with the same memory they agree until something changes. O(1) per sample; plain
// state.
#pragma once

#include <cstdint>

#include "planner/workload/forecast_types.h"

namespace windlass::workload {

struct ChangePointOptions {
  double memory_s = 600;   // of level and noise, between changes
  double allowance = 0.5;  // standard deviations subtracted from each deviation: half of the smallest change of interest
  double threshold = 8;    // sum of standard deviations that counts as a change
  std::int64_t warm_up_samples = 10;  // samples to estimate the noise before detection starts
};

// The sum of one side, and the samples seen since it left zero.
struct Cusum {
  double sum = 0;
  double rates_per_s = 0;  // summed
  double roots = 0;        // sum of the square roots of the rates
  std::int64_t samples = 0;
  bool operator==(const Cusum&) const = default;
};

struct ChangePointState {
  double level_per_s = 0;
  double root = 0;              // mean square root of the rates; below the root of the level, especially in strong noise
  std::int64_t samples = 0;     // since the start, the last change or the last gap
  double variance = 0;          // of the square roots around `root`
  std::int64_t deviations = 0;  // number of samples behind the variance
  Cusum up;
  Cusum down;
  std::int64_t changes = 0;  // found so far
  bool operator==(const ChangePointState&) const = default;
};

class ChangePointForecast {
 public:
  using Options = ChangePointOptions;
  using State = ChangePointState;

  ChangePointForecast(const Options& options, const State& state) : options_(options), state_(state) {}

  // Call for the first sample, and for the first one after a gap. Keeps the noise estimate.
  void restart(const RateSample& sample);

  // REQUIRES: restart() was called; elapsed_s > 0 since the previous sample.
  void observe(const RateSample& sample, double elapsed_s);

  [[nodiscard]] RateForecast over(double from_s, double horizon_s) const;

  [[nodiscard]] const State& state() const { return state_; }

 private:
  // Whether the sample makes the side's sum a change; if so, the level has been restarted.
  [[nodiscard]] bool changed(Cusum& side, double deviation, const RateSample& sample, double root);

  Options options_;
  State state_;
};

}  // namespace windlass::workload
