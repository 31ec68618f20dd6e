// Additive Holt-Winters of an arrival rate: level, linear trend, and optionally a season (a day) as a profile of bins.
//
// Holt (1957) and Winters, "Forecasting sales by exponentially weighted moving averages" (Management Science 6, 1960); level
// and trend at irregular intervals after Wright (1986). The season:
// - A bin holds the mean of what fell into it; the seasonal effect is the bin less the mean of all bins, so that effects
//   always sum to zero (the renormalisation of Archibald and Koehler, 2003, at O(1)); between centres it is interpolated.
// - It counts once a whole season has passed and every bin has had a sample; until then this is Holt's method.
// - From then on bins learn what the level leaves over, with a memory counted in seasons.
// Bins are places on the clock (time modulo season), so a gap costs them nothing; level and trend start anew after it.
// The forecast never falls below zero. O(1) a sample; over() takes O(bins within the horizon). Plain state.
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
  double level_per_s = 0;         // without the season's effect
  double trend_per_s_per_s = 0;   // of the level
  std::int64_t samples = 0;       // since the start or the last gap
  std::vector<SeasonBin> season;  // empty without a season
  double season_mean_per_s = 0;   // of all bins
  std::int64_t seen_bins = 0;
  double season_s = 0;        // its length, that of the options it was learned with
  double season_begin_s = 0;  // the first sample's time
  bool seasonal = false;      // whether the season counts yet
  bool operator==(const HoltWintersState&) const = default;
};

class HoltWintersForecast {
 public:
  using Options = HoltWintersOptions;
  using State = HoltWintersState;

  // A state of another season than asked for begins anew.
  HoltWintersForecast(const Options& options, State state);

  // The first sample, and the first after a gap. Trend 0; the season stays.
  void restart(const RateSample& sample);

  // REQUIRES: restart() was called; elapsed_s > 0 since the sample before.
  void observe(const RateSample& sample, double elapsed_s);

  // From the last sample's time.
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
