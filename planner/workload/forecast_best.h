// BestForecaster: all methods side by side on one series; the one whose past forecasts were best answers.
//
// Up to kForecastsPerHorizon times a horizon every method's forecast of the mean rate is written down. When its horizon has
// passed, it is compared with the mean rate that came; the mean absolute error of each method forgets exponentially. The one
// that answers changes only to a method whose error is lower by the margin, and not before kHorizonsToChoose horizons' worth of
// forecasts was scored, so that two equals do not take turns; the price is that what answers may be worse than the best by up
// to 1 / (1 - margin). This is follow-the-leader on discounted losses (Cesa-Bianchi and Lugosi, "Prediction, Learning, and
// Games", 2006) with hysteresis.
//
// The error of the forecasts that were really given, whichever method gave them, is kept beside the methods' own: it is the
// metric. A forecast whose horizon meets a gap is dropped unscored, as what came is not known. O(1) a sample: at most
// kForecastsPerHorizon forecasts wait. Samples are refused as forecast.h says. State is plain data; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/base/result.h"
#include "planner/workload/forecast.h"

namespace windlass::workload {

inline constexpr std::size_t kForecastsPerHorizon = 8;
inline constexpr std::int64_t kHorizonsToChoose = 4;  // forecasts within one horizon err together: fewer would say little

struct BestForecastOptions {
  ForecastOptions methods;
  double error_memory_s = 3600;  // the time in which an error's weight falls by e
  double margin = 0.2;           // the share by which a method must be better than the one that answers
};

[[nodiscard]] Result<void> validate(const BestForecastOptions& options);

struct ForecastError {
  double mean_absolute_per_s = 0;  // of the mean rate over a horizon; exponentially forgotten
  std::int64_t forecasts = 0;      // scored so far
  bool operator==(const ForecastError&) const = default;
};

// A forecast whose horizon has not passed.
struct PendingForecast {
  double issued_s = 0;
  double due_s = 0;
  std::array<double, kForecastMethods.size()> means_per_s{};  // by ForecastMethod
  ForecastMethod given = ForecastMethod::kEwma;               // the method that answered then
  double requests = 0;                                        // that came since
  bool operator==(const PendingForecast&) const = default;
};

struct BestForecastState {
  std::array<ForecasterState, kForecastMethods.size()> methods;  // by ForecastMethod
  std::array<ForecastError, kForecastMethods.size()> errors;     // by ForecastMethod
  ForecastError given;                                           // of what was answered
  std::vector<PendingForecast> pending;                          // oldest first
  std::optional<double> scored_s;                                // when the last scored one was due
  ForecastMethod best = ForecastMethod::kEwma;
  std::int64_t switches = 0;  // of the method that answers

  BestForecastState();  // of a series without samples
  bool operator==(const BestForecastState&) const = default;
};

class BestForecaster {
 public:
  [[nodiscard]] static Result<BestForecaster> make(const BestForecastOptions& options);

  // Goes on from a state that state() gave, maybe under other options.
  [[nodiscard]] static Result<BestForecaster> resume(const BestForecastState& state, const BestForecastOptions& options);

  // horizon_s is what forecasts made at this sample are scored over: the cold-start time as measured by then.
  [[nodiscard]] Result<void> observe(const RateSample& sample, double horizon_s);

  // By the best method, of the horizon_s seconds after the last sample. An error before the first sample.
  [[nodiscard]] Result<RateForecast> forecast(double horizon_s) const;

  // By the method named.
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
