// Forecasts an arrival rate with one of three methods; see forecast.h.
#include "planner/workload/forecast.h"

#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace windlass::workload {
namespace {

constexpr double kHighestRate_per_s = 1e12;  // squares, sums and slopes of such rates stay finite

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

Result<void> check_sample(const RateSample& sample, const std::optional<RateSample>& last) {
  if (!std::isfinite(sample.time_s)) return invalid(fmt::format("rate sample: time_s: must be finite (got {})", sample.time_s));
  if (!(sample.rate_per_s >= 0 && sample.rate_per_s <= kHighestRate_per_s)) {
    return invalid(fmt::format("rate sample at {} s: rate_per_s: must be from 0 to {} (got {})", sample.time_s,
                               kHighestRate_per_s, sample.rate_per_s));
  }
  if (last && sample.time_s <= last->time_s) {
    return invalid(
        fmt::format("rate sample: time_s: must be after the last sample's {} (got {})", last->time_s, sample.time_s));
  }
  return {};
}

}  // namespace

const char* to_string(ForecastMethod method) {
  switch (method) {
    case ForecastMethod::kEwma: return "EWMA";
    case ForecastMethod::kHoltWinters: return "HoltWinters";
    case ForecastMethod::kChangePoint: return "ChangePoint";
  }
  return "unknown";
}

Result<void> validate(const ForecastOptions& options) {
  struct Field {
    std::string_view name;
    double value;
    double least;
    double most;
  };
  const HoltWintersOptions& seasonal = options.holt_winters;
  const ChangePointOptions& change = options.change_point;
  for (const Field& field : {
           Field{"max_gap_s", options.max_gap_s, 1e-3, 1e9},
           Field{"ewma.memory_s", options.ewma.memory_s, 1e-3, 1e9},
           Field{"holt_winters.level_memory_s", seasonal.level_memory_s, 1e-3, 1e9},
           Field{"holt_winters.trend_memory_s", seasonal.trend_memory_s, 1e-3, 1e9},
           Field{"holt_winters.season_bins", static_cast<double>(seasonal.season_bins), 2, 10'000},
           Field{"holt_winters.season_memory_seasons", seasonal.season_memory_seasons, 1e-3, 1e6},
           Field{"change_point.memory_s", change.memory_s, 1e-3, 1e9},
           Field{"change_point.allowance", change.allowance, 0, 3},
           Field{"change_point.threshold", change.threshold, 1, 1e6},
           Field{"change_point.warm_up_samples", static_cast<double>(change.warm_up_samples), 2, 1e6},
       }) {
    if (field.value >= field.least && field.value <= field.most) continue;
    return invalid(
        fmt::format("forecast options: {}: must be from {} to {} (got {})", field.name, field.least, field.most, field.value));
  }
  // Bins of less than a second would make the loop over a long horizon slow.
  const auto shortest_s = static_cast<double>(seasonal.season_bins);
  if (seasonal.season_s != 0 && !(seasonal.season_s >= shortest_s && seasonal.season_s <= 1e9)) {
    return invalid(fmt::format(
        "forecast options: holt_winters.season_s: must be 0 for none, or from {} (a second per bin) to 1e9 (got {})",
        shortest_s, seasonal.season_s));
  }
  return {};
}

Result<void> check_horizon(double horizon_s) {
  if (horizon_s > 0 && horizon_s <= kLongestHorizon_s) return {};
  return invalid(fmt::format("forecast: horizon_s: must be above 0 and at most {} (got {})", kLongestHorizon_s, horizon_s));
}

Forecaster::Forecaster(double max_gap_s, std::optional<RateSample> last, Method method)
    : max_gap_s_(max_gap_s), last_(last), method_(std::move(method)) {}

Result<Forecaster> Forecaster::make(ForecastMethod method, const ForecastOptions& options) {
  ForecasterState state;
  if (method == ForecastMethod::kHoltWinters) state.method = HoltWintersState{};
  if (method == ForecastMethod::kChangePoint) state.method = ChangePointState{};
  return resume(state, options);
}

Result<Forecaster> Forecaster::resume(const ForecasterState& state, const ForecastOptions& options) {
  WINDLASS_RETURN_IF_ERROR(validate(options));
  if (const auto* ewma = std::get_if<EwmaState>(&state.method)) {
    return Forecaster(options.max_gap_s, state.last, EwmaForecast(options.ewma, *ewma));
  }
  if (const auto* change_point = std::get_if<ChangePointState>(&state.method)) {
    return Forecaster(options.max_gap_s, state.last, ChangePointForecast(options.change_point, *change_point));
  }
  HoltWintersForecast holt_winters(options.holt_winters, std::get<HoltWintersState>(state.method));
  // A new season has no level yet: until the next sample, use the last one.
  if (state.last && holt_winters.state().samples == 0) holt_winters.restart(*state.last);
  return Forecaster(options.max_gap_s, state.last, std::move(holt_winters));
}

Result<void> Forecaster::observe(const RateSample& sample) {
  WINDLASS_RETURN_IF_ERROR(check_sample(sample, last_));
  const double elapsed_s = last_ ? sample.time_s - last_->time_s : 0;
  const bool restarts = !last_ || elapsed_s > max_gap_s_;
  std::visit(
      [&](auto& method) {
        if (restarts) {
          method.restart(sample);
        } else {
          method.observe(sample, elapsed_s);
        }
      },
      method_);
  last_ = sample;
  return {};
}

Result<RateForecast> Forecaster::forecast(double horizon_s) const {
  WINDLASS_RETURN_IF_ERROR(check_horizon(horizon_s));
  if (!last_) return Error{ErrorCode::kFailedPrecondition, "forecast: needs at least one sample of the rate (got none)"};
  return std::visit([&](const auto& method) { return method.over(last_->time_s, horizon_s); }, method_);
}

ForecasterState Forecaster::state() const {
  ForecasterState state;
  state.last = last_;
  std::visit([&](const auto& method) { state.method = method.state(); }, method_);
  return state;
}

}  // namespace windlass::workload
