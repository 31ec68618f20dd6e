// EWMA of an arrival rate: the level stays what the last samples were, with exponentially falling weight.
//
// Brown (1956) with Wright's weights for irregular intervals (forecast_types.h). Its forecast is flat: mean and peak are the
// level. Behind a ramp it lags by the memory; in steady noise nothing simple is better. O(1) a sample; plain state.
#pragma once

#include <cstdint>

#include "planner/workload/forecast_types.h"

namespace windlass::workload {

struct EwmaOptions {
  double memory_s = 600;  // the time in which a sample's weight falls by e
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

  // The first sample, and the first after a gap: what was known is too old.
  void restart(const RateSample& sample);

  // REQUIRES: restart() was called; elapsed_s > 0 since the sample before.
  void observe(const RateSample& sample, double elapsed_s);

  [[nodiscard]] RateForecast over(double from_s, double horizon_s) const;

  [[nodiscard]] const State& state() const { return state_; }

 private:
  Options options_;
  State state_;
};

}  // namespace windlass::workload
