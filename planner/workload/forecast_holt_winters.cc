// Forecasts an arrival rate by level, trend and season; see forecast_holt_winters.h.
#include "planner/workload/forecast_holt_winters.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace windlass::workload {
namespace {

// Time within its period, in [0, period_s); also for negative times.
double phase_s(double time_s, double period_s) {
  const double rest_s = std::fmod(time_s, period_s);
  return rest_s < 0 ? rest_s + period_s : rest_s;
}

}  // namespace

HoltWintersForecast::HoltWintersForecast(const Options& options, State state) : options_(options), state_(std::move(state)) {
  const auto bins = static_cast<std::size_t>(options_.season_s > 0 ? options_.season_bins : 0);
  if (state_.season.size() == bins && state_.season_s == options_.season_s) return;
  state_ = {};
  state_.season.resize(bins);
  state_.season_s = options_.season_s;
}

std::size_t HoltWintersForecast::bin_at(double time_s) const {
  const auto bin = static_cast<std::size_t>(phase_s(time_s, options_.season_s) / bin_width_s());
  return std::min(bin, state_.season.size() - 1);
}

double HoltWintersForecast::season_effect_per_s(double time_s) const {
  if (!state_.seasonal) return 0;
  const double place = phase_s(time_s, options_.season_s) / bin_width_s() - 0.5;  // the centre of bin k is place k
  const double below = std::floor(place);
  const auto bins = static_cast<std::int64_t>(state_.season.size());
  const auto left = static_cast<std::size_t>((static_cast<std::int64_t>(below) + bins) % bins);
  const std::size_t right = (left + 1) % state_.season.size();
  const double share = place - below;
  return (1 - share) * state_.season[left].rate_per_s + share * state_.season[right].rate_per_s - state_.season_mean_per_s;
}

void HoltWintersForecast::restart(const RateSample& sample) {
  state_.level_per_s = sample.rate_per_s - season_effect_per_s(sample.time_s);
  state_.trend_per_s_per_s = 0;
  state_.samples = 1;
  // The interval of this sample is unknown, so it can start the first season but adds nothing to a later one.
  if (state_.season.empty() || state_.seen_bins > 0) return;
  state_.season_begin_s = sample.time_s;
  learn_season(sample, 0);
}

void HoltWintersForecast::learn_season(const RateSample& sample, double elapsed_s) {
  // A sample describes the interval before it, so use the middle of that interval.
  const double middle_s = sample.time_s - elapsed_s / 2;
  SeasonBin& bin = state_.season[bin_at(middle_s)];
  if (bin.samples == 0) ++state_.seen_bins;
  ++bin.samples;
  const double gain = smoothing_gain(elapsed_s, options_.season_memory_seasons * bin_width_s(), bin.samples);
  const double target_per_s =
      state_.seasonal ? sample.rate_per_s - state_.level_per_s + state_.season_mean_per_s : sample.rate_per_s;
  const double step_per_s = gain * (target_per_s - bin.rate_per_s);
  bin.rate_per_s += step_per_s;
  state_.season_mean_per_s += step_per_s / static_cast<double>(state_.season.size());
}

void HoltWintersForecast::observe(const RateSample& sample, double elapsed_s) {
  ++state_.samples;
  const double before_per_s = state_.level_per_s;
  const double expected_per_s = before_per_s + state_.trend_per_s_per_s * elapsed_s;
  const double seasonless_per_s = sample.rate_per_s - season_effect_per_s(sample.time_s - elapsed_s / 2);
  state_.level_per_s =
      expected_per_s + smoothing_gain(elapsed_s, options_.level_memory_s, state_.samples) * (seasonless_per_s - expected_per_s);
  const double slope = (state_.level_per_s - before_per_s) / elapsed_s;
  state_.trend_per_s_per_s += -std::expm1(-elapsed_s / options_.trend_memory_s) * (slope - state_.trend_per_s_per_s);

  if (state_.season.empty()) return;
  learn_season(sample, elapsed_s);
  if (state_.seasonal || state_.seen_bins < static_cast<std::int64_t>(state_.season.size())) return;
  if (sample.time_s - state_.season_begin_s < options_.season_s) return;
  // The season starts to count: remove its effect from the level, and reset the trend, which had followed it.
  state_.seasonal = true;
  state_.level_per_s -= season_effect_per_s(sample.time_s);
  state_.trend_per_s_per_s = 0;
}

RateForecast HoltWintersForecast::over(double from_s, double horizon_s) const {
  const auto unbounded_per_s = [&](double ahead_s) {
    return state_.level_per_s + state_.trend_per_s_per_s * ahead_s + season_effect_per_s(from_s + ahead_s);
  };
  // The expected rate is linear between bin centres. So its mean is a sum of trapezoids (triangles where it meets zero), and
  // its peak is at the end of one.
  double ahead_s = 0;
  double left_per_s = unbounded_per_s(0);
  double peak_per_s = std::max(0.0, left_per_s);
  double requests = 0;
  const auto extend = [&](double to_s) {
    const double right_per_s = unbounded_per_s(to_s);
    const double higher_per_s = std::max(left_per_s, right_per_s);
    const double lower_per_s = std::min(left_per_s, right_per_s);
    if (lower_per_s >= 0) {
      requests += (lower_per_s + higher_per_s) / 2 * (to_s - ahead_s);
    } else if (higher_per_s > 0) {
      requests += higher_per_s / 2 * (to_s - ahead_s) * higher_per_s / (higher_per_s - lower_per_s);
    }
    peak_per_s = std::max(peak_per_s, right_per_s);
    left_per_s = right_per_s;
    ahead_s = to_s;
  };
  if (state_.seasonal) {
    const double width_s = bin_width_s();
    const double first_s = width_s - phase_s(from_s - width_s / 2, width_s);
    for (std::int64_t i = 0; first_s + static_cast<double>(i) * width_s < horizon_s; ++i) {
      extend(first_s + static_cast<double>(i) * width_s);
    }
  }
  extend(horizon_s);
  return {std::min(requests / horizon_s, peak_per_s), peak_per_s};
}

}  // namespace windlass::workload
