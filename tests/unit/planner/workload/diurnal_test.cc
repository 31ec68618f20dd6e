// Tests the daily curve and its bursts against integrals of the curve and the moments of shot noise.
#include "planner/workload/diurnal.h"

#include <cmath>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/planner/workload/statistics.h"

namespace windlass::workload {
namespace {

// Given a curve; expects the requested peak time, peak-to-trough ratio, mean and period.
TEST(Diurnal, CurveHasItsShape) {
  const DiurnalArrivals spec{10, 4, 86'400, 50'400};
  EXPECT_DOUBLE_EQ(spec.curve_per_s(50'400), 16);
  EXPECT_DOUBLE_EQ(spec.curve_per_s(7'200), 4);
  EXPECT_DOUBLE_EQ(spec.curve_per_s(50'400 - 86'400), 16);
  double sum = 0;
  for (int i = 0; i < 1000; ++i) sum += spec.curve_per_s(86.4 * i) / 1000;
  EXPECT_NEAR(sum, 10, 1e-9);
}

// Given three days; expects as many arrivals in each of 24 hours as the integral of the curve (chi-square), and the mean rate
// overall.
TEST(Diurnal, FollowsTheCurve) {
  const DiurnalArrivals spec{1.5, 6, 86'400, 36'000};
  const auto times_s = arrivals_before(spec, 3 * 86'400, 8);
  std::vector<double> observed(24), expected(24);
  for (const double time_s : times_s) ++observed[static_cast<std::size_t>(time_s / 3600) % 24];
  const double turn = 2 * std::numbers::pi / 86'400;
  const auto integral = [&](double t) { return 1.5 * (t + 5.0 / 7 / turn * std::sin(turn * (t - 36'000))); };
  for (std::size_t hour = 0; hour < 24; ++hour) {
    const double begin_s = 3600 * static_cast<double>(hour);
    expected[hour] = 3 * (integral(begin_s + 3600) - integral(begin_s));
  }
  expect_chi_square(observed, expected);
  const double all = 1.5 * 3 * 86'400;
  EXPECT_NEAR(static_cast<double>(times_s.size()), all, 4 * std::sqrt(all));
}

// Given a flat curve without bursts; expects exactly Poisson arrivals, bit for bit.
TEST(Diurnal, FlatIsPoisson) {
  EXPECT_EQ(arrivals_before(DiurnalArrivals{3}, 500, 4), arrivals_before(PoissonArrivals{3}, 500, 4));
}

// Given bursts on a flat curve; expects counts in windows w, from time 0 on, with the mean rate and the variance of shot noise:
// rate * w + bursts * size^2 * v, where v is the integral of a burst's squared share in the window: w - d / 3 for windows
// longer than its duration d, otherwise w^2 / d - w^3 / (3 d^2).
TEST(Diurnal, BurstsHaveTheirDispersion) {
  const DiurnalArrivals spec{2, 1, 86'400, 0, 0.02, 25, 20};
  const double mean_per_s = mean_rate_per_s(ArrivalSpec(spec)).value();
  EXPECT_DOUBLE_EQ(mean_per_s, 2.5);
  constexpr double kEnd_s = 1e6;
  const auto times_s = arrivals_before(spec, kEnd_s, 31);
  for (const double w : {2.0, 20.0, 200.0}) {
    SCOPED_TRACE(w);
    const double d = spec.burst_duration_s;
    const double v = w >= d ? w - d / 3 : w * w / d - w * w * w / (3 * d * d);
    const double theory = mean_per_s * w + 0.02 * 25 * 25 * v;
    const auto windows = static_cast<std::size_t>(kEnd_s / w);
    const auto [mean, variance] = moments(counts(times_s, w, windows));
    EXPECT_NEAR(mean, mean_per_s * w, 5 * std::sqrt((mean_per_s + 0.02 * 25 * 25) / kEnd_s) * w);
    EXPECT_NEAR(variance, theory, 0.06 * theory);
  }
}

// Given many short runs; expects the mean rate in the first seconds, because bursts that began before time 0 are included.
TEST(Diurnal, BurstsAreStationaryFromTheStart) {
  const DiurnalArrivals spec{0.5, 1, 86'400, 0, 0.1, 40, 10};
  constexpr int kRuns = 20'000;
  std::vector<double> first, later;
  for (int run = 0; run < kRuns; ++run) {
    const auto in_windows = counts(arrivals_before(spec, 20, static_cast<std::uint64_t>(run)), 5, 4);
    first.push_back(in_windows[0]);
    later.push_back(in_windows[3]);
  }
  const auto begin = moments(first), end = moments(later);
  EXPECT_NEAR(begin.mean, 22.5, 4 * std::sqrt(begin.variance / kRuns));
  EXPECT_NEAR(end.mean, 22.5, 4 * std::sqrt(end.variance / kRuns));
  EXPECT_NEAR(begin.variance / end.variance, 1, 0.08);
}

// Given a curve and bursts over 40 periods; expects the sum of both mean rates, and the shape of the curve: the half around the
// peak has more arrivals, by the integral of the curve.
TEST(Diurnal, CurveAndBurstsAddUp) {
  const DiurnalArrivals spec{4, 3, 1000, 250, 0.05, 20, 15};
  const auto times_s = arrivals_before(spec, 40'000, 12);
  double high = 0, low = 0;
  for (const double time_s : times_s) (std::fmod(time_s, 1000) < 500 ? high : low) += 1;
  // Variance per second: 5 from the arrivals, 0.05 * 20^2 from the bursts.
  const double error = std::sqrt((5 + 0.05 * 400) * 40'000);
  EXPECT_NEAR(high + low, 5 * 40'000, 4 * error);
  EXPECT_NEAR(high - low, 40 * 2 * 4 * 0.5 * 1000 / std::numbers::pi, 4 * error);
}

}  // namespace
}  // namespace windlass::workload
