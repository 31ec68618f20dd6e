// Exponentially weighted moving average (EWMA) of an arrival rate.
//
// Brown (1956) with Wright's weights for irregular intervals (forecast_types.h). The forecast is flat: mean and peak equal the
// level. It lags behind a ramp by its memory; in steady noise nothing simple is better. O(1) per sample; plain state.
#pragma once

#include <cstdint>

#include "planner/workload/forecast_types.h"

namespace windlass::workload {

struct EwmaOptions {
  double memory_s = 600;  // time in which the weight of a sample falls by a factor of e
};

struct EwmaState {
  double level_per_s = 0;
  std::int64_t samples = 0;  // since the start or the last gap
  bool operator==(const EwmaState&) const = default;
};

class EwmaForecast {
 public:
  using Options = EwmaOptions;
  using State = EwmaState;

  EwmaForecast(const Options& options, const State& state) : options_(options), state_(state) {}

  // Call for the first sample, and for the first one after a gap: earlier data is too old.
  void restart(const RateSample& sample);

  // REQUIRES: restart() was called; elapsed_s > 0 since the previous sample.
  void observe(const RateSample& sample, double elapsed_s);

  [[nodiscard]] RateForecast over(double from_s, double horizon_s) const;

  [[nodiscard]] const State& state() const { return state_; }

 private:
  Options options_;
  State state_;
};

}  // namespace windlass::workload
