// Additive Holt-Winters forecast of an arrival rate: level, linear trend, and optionally a season (a day) as a profile of bins.
//
// Holt (1957) and Winters, "Forecasting sales by exponentially weighted moving averages" (Management Science 6, 1960); level
// and trend at irregular intervals follow Wright (1986). The season:
// - A bin holds the mean of the samples in it. The seasonal effect is the bin minus the mean of all bins, so effects sum to
//   zero (the renormalisation of Archibald and Koehler, 2003, in O(1)). Between bin centres it is interpolated.
// - It takes effect once a whole season has passed and every bin has a sample; until then this is Holt's method.
// - After that, bins learn from what the level does not explain, with a memory counted in seasons.
//
// Bins are places on the clock (time modulo season), so they survive a gap; level and trend restart after it. The forecast is
// never below zero. O(1) per sample; over() takes O(bins within the horizon). Plain state.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/workload/forecast_types.h"

namespace windlass::workload {

struct HoltWintersOptions {
  double level_memory_s = 300;
  double trend_memory_s = 900;
  double season_s = 0;  // 0: none
  std::int64_t season_bins = 96;
  double season_memory_seasons = 3;
};

struct SeasonBin {
  double rate_per_s = 0;
  std::int64_t samples = 0;
  bool operator==(const SeasonBin&) const = default;
};

struct HoltWintersState {
  double level_per_s = 0;         // without the seasonal effect
  double trend_per_s_per_s = 0;   // of the level
  std::int64_t samples = 0;       // since the start or the last gap
  std::vector<SeasonBin> season;  // empty without a season
  double season_mean_per_s = 0;   // mean of all bins
  std::int64_t seen_bins = 0;
  double season_s = 0;        // its length, from the options it was learned with
  double season_begin_s = 0;  // time of the first sample
  bool seasonal = false;      // whether the season is in effect
  bool operator==(const HoltWintersState&) const = default;
};

class HoltWintersForecast {
 public:
  using Options = HoltWintersOptions;
  using State = HoltWintersState;

  // Discards the season of `state` if its length differs from that of the options.
  HoltWintersForecast(const Options& options, State state);

  // Call for the first sample, and for the first one after a gap. Sets the trend to 0; keeps the season.
  void restart(const RateSample& sample);

  // REQUIRES: restart() was called; elapsed_s > 0 since the previous sample.
  void observe(const RateSample& sample, double elapsed_s);

  // Forecast from the time of the last sample.
  [[nodiscard]] RateForecast over(double from_s, double horizon_s) const;

  [[nodiscard]] const State& state() const { return state_; }

 private:
  [[nodiscard]] double bin_width_s() const { return options_.season_s / static_cast<double>(options_.season_bins); }
  [[nodiscard]] double season_effect_per_s(double time_s) const;
  [[nodiscard]] std::size_t bin_at(double time_s) const;
  void learn_season(const RateSample& sample, double elapsed_s);

  Options options_;
  State state_;
};

}  // namespace windlass::workload
