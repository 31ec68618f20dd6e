// A change-point detector of an arrival rate: the level is the mean since the last change, and a change starts it anew.
//
// The detector is the two-sided CUSUM of Page, "Continuous inspection schemes" (Biometrika 41, 1954), on the square root of the
// rate, whose noise Poisson arrivals leave alike at every level (Anscombe, 1948):
// - Reference and noise are estimated as it runs, and a deviation is divided by sqrt(1 + 1 / samples) for the reference's own
//   error (Hawkins, "Self-starting CUSUM charts for location and scale", The Statistician 36, 1987).
// - A deviation counts as at most kGreatestDeviation standard deviations, so that no single sample is a change.
// - A CUSUM above the threshold is a change; it began where that CUSUM last left zero (Page), and the level restarts as the
// mean
//   of the samples since. The noise is kept.
// With the default 0.5 and 8, Siegmund's approximation (1985) gives a false change in about 9,600 samples of independent normal
// noise with reference and noise known. Here both are estimated: the tests find one in 4,800 samples of 50 or 200 Poisson
// arrivals each, one in 2,200 at 5 arrivals each (skew); samples that overlap or are smoothed alarm more often. The forecast is
// flat, as EWMA's: with the same memory the two agree until something changes. O(1) a sample; plain state.
#pragma once

#include <cstdint>

#include "planner/workload/forecast_types.h"

namespace windlass::workload {

struct ChangePointOptions {
  double memory_s = 600;   // of level and noise between changes
  double allowance = 0.5;  // standard deviations that a CUSUM forgives a sample: half of the least change of interest
  double threshold = 8;    // standard deviations, summed, that are a change
  std::int64_t warm_up_samples = 10;  // estimates of the noise before the detector watches
};

// One side's sum, and what it saw since it left zero.
struct Cusum {
  double sum = 0;
  double rates_per_s = 0;  // summed
  double roots = 0;        // of the rates, summed
  std::int64_t samples = 0;
  bool operator==(const Cusum&) const = default;
};

struct ChangePointState {
  double level_per_s = 0;
  double root = 0;              // mean of the rates' square roots: below the root of the level, the more so in strong noise
  std::int64_t samples = 0;     // since the start, the last change or the last gap
  double variance = 0;          // of the square roots around `root`
  std::int64_t deviations = 0;  // that the variance was estimated from
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

  // The first sample, and the first after a gap. What was learned of the noise stays.
  void restart(const RateSample& sample);

  // REQUIRES: restart() was called; elapsed_s > 0 since the sample before.
  void observe(const RateSample& sample, double elapsed_s);

  [[nodiscard]] RateForecast over(double from_s, double horizon_s) const;

  [[nodiscard]] const State& state() const { return state_; }

 private:
  // Whether the sample made the side's sum a change, which then has become the level.
  [[nodiscard]] bool changed(Cusum& side, double deviation, const RateSample& sample, double root);

  Options options_;
  State state_;
};

}  // namespace windlass::workload
