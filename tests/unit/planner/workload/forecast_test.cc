// Tests of each forecast method against numbers by hand and plain sums over the past; and which samples are refused.
#include "planner/workload/forecast.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/unit/planner/workload/forecast_series.h"

namespace windlass::workload {
namespace {

constexpr double kHalvesIn10_s = 10 / std::numbers::ln2;  // a memory with which a weight halves every 10 s

Forecaster make(ForecastMethod method, const ForecastOptions& options = {}) {
  auto made = Forecaster::make(method, options);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(made).value();
}

void feed(Forecaster& forecaster, const std::vector<RateSample>& series) {
  for (const RateSample& sample : series) {
    const auto fed = forecaster.observe(sample);
    ASSERT_TRUE(fed.ok()) << fed.error().message;
  }
}

double mean_per_s(const Forecaster& forecaster, double horizon_s = 60) {
  return forecaster.forecast(horizon_s).value().mean_per_s;
}

// Given gains of 1, 1/2, 1/2 and, after twice the time, 3/4; expects the levels 8, 12, 8 and 14, and a flat forecast.
TEST(Ewma, ByHand) {
  ForecastOptions options;
  options.ewma.memory_s = kHalvesIn10_s;
  Forecaster ewma = make(ForecastMethod::kEwma, options);
  const std::vector<RateSample> series = {{0, 8}, {10, 16}, {20, 4}, {40, 16}};
  const std::vector<double> levels = {8, 12, 8, 14};
  for (std::size_t i = 0; i < series.size(); ++i) {
    feed(ewma, {series[i]});
    EXPECT_NEAR(mean_per_s(ewma), levels[i], 1e-12);
    EXPECT_EQ(ewma.forecast(60)->peak_per_s, ewma.forecast(60)->mean_per_s);
  }
}

// Given thousands of random irregular series; expects the level to be the weighted sum of all samples, computed at the end.
TEST(Ewma, IsTheWeightedSumOfThePast) {
  Rng rng(5, "series");
  for (int run = 0; run < 2000; ++run) {
    ForecastOptions options;
    options.ewma.memory_s = rng.uniform(5, 500);
    Forecaster ewma = make(ForecastMethod::kEwma, options);
    std::vector<RateSample> series;
    double time_s = rng.uniform(-1e4, 1e4);
    for (std::int64_t i = rng.integer(1, 40); i > 0; --i)
      series.push_back({time_s += rng.uniform(0.01, 60), rng.uniform(0, 9)});
    feed(ewma, series);
    double expected = 0, left = 1;
    for (std::size_t i = series.size(); i-- > 1;) {
      const double share = 1 - std::exp(-(series[i].time_s - series[i - 1].time_s) / options.ewma.memory_s);
      const double gain = std::max(share, 1.0 / static_cast<double>(i + 1));
      expected += left * gain * series[i].rate_per_s;
      left *= 1 - gain;
    }
    expected += left * series[0].rate_per_s;
    ASSERT_NEAR(mean_per_s(ewma), expected, 1e-9) << "run " << run;
  }
}

// Given gains of one half; expects level 23.75 and trend 0.5625 after 10, 20, 30: over 20 s mean 29.375, peak 35.
TEST(HoltWinters, TrendByHand) {
  ForecastOptions options;
  options.holt_winters.level_memory_s = kHalvesIn10_s;
  options.holt_winters.trend_memory_s = kHalvesIn10_s;
  Forecaster holt = make(ForecastMethod::kHoltWinters, options);
  feed(holt, {{0, 10}, {10, 20}, {20, 30}});
  EXPECT_NEAR(holt.forecast(20)->mean_per_s, 29.375, 1e-12);
  EXPECT_NEAR(holt.forecast(20)->peak_per_s, 35, 1e-12);
}

// Given a line without noise at irregular intervals; expects the forecast to converge to it.
TEST(HoltWinters, FollowsALine) {
  Forecaster holt = make(ForecastMethod::kHoltWinters);
  Rng rng(6, "gaps");
  double time_s = 0;
  while (time_s < 50'000) {
    const double elapsed_s = rng.uniform(5, 15);
    time_s += elapsed_s;
    feed(holt, {{time_s, 10 + 0.02 * time_s}});
  }
  EXPECT_NEAR(mean_per_s(holt, 300), 10 + 0.02 * (time_s + 150), 1e-6 * 1000);
  EXPECT_NEAR(holt.forecast(300)->peak_per_s, 10 + 0.02 * (time_s + 300), 1e-6 * 1000);
}

// Given a level of 10 that falls by 0.1 per second; expects zero from 100 s on: over 400 s a triangle of 500 requests. Given a
// level below zero; expects nothing, although its trend falls further.
TEST(HoltWinters, NeverBelowZero) {
  HoltWintersState state;
  state.level_per_s = 10;
  state.trend_per_s_per_s = -0.1;
  state.samples = 100;
  const auto falling = Forecaster::resume({RateSample{0, 10}, state}, {}).value();
  EXPECT_NEAR(falling.forecast(400)->mean_per_s, 500.0 / 400, 1e-12);
  EXPECT_EQ(falling.forecast(400)->peak_per_s, 10);
  state.level_per_s = -1;
  EXPECT_EQ(Forecaster::resume({RateSample{0, 0}, state}, {})->forecast(400).value(), (RateForecast{0, 0}));
}

HoltWintersState holt_winters_state(const Forecaster& forecaster) {
  return std::get<HoltWintersState>(forecaster.state().method);
}

ForecastOptions short_season() {
  ForecastOptions options;
  options.holt_winters.season_s = 40;
  options.holt_winters.season_bins = 4;
  return options;
}

// Given a season of 10, 20, 30, 20; expects it to take effect at its first end and not before. Over a season then expects mean
// 20 and peak 30; over the next quarter 12.5 (from 15, between the centres of 20 and 10, down to 10 and up to 15).
TEST(HoltWinters, SeasonByHand) {
  Forecaster seasonal = make(ForecastMethod::kHoltWinters, short_season());
  const std::vector<double> rates_per_s = {10, 20, 30, 20};
  feed(seasonal, {{0, 10}});
  for (int i = 0; i < 400; ++i) {
    EXPECT_EQ(holt_winters_state(seasonal).seasonal, i >= 4) << i;
    feed(seasonal, {{10.0 * (i + 1), rates_per_s[static_cast<std::size_t>(i % 4)]}});
    if (i == 3) {
      for (std::size_t bin = 0; bin < 4; ++bin)
        EXPECT_EQ(holt_winters_state(seasonal).season[bin].rate_per_s, rates_per_s[bin]);
    }
  }
  EXPECT_NEAR(seasonal.forecast(40)->mean_per_s, 20, 0.01);
  EXPECT_NEAR(seasonal.forecast(40)->peak_per_s, 30, 0.01);
  EXPECT_NEAR(seasonal.forecast(10)->mean_per_s, 12.5, 0.01);
  EXPECT_NEAR(seasonal.forecast(10)->peak_per_s, 15, 0.01);
}

// Given random seasonal states and horizons; expects mean and peak as on a fine grid over the curve.
TEST(HoltWinters, OverAHorizonIsTheGridsMeanAndPeak) {
  Rng rng(7, "states");
  for (int run = 0; run < 300; ++run) {
    const std::int64_t bins = rng.integer(2, 12);
    const double season_s = static_cast<double>(bins) * rng.uniform(1, 20);
    HoltWintersState state;
    state.samples = 100;
    state.level_per_s = rng.uniform(50, 60);
    state.trend_per_s_per_s = rng.uniform(-0.02, 0.02);
    state.season_s = season_s;
    state.seasonal = true;
    state.seen_bins = bins;
    for (std::int64_t i = 0; i < bins; ++i) {
      state.season.push_back({rng.uniform(0, 30), 1});
      state.season_mean_per_s += state.season.back().rate_per_s / static_cast<double>(bins);
    }
    ForecastOptions options;
    options.holt_winters.season_s = season_s;
    options.holt_winters.season_bins = bins;
    const double from_s = rng.uniform(-1000, 1000);
    const auto forecaster = Forecaster::resume({RateSample{from_s, 1}, state}, options).value();
    const double horizon_s = rng.uniform(0.1, 3) * season_s;
    const double width_s = season_s / static_cast<double>(bins);
    double sum = 0, peak = 0;
    constexpr int kSteps = 20'000;
    for (int i = 0; i < kSteps; ++i) {
      const double ahead_s = (i + 0.5) * horizon_s / kSteps;
      // The nearest centre at or before, counting over many seasons.
      const double place = (from_s + ahead_s) / width_s - 0.5 + 1e5 * static_cast<double>(bins);
      const auto left = static_cast<std::size_t>(place);
      const double share = place - static_cast<double>(left);
      const auto n = static_cast<std::size_t>(bins);
      const double effect = state.season[left % n].rate_per_s * (1 - share) + state.season[(left + 1) % n].rate_per_s * share;
      const double rate = state.level_per_s + state.trend_per_s_per_s * ahead_s + effect - state.season_mean_per_s;
      sum += rate;
      peak = std::max(peak, rate);
    }
    const RateForecast forecast = forecaster.forecast(horizon_s).value();
    ASSERT_NEAR(forecast.mean_per_s, sum / kSteps, 1e-3) << "run " << run;
    ASSERT_NEAR(forecast.peak_per_s, peak, 0.05) << "run " << run;
    ASSERT_GE(forecast.peak_per_s, peak);
  }
}

ChangePointState change_point_state(const Forecaster& forecaster) {
  return std::get<ChangePointState>(forecaster.state().method);
}

// Given a constant 4 and then 9; expects the third 9 to be the change (3.5, 7, 10.5 against 8) with the level 9 immediately;
// then the same back to 4. Given a single 9; expects no change.
TEST(ChangePoint, ByHand) {
  Forecaster detector = make(ForecastMethod::kChangePoint);
  double time_s = 0;
  const auto next = [&](double rate_per_s) { feed(detector, {{time_s += 10, rate_per_s}}); };
  for (int i = 0; i < 40; ++i) next(4);
  next(9);
  EXPECT_EQ(change_point_state(detector).up.sum, 3.5);
  for (int i = 0; i < 40; ++i) next(4);
  EXPECT_EQ(change_point_state(detector).changes, 0);
  EXPECT_LT(mean_per_s(detector), 4.1);
  // The single 9 has raised the noise estimate; forget it.
  for (int i = 0; i < 2000; ++i) next(4);
  next(9), next(9);
  EXPECT_EQ(change_point_state(detector).changes, 0);
  next(9);
  EXPECT_EQ(change_point_state(detector).changes, 1);
  EXPECT_EQ(mean_per_s(detector), 9);
  for (int i = 0; i < 2000; ++i) next(9);
  next(4), next(4), next(4);
  EXPECT_EQ(change_point_state(detector).changes, 2);
  EXPECT_EQ(mean_per_s(detector), 4);
}

// Given 10^6 s of steady Poisson arrivals; expects rare false changes: by Siegmund's approximation one in 9,600 samples, 10 in
// total; up to four times as many because reference and noise are estimated from 60 samples each; up to eight times at 0.5 per
// second, where a sample has 5 arrivals and some skew remains.
TEST(ChangePoint, FalseChangesAreRare) {
  const double b = 8 + 1.166;
  const double between = (std::exp(b) - b - 1) / 0.5 / 2;  // samples, both sides
  EXPECT_NEAR(between, 9600, 100);
  for (const double level_per_s : {0.5, 5.0, 20.0}) {
    SCOPED_TRACE(level_per_s);
    Forecaster detector = make(ForecastMethod::kChangePoint);
    const auto series = poisson_series(1e6, 11, [&](double) { return level_per_s; });
    feed(detector, series);
    const double most = (level_per_s < 1 ? 8 : 4) * static_cast<double>(series.size()) / between;
    EXPECT_LT(static_cast<double>(change_point_state(detector).changes), most);
    EXPECT_GT(change_point_state(detector).changes, 0);  // otherwise it never looked
  }
}

// Given 200 steps from 20 to 40 per second or back (12 standard deviations of a sample); expects each to be found within 5
// samples, and the level from then on within 4 standard errors of the new one.
TEST(ChangePoint, FindsAStepWithinFiveSamples) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const bool rises = seed % 2 == 0;
    const double after_per_s = rises ? 40 : 20;
    Forecaster detector = make(ForecastMethod::kChangePoint);
    std::int64_t before = -1;
    int found_after = 0, samples = 0;
    for (const RateSample& sample :
         poisson_series(2000, seed, [&](double t) { return t < 1800 ? 60 - after_per_s : after_per_s; })) {
      if (sample.time_s > 1800 && before < 0) before = change_point_state(detector).changes;
      feed(detector, {sample});
      if (before < 0) continue;
      ++samples;
      if (found_after == 0 && change_point_state(detector).changes > before) found_after = samples;
    }
    EXPECT_GE(found_after, 1);
    EXPECT_LE(found_after, 5);
    EXPECT_NEAR(mean_per_s(detector), after_per_s, 4 * std::sqrt(after_per_s / 150));
  }
}

// Given samples that are not finite, negative, or not later than the last; expects an error that names the field, and an
// unchanged state.
TEST(Forecaster, RefusesBadSamples) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  struct Case {
    RateSample sample;
    std::string field;
  };
  for (const ForecastMethod method : kForecastMethods) {
    SCOPED_TRACE(to_string(method));
    Forecaster forecaster = make(method);
    feed(forecaster, {{10, 5}, {20, 7}});
    const ForecasterState state = forecaster.state();
    for (const Case& bad : {Case{{30, nan}, "rate_per_s"}, Case{{30, infinity}, "rate_per_s"}, Case{{30, -1}, "rate_per_s"},
                            Case{{30, 1e13}, "rate_per_s"}, Case{{nan, 5}, "time_s"}, Case{{infinity, 5}, "time_s"},
                            Case{{20, 5}, "time_s"}, Case{{15, 5}, "time_s"}}) {
      const auto fed = forecaster.observe(bad.sample);
      ASSERT_FALSE(fed.ok());
      EXPECT_EQ(fed.error().code, ErrorCode::kInvalidArgument);
      EXPECT_NE(fed.error().message.find(bad.field), std::string::npos) << fed.error().message;
      EXPECT_EQ(forecaster.state(), state);
    }
  }
}

// Given no sample, or an invalid horizon; expects errors. Given only zeros; expects a forecast of zero.
TEST(Forecaster, HorizonsAndZeros) {
  for (const ForecastMethod method : kForecastMethods) {
    Forecaster forecaster = make(method);
    EXPECT_EQ(forecaster.forecast(60).error().code, ErrorCode::kFailedPrecondition);
    for (int i = 0; i < 100; ++i) feed(forecaster, {{10.0 * i, 0}});
    for (const double bad : {0.0, -1.0, 1e9, std::nan("")}) {
      EXPECT_EQ(forecaster.forecast(bad).error().code, ErrorCode::kInvalidArgument);
    }
    EXPECT_EQ(forecaster.forecast(60).value(), (RateForecast{0, 0}));
  }
}

// Given a gap longer than allowed; expects every method to restart at the next sample. Given one just allowed; expects no
// restart.
TEST(Forecaster, RestartsAfterAGap) {
  for (const ForecastMethod method : kForecastMethods) {
    SCOPED_TRACE(to_string(method));
    Forecaster forecaster = make(method);
    for (int i = 0; i <= 50; ++i) feed(forecaster, {{10.0 * i, 100.0 + i}});
    Forecaster waited = forecaster;
    feed(forecaster, {{500 + 601, 3}});
    EXPECT_EQ(forecaster.forecast(60).value(), (RateForecast{3, 3}));
    feed(waited, {{500 + 600, 3}});
    EXPECT_GT(mean_per_s(waited), 3.5);
  }
}

// Given a seasonal forecast and a gap; expects the season to survive.
TEST(Forecaster, SeasonsOutliveAGap) {
  ForecastOptions options = short_season();
  options.max_gap_s = 15;
  Forecaster seasonal = make(ForecastMethod::kHoltWinters, options);
  const std::vector<double> rates_per_s = {10, 20, 30, 20};
  for (int i = 0; i < 400; ++i) feed(seasonal, {{10.0 * i, rates_per_s[static_cast<std::size_t>((i + 3) % 4)]}});
  feed(seasonal, {{40'000, 15}});  // between 20 and 10: from the season
  EXPECT_NEAR(seasonal.forecast(40)->mean_per_s, 20, 0.5);
  EXPECT_NEAR(seasonal.forecast(40)->peak_per_s, 30, 0.5);
}

// Given a state handed over in mid-series; expects the same forecasts bit for bit. Given another season; expects a level
// without it.
TEST(Forecaster, ResumesFromItsState) {
  const auto series = poisson_series(20'000, 3, [](double t) { return 20 + 10 * std::sin(t / 3000); });
  ForecastOptions options;
  options.holt_winters.season_s = 2000;
  options.holt_winters.season_bins = 20;
  for (const ForecastMethod method : kForecastMethods) {
    Forecaster all = make(method, options);
    Forecaster part = make(method, options);
    for (std::size_t i = 0; i < series.size(); ++i) {
      feed(all, {series[i]});
      feed(part, {series[i]});
      if (i % 100 == 50) part = Forecaster::resume(part.state(), options).value();
    }
    EXPECT_EQ(all.state(), part.state());
    EXPECT_EQ(all.forecast(300).value(), part.forecast(300).value());
    EXPECT_EQ(all.method(), method);
  }
  Forecaster daily = make(ForecastMethod::kHoltWinters, options);
  feed(daily, series);
  options.holt_winters.season_bins = 10;
  const auto other = Forecaster::resume(daily.state(), options).value();
  EXPECT_FALSE(holt_winters_state(other).seasonal);
  EXPECT_EQ(mean_per_s(other), series.back().rate_per_s);
}

// Given options out of range; expects an error that names the field.
TEST(Forecaster, RefusesBadOptions) {
  const auto refused = [](const ForecastOptions& options, const std::string& field) {
    const auto made = Forecaster::make(ForecastMethod::kEwma, options);
    ASSERT_FALSE(made.ok()) << field;
    EXPECT_NE(made.error().message.find(field + ": must be"), std::string::npos) << made.error().message;
  };
  ForecastOptions options;
  options.max_gap_s = std::nan("");
  refused(options, "max_gap_s");
  options = {};
  options.ewma.memory_s = 0;
  refused(options, "ewma.memory_s");
  options = {};
  options.holt_winters.season_s = 95;
  refused(options, "holt_winters.season_s");
  options = {};
  options.holt_winters.season_bins = 1;
  refused(options, "holt_winters.season_bins");
  options = {};
  options.change_point.threshold = 0;
  refused(options, "change_point.threshold");
}

}  // namespace
}  // namespace windlass::workload
