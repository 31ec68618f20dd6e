// Forecasts an arrival rate by an exponentially weighted moving average; see forecast_ewma.h.
#include "planner/workload/forecast_ewma.h"

namespace windlass::workload {

void EwmaForecast::restart(const RateSample& sample) { state_ = {sample.rate_per_s, 1}; }

void EwmaForecast::observe(const RateSample& sample, double elapsed_s) {
  ++state_.samples;
  state_.level_per_s += smoothing_gain(elapsed_s, options_.memory_s, state_.samples) * (sample.rate_per_s - state_.level_per_s);
}

RateForecast EwmaForecast::over(double /*from_s*/, double /*horizon_s*/) const {
  return {state_.level_per_s, state_.level_per_s};
}

}  // namespace windlass::workload
