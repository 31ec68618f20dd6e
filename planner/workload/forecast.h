// Forecaster predicts the arrival rate for the next seconds (during a cold start, say) from samples at irregular intervals,
// with one method.
//
// There are three methods: an EWMA (forecast_ewma.h), Holt-Winters with an optional season (forecast_holt_winters.h), and a
// level that restarts at every change found by a CUSUM (forecast_change_point.h). forecast_best.h picks among them by past
// error.
//
// Unusual samples:
// - A time or rate that is NaN or infinite, a rate below 0 or above 1e12 per second, or a time not later than that of the last
//   sample is an error and leaves the state unchanged.
// - A rate of 0 is valid: a service without requests gets a forecast of 0.
// - A time more than max_gap_s after the last one resets the level to this sample; seasons and noise estimates are kept.
//
// Pure: it has no clock. The state is plain data that a caller may keep, compare, and resume another Forecaster with. Use a
// Forecaster from one thread at a time.
#pragma once

#include <array>
#include <optional>
#include <variant>

#include "planner/base/result.h"
#include "planner/workload/forecast_change_point.h"
#include "planner/workload/forecast_ewma.h"
#include "planner/workload/forecast_holt_winters.h"
#include "planner/workload/forecast_types.h"

namespace windlass::workload {

enum class ForecastMethod { kEwma, kHoltWinters, kChangePoint };  // in the order of ForecasterState's alternatives

inline constexpr std::array kForecastMethods = {ForecastMethod::kEwma, ForecastMethod::kHoltWinters,
                                                ForecastMethod::kChangePoint};

// "EWMA", "HoltWinters", "ChangePoint".
[[nodiscard]] const char* to_string(ForecastMethod method);

struct ForecastOptions {
  double max_gap_s = 600;
  EwmaOptions ewma;
  HoltWintersOptions holt_winters;
  ChangePointOptions change_point;
};

// Errors name the field that is out of range.
[[nodiscard]] Result<void> validate(const ForecastOptions& options);

// The longest allowed horizon.
inline constexpr double kLongestHorizon_s = 86'400;

// Checks that 0 < horizon_s <= kLongestHorizon_s.
[[nodiscard]] Result<void> check_horizon(double horizon_s);

struct ForecasterState {
  std::optional<RateSample> last;
  std::variant<EwmaState, HoltWintersState, ChangePointState> method;
  bool operator==(const ForecasterState&) const = default;
};

class Forecaster {
 public:
  [[nodiscard]] static Result<Forecaster> make(ForecastMethod method, const ForecastOptions& options);

  // Continues from a state returned by state(), possibly with other options. A season of another length restarts; everything
  // else is kept.
  [[nodiscard]] static Result<Forecaster> resume(const ForecasterState& state, const ForecastOptions& options);

  [[nodiscard]] Result<void> observe(const RateSample& sample);

  // Forecast for the horizon_s seconds after the last sample. An error before the first sample.
  [[nodiscard]] Result<RateForecast> forecast(double horizon_s) const;

  [[nodiscard]] ForecastMethod method() const { return static_cast<ForecastMethod>(method_.index()); }
  [[nodiscard]] const std::optional<RateSample>& last() const { return last_; }
  [[nodiscard]] ForecasterState state() const;

 private:
  using Method = std::variant<EwmaForecast, HoltWintersForecast, ChangePointForecast>;
  Forecaster(double max_gap_s, std::optional<RateSample> last, Method method);

  double max_gap_s_;
  std::optional<RateSample> last_;
  Method method_;
};

}  // namespace windlass::workload
