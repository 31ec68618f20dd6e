// Runs all forecast methods and answers with the best by past error; see forecast_best.h.
#include "planner/workload/forecast_best.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace windlass::workload {

Result<void> validate(const BestForecastOptions& options) {
  WINDLASS_RETURN_IF_ERROR(validate(options.methods));
  const auto refused = [](const char* field, double value, const char* allowed) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("forecast options: {}: must be {} (got {})", field, allowed, value)};
  };
  if (!(options.error_memory_s >= 1e-3 && options.error_memory_s <= 1e9)) {
    return refused("error_memory_s", options.error_memory_s, "0.001 to 1e9");
  }
  if (!(options.margin >= 0 && options.margin < 1)) return refused("margin", options.margin, "0 to below 1");
  return {};
}

BestForecastState::BestForecastState() {
  methods[1].method = HoltWintersState{};
  methods[2].method = ChangePointState{};
}

BestForecaster::BestForecaster(const BestForecastOptions& options, const BestForecastState& state,
                               std::vector<Forecaster> methods)
    : options_(options),
      methods_(std::move(methods)),
      errors_(state.errors),
      given_(state.given),
      pending_(state.pending),
      scored_s_(state.scored_s),
      best_(state.best),
      switches_(state.switches) {}

Result<BestForecaster> BestForecaster::make(const BestForecastOptions& options) { return resume({}, options); }

Result<BestForecaster> BestForecaster::resume(const BestForecastState& state, const BestForecastOptions& options) {
  WINDLASS_RETURN_IF_ERROR(validate(options));
  std::vector<Forecaster> methods;
  for (const ForecastMethod method : kForecastMethods) {
    const ForecasterState& of_method = state.methods[static_cast<std::size_t>(method)];
    if (of_method.method.index() != static_cast<std::size_t>(method) || of_method.last != state.methods[0].last) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("forecast state: methods[{}] is not {} at the last sample of the others",
                               static_cast<int>(method), to_string(method))};
    }
    WINDLASS_ASSIGN_OR_RETURN(Forecaster forecaster, Forecaster::resume(of_method, options.methods));
    methods.push_back(std::move(forecaster));
  }
  return BestForecaster(options, state, std::move(methods));
}

Result<void> BestForecaster::observe(const RateSample& sample, double horizon_s) {
  WINDLASS_RETURN_IF_ERROR(check_horizon(horizon_s));
  const std::optional<RateSample> last = methods_.front().last();
  for (Forecaster& method : methods_)
    WINDLASS_RETURN_IF_ERROR(method.observe(sample));  // all methods refuse the same samples, so only the first can fail
  if (last && sample.time_s - last->time_s > options_.methods.max_gap_s) {
    pending_.clear();
  } else if (last) {
    score_until(sample, last->time_s);
    choose();
  }
  write_down(sample.time_s, horizon_s);
  return {};
}

void BestForecaster::score_until(const RateSample& sample, double last_s) {
  std::vector<PendingForecast> waiting;
  for (PendingForecast& forecast : pending_) {
    // The rate of the sample covers all the time since the last one, so arrivals up to a moment in between follow from it.
    forecast.requests += sample.rate_per_s * (std::min(sample.time_s, forecast.due_s) - last_s);
    if (forecast.due_s <= sample.time_s) {
      score(forecast);
    } else {
      waiting.push_back(forecast);
    }
  }
  pending_ = std::move(waiting);
}

void BestForecaster::score(const PendingForecast& forecast) {
  const double actual_per_s = forecast.requests / (forecast.due_s - forecast.issued_s);
  // When the horizon shrinks, forecasts may become due in another order than they were made.
  const double elapsed_s = scored_s_ ? std::max(0.0, forecast.due_s - *scored_s_) : 0;
  const auto learn = [&](ForecastError& error, double mean_per_s) {
    ++error.forecasts;
    const double gain = smoothing_gain(elapsed_s, options_.error_memory_s, error.forecasts);
    error.mean_absolute_per_s += gain * (std::abs(mean_per_s - actual_per_s) - error.mean_absolute_per_s);
  };
  for (std::size_t i = 0; i < errors_.size(); ++i) learn(errors_[i], forecast.means_per_s[i]);
  learn(given_, forecast.means_per_s[static_cast<std::size_t>(forecast.given)]);
  scored_s_ = std::max(scored_s_.value_or(forecast.due_s), forecast.due_s);
}

void BestForecaster::choose() {
  if (error(best_).forecasts < kHorizonsToChoose * static_cast<std::int64_t>(kForecastsPerHorizon)) return;
  const auto least = std::min_element(errors_.begin(), errors_.end(), [](const ForecastError& a, const ForecastError& b) {
    return a.mean_absolute_per_s < b.mean_absolute_per_s;
  });
  if (!(least->mean_absolute_per_s < (1 - options_.margin) * error(best_).mean_absolute_per_s)) return;
  best_ = kForecastMethods[static_cast<std::size_t>(least - errors_.begin())];
  ++switches_;
}

void BestForecaster::write_down(double now_s, double horizon_s) {
  if (pending_.size() >= kForecastsPerHorizon) return;
  const double spacing_s = horizon_s / static_cast<double>(kForecastsPerHorizon);
  // Allow for rounding: samples exactly one spacing apart each get a forecast.
  if (!pending_.empty() && now_s - pending_.back().issued_s < spacing_s * (1 - 1e-9)) return;
  PendingForecast forecast{now_s, now_s + horizon_s, {}, best_, 0};
  if (!(forecast.due_s > now_s)) return;  // a horizon below the precision of the time
  for (std::size_t i = 0; i < methods_.size(); ++i) {
    const Result<RateForecast> of_method = methods_[i].forecast(horizon_s);
    assert(of_method.ok());  // there is a sample, and the horizon was checked
    forecast.means_per_s[i] = of_method->mean_per_s;
  }
  pending_.push_back(forecast);
}

Result<RateForecast> BestForecaster::forecast(double horizon_s) const { return forecast(best_, horizon_s); }

Result<RateForecast> BestForecaster::forecast(ForecastMethod method, double horizon_s) const {
  return methods_[static_cast<std::size_t>(method)].forecast(horizon_s);
}

BestForecastState BestForecaster::state() const {
  BestForecastState state;
  for (std::size_t i = 0; i < methods_.size(); ++i) state.methods[i] = methods_[i].state();
  state.errors = errors_;
  state.given = given_;
  state.pending = pending_;
  state.scored_s = scored_s_;
  state.best = best_;
  state.switches = switches_;
  return state;
}

}  // namespace windlass::workload
