// BestForecaster runs all methods on the same series and answers with the one whose past forecasts were best.
//
// Up to kForecastsPerHorizon times per horizon it records every method's forecast of the mean rate. When the horizon has
// passed, it compares them with the actual mean rate. The mean absolute error of each method forgets exponentially. It switches
// only to a method whose error is lower by `margin`, and only after forecasts over kHorizonsToChoose horizons have been scored,
// so that two equally good methods do not alternate. The price is that the answer may be worse than the best method by up to 1
// / (1 - margin). This is follow-the-leader on discounted losses (Cesa-Bianchi and Lugosi, "Prediction, Learning, and Games",
// 2006) with hysteresis.
//
// It also keeps the error of the forecasts actually given, whichever method made them; that is the metric. A forecast whose
// horizon contains a gap is dropped, because the actual rate is unknown. O(1) per sample: at most kForecastsPerHorizon
// forecasts are pending. Invalid samples: see forecast.h. The state is plain data; use from one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/base/result.h"
#include "planner/workload/forecast.h"

namespace windlass::workload {

inline constexpr std::size_t kForecastsPerHorizon = 8;
inline constexpr std::int64_t kHorizonsToChoose =
    4;  // forecasts within one horizon have correlated errors, so fewer would say little

struct BestForecastOptions {
  ForecastOptions methods;
  double error_memory_s = 3600;  // time in which the weight of an error falls by a factor of e
  double margin = 0.2;           // how much better a method must be to replace the current one, as a fraction
};

[[nodiscard]] Result<void> validate(const BestForecastOptions& options);

struct ForecastError {
  double mean_absolute_per_s = 0;  // of the mean rate over a horizon; forgets exponentially
  std::int64_t forecasts = 0;      // scored so far
  bool operator==(const ForecastError&) const = default;
};

// A forecast whose horizon has not passed.
struct PendingForecast {
  double issued_s = 0;
  double due_s = 0;
  std::array<double, kForecastMethods.size()> means_per_s{};  // by ForecastMethod
  ForecastMethod given = ForecastMethod::kEwma;               // the method in use at that time
  double requests = 0;                                        // arrivals since then
  bool operator==(const PendingForecast&) const = default;
};

struct BestForecastState {
  std::array<ForecasterState, kForecastMethods.size()> methods;  // by ForecastMethod
  std::array<ForecastError, kForecastMethods.size()> errors;     // by ForecastMethod
  ForecastError given;                                           // of the answers given
  std::vector<PendingForecast> pending;                          // oldest first
  std::optional<double> scored_s;                                // when the last scored forecast was due
  ForecastMethod best = ForecastMethod::kEwma;
  std::int64_t switches = 0;  // changes of the method in use

  BestForecastState();  // the state before any sample
  bool operator==(const BestForecastState&) const = default;
};

class BestForecaster {
 public:
  [[nodiscard]] static Result<BestForecaster> make(const BestForecastOptions& options);

  // Continues from a state returned by state(), possibly with other options.
  [[nodiscard]] static Result<BestForecaster> resume(const BestForecastState& state, const BestForecastOptions& options);

  // Forecasts made at this sample are scored over horizon_s: the cold-start time as measured so far.
  [[nodiscard]] Result<void> observe(const RateSample& sample, double horizon_s);

  // The best method's forecast for the horizon_s seconds after the last sample. An error before the first sample.
  [[nodiscard]] Result<RateForecast> forecast(double horizon_s) const;

  // The forecast of the given method.
  [[nodiscard]] Result<RateForecast> forecast(ForecastMethod method, double horizon_s) const;

  [[nodiscard]] ForecastMethod best() const { return best_; }
  [[nodiscard]] const ForecastError& error(ForecastMethod method) const { return errors_[static_cast<std::size_t>(method)]; }
  [[nodiscard]] const ForecastError& given_error() const { return given_; }
  [[nodiscard]] std::int64_t switches() const { return switches_; }
  [[nodiscard]] BestForecastState state() const;

 private:
  BestForecaster(const BestForecastOptions& options, const BestForecastState& state, std::vector<Forecaster> methods);

  void score_until(const RateSample& sample, double last_s);
  void score(const PendingForecast& forecast);
  void choose();
  void write_down(double now_s, double horizon_s);

  BestForecastOptions options_;
  std::vector<Forecaster> methods_;  // by ForecastMethod
  std::array<ForecastError, kForecastMethods.size()> errors_;
  ForecastError given_;
  std::vector<PendingForecast> pending_;
  std::optional<double> scored_s_;
  ForecastMethod best_;
  std::int64_t switches_;
};

}  // namespace windlass::workload
