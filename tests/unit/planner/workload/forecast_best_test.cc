// Tests of choosing the best forecast by past error: scores by hand, which method wins on which series and by how much, and no
// needless switching.
#include "planner/workload/forecast_best.h"

#include <cmath>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/planner/workload/forecast_series.h"

namespace windlass::workload {
namespace {

constexpr double kHorizon_s = 120;

BestForecaster make(const BestForecastOptions& options = {}) {
  auto made = BestForecaster::make(options);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(made).value();
}

void feed(BestForecaster& forecaster, const std::vector<RateSample>& series, double horizon_s = kHorizon_s) {
  for (const RateSample& sample : series) {
    const auto fed = forecaster.observe(sample, horizon_s);
    ASSERT_TRUE(fed.ok()) << fed.error().message;
  }
}

double error_per_s(const BestForecaster& forecaster, ForecastMethod method) {
  return forecaster.error(method).mean_absolute_per_s;
}

constexpr auto kEwma = ForecastMethod::kEwma;
constexpr auto kHoltWinters = ForecastMethod::kHoltWinters;
constexpr auto kChangePoint = ForecastMethod::kChangePoint;

// Given 10 and then 16 with a horizon of 15 s; expects the first forecast (10) to be scored at 15 s, within an interval, after
// 10 s at 16 and 5 s at 4: a mean of 12, an error of 2. Given a gap then; expects pending forecasts to stay unscored.
TEST(BestForecast, ScoresByHand) {
  BestForecaster best = make();
  feed(best, {{0, 10}, {10, 16}}, 15);
  EXPECT_EQ(best.error(kEwma).forecasts, 0);
  feed(best, {{20, 4}}, 15);
  for (const ForecastMethod method : kForecastMethods) {
    EXPECT_EQ(best.error(method).forecasts, 1);
    EXPECT_NEAR(best.error(method).mean_absolute_per_s, 2, 1e-12);
  }
  EXPECT_EQ(best.given_error(), best.error(kEwma));
  // The second (EWMA: 13) is due at 25 s, after 10 s at 4 and 5 s at 7: a mean of 5, an error of 8, and 5 on average with the
  // first.
  feed(best, {{30, 7}}, 15);
  EXPECT_EQ(best.error(kEwma).forecasts, 2);
  EXPECT_NEAR(error_per_s(best, kEwma), 5, 1e-12);
  feed(best, {{5000, 7}}, 15);
  EXPECT_EQ(best.error(kEwma).forecasts, 2);
  EXPECT_EQ(best.state().pending.size(), 1U);
}

// Given steady Poisson arrivals; expects EWMA from the first to the last sample, with the error of theory: normal with the
// variance of the level (rate / interval * gain / (2 - gain)) plus that of the counts over the horizon (rate / horizon).
TEST(BestForecast, SteadyIsEwmaAndNothingOscillates) {
  for (const double level_per_s : {2.0, 20.0, 200.0}) {
    SCOPED_TRACE(level_per_s);
    BestForecastOptions options;
    options.error_memory_s = 1e6;
    BestForecaster best = make(options);
    BestForecaster usual = make();
    double lowest = 1e9, highest = 0;
    for (const RateSample& sample : poisson_series(2e5, 21, [&](double) { return level_per_s; })) {
      feed(best, {sample});
      feed(usual, {sample});
      if (sample.time_s < 6000) continue;
      lowest = std::min(lowest, usual.forecast(kHorizon_s)->peak_per_s);
      highest = std::max(highest, usual.forecast(kHorizon_s)->peak_per_s);
    }
    const double gain = -std::expm1(-10 / options.methods.ewma.memory_s);
    const double variance = level_per_s / 10 * gain / (2 - gain) + level_per_s / kHorizon_s;
    const double theory = std::sqrt(2 * variance / std::numbers::pi);
    EXPECT_NEAR(error_per_s(best, kEwma), theory, 0.05 * theory);
    EXPECT_GT(error_per_s(best, kHoltWinters), 1.04 * error_per_s(best, kEwma));
    EXPECT_NEAR(error_per_s(best, kChangePoint), error_per_s(best, kEwma), 0.05 * theory);
    EXPECT_EQ(best.given_error().mean_absolute_per_s, error_per_s(best, kEwma));
    for (const BestForecaster* each : {&best, &usual}) {
      EXPECT_EQ(each->best(), kEwma);
      EXPECT_EQ(each->switches(), 0);
    }
    // Five standard deviations of the level to either side.
    const double wander = 5 * std::sqrt(level_per_s / 10 * gain / (2 - gain));
    EXPECT_GT(lowest, level_per_s - wander);
    EXPECT_LT(highest, level_per_s + wander);
  }
}

// Given a ramp; expects Holt-Winters, an error below half of EWMA's (which lags by its memory plus half the horizon), and the
// forecast's peak at the true rate one horizon ahead.
TEST(BestForecast, RampIsHoltWinters) {
  BestForecaster best = make();
  const auto ramp = [](double t) { return 20 + 0.02 * t; };
  const auto series = poisson_series(10'000, 22, ramp);
  feed(best, series);
  EXPECT_EQ(best.best(), kHoltWinters);
  EXPECT_LE(best.switches(), 2);
  EXPECT_LT(error_per_s(best, kHoltWinters), 0.5 * error_per_s(best, kEwma));
  EXPECT_LT(error_per_s(best, kHoltWinters), error_per_s(best, kChangePoint));
  EXPECT_NEAR(error_per_s(best, kEwma), 0.02 * (600 + kHorizon_s / 2), 2);
  const double ahead_per_s = ramp(series.back().time_s + kHorizon_s);
  EXPECT_NEAR(best.forecast(kHorizon_s)->peak_per_s, ahead_per_s, 0.05 * ahead_per_s);
}

// Given a rate that steps between 20 and 60 every half hour; expects the change-point detector, an error well below EWMA's, and
// answers that are nearly as good.
TEST(BestForecast, StepsAreTheChangePoints) {
  BestForecaster best = make();
  feed(best, poisson_series(40'000, 23, [](double t) { return std::fmod(t, 3600) < 1800 ? 20.0 : 60.0; }));
  EXPECT_EQ(best.best(), kChangePoint);
  EXPECT_LE(best.switches(), 3);
  EXPECT_LT(error_per_s(best, kChangePoint), 0.5 * error_per_s(best, kEwma));
  EXPECT_LT(error_per_s(best, kChangePoint), error_per_s(best, kHoltWinters));
  EXPECT_LT(best.given_error().mean_absolute_per_s, 1.2 * error_per_s(best, kChangePoint));
}

// Given five days of a daily curve and a horizon of half an hour; expects Holt-Winters with a daily season to win, with less
// than half of its error without a season, and below EWMA and the change-point detector.
TEST(BestForecast, DailySeasonIsHoltWinters) {
  const auto day = [](double t) { return 100 * (1 + 0.7 * std::sin(2 * std::numbers::pi * t / 86'400)); };
  const auto series = poisson_series(5 * 86'400, 24, day);
  BestForecastOptions options;
  options.error_memory_s = 86'400;
  options.methods.holt_winters.level_memory_s = 1800;
  options.methods.holt_winters.trend_memory_s = 86'400;
  BestForecaster trend = make(options);
  options.methods.holt_winters.season_s = 86'400;
  BestForecaster seasonal = make(options);
  feed(trend, series, 1800);
  feed(seasonal, series, 1800);
  EXPECT_EQ(seasonal.best(), kHoltWinters);
  EXPECT_LT(error_per_s(seasonal, kHoltWinters), 0.5 * error_per_s(trend, kHoltWinters));
  EXPECT_LT(error_per_s(seasonal, kHoltWinters), 0.5 * error_per_s(seasonal, kEwma));
  EXPECT_LT(error_per_s(seasonal, kHoltWinters), 0.5 * error_per_s(seasonal, kChangePoint));
  EXPECT_LT(error_per_s(seasonal, kHoltWinters), 0.02 * 100);
}

// Given a ramp that ends in steps; expects a switch to Holt-Winters and then to the change-point detector, because old errors
// are forgotten. Given steady load after a ramp; expects the answer to be within the margin of the best.
TEST(BestForecast, ForgetsOldErrors) {
  const auto ramp = [](double t) { return 20 + 0.02 * std::min(t, 8000.0); };
  BestForecaster stepping = make(), steady = make();
  feed(stepping, poisson_series(8000, 25, ramp));
  steady = stepping;
  EXPECT_EQ(stepping.best(), kHoltWinters);
  const double begin_s = stepping.state().methods[0].last->time_s;
  auto steps = poisson_series(40'000, 26, [&](double t) { return ramp(8000) * (std::fmod(t, 3600) < 1800 ? 1 : 0.5); });
  auto flat = poisson_series(40'000, 26, [&](double) { return ramp(8000); });
  for (auto* series : {&steps, &flat}) {
    for (RateSample& sample : *series) sample.time_s += begin_s;
  }
  feed(stepping, steps);
  EXPECT_EQ(stepping.best(), kChangePoint);
  feed(steady, flat);
  const double least = std::min(error_per_s(steady, kEwma), error_per_s(steady, kChangePoint));
  EXPECT_LE((1 - 0.2) * error_per_s(steady, steady.best()), least);
  EXPECT_LT(error_per_s(steady, kEwma), 4);  // on the ramp it was above 10
}

// Given refused samples and horizons; expects an error and an unchanged state.
TEST(BestForecast, RefusalsChangeNothing) {
  BestForecaster best = make();
  EXPECT_FALSE(best.forecast(60).ok());
  feed(best, poisson_series(1000, 26, [](double) { return 5.0; }));
  const BestForecastState state = best.state();
  EXPECT_FALSE(best.observe({2000, std::nan("")}, 60).ok());
  EXPECT_FALSE(best.observe({1, 5}, 60).ok());
  EXPECT_FALSE(best.observe({2000, 5}, 0).ok());
  EXPECT_FALSE(best.observe({2000, 5}, std::nan("")).ok());
  EXPECT_EQ(best.state(), state);
  BestForecastOptions options;
  options.margin = 1;
  EXPECT_FALSE(BestForecaster::make(options).ok());
  options = {};
  options.error_memory_s = 0;
  EXPECT_FALSE(BestForecaster::make(options).ok());
}

// Given horizons that change at every sample and random gaps; expects at most eight pending forecasts, finite errors, and a
// state that resumes at any time bit for bit.
TEST(BestForecast, ResumesFromItsStateAndStaysSmall) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "horizons");
    BestForecaster all = make(), part = make();
    double time_s = 0;
    for (int i = 0; i < 500; ++i) {
      time_s += rng.uniform() < 0.02 ? 2000 : rng.uniform(0.1, 100);
      const RateSample sample{time_s, rng.uniform() < 0.2 ? 0 : rng.uniform(0, 50)};
      const double horizon_s = rng.uniform(1, 600);
      feed(all, {sample}, horizon_s);
      feed(part, {sample}, horizon_s);
      if (rng.uniform() < 0.1) part = BestForecaster::resume(part.state(), {}).value();
      ASSERT_LE(all.state().pending.size(), kForecastsPerHorizon);
      const RateForecast forecast = all.forecast(horizon_s).value();
      ASSERT_TRUE(forecast.mean_per_s >= 0 && forecast.peak_per_s >= forecast.mean_per_s && std::isfinite(forecast.peak_per_s));
    }
    EXPECT_EQ(all.state(), part.state());
    EXPECT_GT(all.given_error().forecasts, 100);
    EXPECT_TRUE(std::isfinite(all.given_error().mean_absolute_per_s));
  }
  BestForecastState mixed;
  mixed.methods[1].method = EwmaState{};
  EXPECT_FALSE(BestForecaster::resume(mixed, {}).ok());
}

}  // namespace
}  // namespace windlass::workload
