// Forecasts an arrival rate as the mean since the last detected change; see forecast_change_point.h.
#include "planner/workload/forecast_change_point.h"

#include <algorithm>
#include <cmath>

namespace windlass::workload {
namespace {

constexpr double kGreatestDeviation = 4;  // standard deviations: a change of 8 needs three samples in a row, not two

// Ignore noise below this (in square roots of requests per second: 1% of 100 per second, a tenth of 1 per second), so that a
// constant rate does not alarm when its last digit changes.
constexpr double kLeastNoise = 0.05;

}  // namespace

void ChangePointForecast::restart(const RateSample& sample) {
  state_.level_per_s = sample.rate_per_s;
  state_.root = std::sqrt(sample.rate_per_s);
  state_.samples = 1;
  state_.up = {};
  state_.down = {};
}

bool ChangePointForecast::changed(Cusum& side, double deviation, const RateSample& sample, double root) {
  side.sum += deviation - options_.allowance;
  if (side.sum <= 0) {
    side = {};
    return false;
  }
  side.rates_per_s += sample.rate_per_s;
  side.roots += root;
  ++side.samples;
  if (side.sum <= options_.threshold) return false;
  state_.level_per_s = side.rates_per_s / static_cast<double>(side.samples);
  state_.root = side.roots / static_cast<double>(side.samples);
  state_.samples = side.samples;
  ++state_.changes;
  state_.up = {};
  state_.down = {};
  return true;
}

void ChangePointForecast::observe(const RateSample& sample, double elapsed_s) {
  const double root = std::sqrt(sample.rate_per_s);
  const double of_reference = std::sqrt(1 + 1 / static_cast<double>(state_.samples));
  double residual = (root - state_.root) / of_reference;
  if (state_.deviations >= options_.warm_up_samples) {
    const double noise = std::max(kLeastNoise, std::sqrt(state_.variance));
    const double deviation = std::clamp(residual / noise, -kGreatestDeviation, kGreatestDeviation);
    if (changed(state_.up, deviation, sample, root)) return;
    if (changed(state_.down, -deviation, sample, root)) return;
    residual = deviation * noise;  // do not count a possible change as noise
  }
  ++state_.deviations;
  state_.variance += smoothing_gain(elapsed_s, options_.memory_s, state_.deviations) * (residual * residual - state_.variance);
  ++state_.samples;
  const double gain = smoothing_gain(elapsed_s, options_.memory_s, state_.samples);
  state_.root += gain * (root - state_.root);
  state_.level_per_s += gain * (sample.rate_per_s - state_.level_per_s);
}

RateForecast ChangePointForecast::over(double /*from_s*/, double /*horizon_s*/) const {
  return {state_.level_per_s, state_.level_per_s};
}

}  // namespace windlass::workload
