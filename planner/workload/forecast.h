// Forecaster: the arrival rate of the next seconds (a cold start's, say), from samples at irregular intervals, by one method.
//
// Three methods: an EWMA (forecast_ewma.h), Holt-Winters with an optional season (forecast_holt_winters.h), and a level that
// starts anew at every change a CUSUM finds (forecast_change_point.h); forecast_best.h picks among them by their past error.
//
// What it does with samples that are not as they should be:
// - a time or rate that is NaN or infinite, a rate below 0 or above 1e12 per second, or a time not after the last sample's: an
//   error, and the state is as if the sample had never been;
// - a rate of 0 is a rate: a service without requests is forecast as one;
// - a time more than max_gap_s after the last: what the level was is forgotten and begins with this sample; seasons and what is
//   known of the noise stay.
// Pure: no clock. The state is plain data that a caller may keep, compare, and begin another Forecaster with. A Forecaster
// belongs to one thread at a time.
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

enum class ForecastMethod { kEwma, kHoltWinters, kChangePoint };  // the order of ForecasterState's alternatives

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

// Names the field that is out of its range.
[[nodiscard]] Result<void> validate(const ForecastOptions& options);

// The longest horizon a forecast may be asked for.
inline constexpr double kLongestHorizon_s = 86'400;

// Whether 0 < horizon_s <= kLongestHorizon_s.
[[nodiscard]] Result<void> check_horizon(double horizon_s);

struct ForecasterState {
  std::optional<RateSample> last;
  std::variant<EwmaState, HoltWintersState, ChangePointState> method;
  bool operator==(const ForecasterState&) const = default;
};

class Forecaster {
 public:
  [[nodiscard]] static Result<Forecaster> make(ForecastMethod method, const ForecastOptions& options);

  // Goes on from a state that state() gave, maybe under other options: a season of another length begins anew, all else stays.
  [[nodiscard]] static Result<Forecaster> resume(const ForecasterState& state, const ForecastOptions& options);

  [[nodiscard]] Result<void> observe(const RateSample& sample);

  // Of the horizon_s seconds after the last sample. An error before the first sample.
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
