// Tests of all arrival processes: moments of the simple ones, seeds and streams, and errors by name.
#include "planner/workload/arrivals.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/says.h"
#include "tests/unit/planner/workload/statistics.h"

namespace windlass::workload {
namespace {

// Given constant arrivals; expects the k-th at k / rate, also after a million.
TEST(Arrivals, ConstantDoesNotDrift) {
  auto process = make_arrivals(ConstantArrivals{70}, 1, "a");
  ASSERT_TRUE(process.ok());
  for (int k = 1; k <= 1'000'000; ++k) ASSERT_EQ(process.value()->next_s(), k / 70.0);
}

// Given Poisson arrivals; expects counts in windows with mean and variance rate * window (an index of dispersion of 1) within
// five standard errors; and gaps that are exponential in every tenth of their distribution.
TEST(Arrivals, PoissonHasItsMoments) {
  constexpr std::size_t kWindows = 20'000;
  const auto times_s = arrivals_before(PoissonArrivals{3}, 2.0 * kWindows, 11);
  const auto [mean, variance] = moments(counts(times_s, 2, kWindows));
  EXPECT_NEAR(mean, 6, 5 * std::sqrt(6.0 / kWindows));
  EXPECT_NEAR(variance / mean, 1, 5 * std::sqrt(2.0 / kWindows));
  std::vector<double> tenths(10);
  for (std::size_t i = 1; i < times_s.size(); ++i) {
    const double below = -std::expm1(-3 * (times_s[i] - times_s[i - 1]));  // the share of shorter gaps
    ++tenths[std::min<std::size_t>(9, static_cast<std::size_t>(10 * below))];
  }
  expect_chi_square(tenths, std::vector<double>(10, static_cast<double>(times_s.size() - 1) / 10));
}

// Given gamma gaps with several coefficients of variation; expects gaps with the mean 1 / rate and that CV, and counts over
// long windows with an index of dispersion of CV^2 (renewal theory), within the error for 400,000 gaps.
TEST(Arrivals, GammaHasItsMoments) {
  for (const double cv : {0.25, 1.0, 2.0, 4.0}) {
    SCOPED_TRACE(cv);
    auto process = make_arrivals(GammaArrivals{5, cv}, 3, "a");
    ASSERT_TRUE(process.ok());
    constexpr int kGaps = 400'000;
    std::vector<double> gaps_s, times_s;
    double last_s = 0;
    for (int i = 0; i < kGaps; ++i) {
      const double time_s = process.value()->next_s().value();
      gaps_s.push_back(time_s - last_s);
      times_s.push_back(last_s = time_s);
    }
    const auto [mean_s, variance] = moments(gaps_s);
    EXPECT_NEAR(mean_s, 0.2, 5 * 0.2 * cv / std::sqrt(kGaps));
    // The relative variance of a sample variance is (kurtosis - 1) / n; the kurtosis of a gamma distribution is 3 + 6 cv^2.
    const double squared_cv = cv * cv;
    EXPECT_NEAR(variance / (0.2 * 0.2), squared_cv, 5 * squared_cv * std::sqrt((2 + 6 * squared_cv) / kGaps));
    constexpr double kWindow_s = 100;
    const auto windows = static_cast<std::size_t>(times_s.back() / kWindow_s);
    const auto count = moments(counts(times_s, kWindow_s, windows));
    EXPECT_NEAR(count.mean, 5 * kWindow_s, 5 * std::sqrt(5 * kWindow_s * squared_cv / static_cast<double>(windows)) + 1);
    EXPECT_NEAR(count.variance / count.mean, squared_cv, 0.25 * squared_cv + 0.01);
  }
}

// Given a CV of 0; expects the gaps of constant arrivals.
TEST(Arrivals, GammaWithoutVariationIsConstant) {
  auto process = make_arrivals(GammaArrivals{4, 0}, 3, "a");
  for (int k = 1; k <= 1000; ++k) ASSERT_EQ(process.value()->next_s(), k / 4.0);
}

std::vector<ArrivalSpec> every_kind() {
  return {ConstantArrivals{2},
          PoissonArrivals{3},
          GammaArrivals{4, 2},
          MarkovModulatedArrivals{{{1, 10}, {9, 5}}},
          DiurnalArrivals{2, 3, 1000, 200, 0.01, 30, 5},
          TraceArrivals{{0, 1, 2, 3, 5, 8, 13, 14, 15}, {2, 300.5}}};
}

// Given each kind; expects the same times twice for one seed and name, and other times for another seed or name (except
// constant arrivals, which are not random).
TEST(Arrivals, AreFixedBySeedAndName) {
  for (const ArrivalSpec& spec : every_kind()) {
    SCOPED_TRACE(spec.index());
    const auto times_s = arrivals_before(spec, 1000, 5, "a");
    EXPECT_GT(times_s.size(), 100U);
    EXPECT_EQ(times_s, arrivals_before(spec, 1000, 5, "a"));
    if (spec.index() == 0) continue;
    EXPECT_NE(times_s, arrivals_before(spec, 1000, 6, "a"));
    EXPECT_NE(times_s, arrivals_before(spec, 1000, 5, "b"));
  }
}

// Given each kind; expects the mean rate that follows from its parameters.
TEST(Arrivals, KnowTheirMeanRates) {
  const std::vector<double> expected = {2, 3, 4, (10.0 + 45) / 15, 2 + 0.01 * 30, 9 / (15 * 9.0 / 8) * 2 * 300.5};
  const auto kinds = every_kind();
  for (std::size_t i = 0; i < kinds.size(); ++i) EXPECT_DOUBLE_EQ(mean_rate_per_s(kinds[i]).value(), expected[i]);
}

// Given invalid specs; expects both functions to refuse them by field, found value and what is allowed.
TEST(Arrivals, NamesMistakes) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<ArrivalSpec, std::string>> cases = {
      {ConstantArrivals{0}, "arrivals: rate: must be 1e-9 to 1e9 per second*(got 0)"},
      {PoissonArrivals{-1}, "arrivals: rate: must*(got -1)"},
      {PoissonArrivals{nan}, "arrivals: rate: must*(got nan)"},
      {GammaArrivals{infinity, 1}, "arrivals: rate: must*(got inf)"},
      {GammaArrivals{1, -0.5}, "arrivals: cv: must be 0, or 1e-6 to 1000*(got -0.5)"},
      {GammaArrivals{1, nan}, "arrivals: cv: must*(got nan)"},
      {MarkovModulatedArrivals{}, "arrivals: states: must*(got none)"},
      {MarkovModulatedArrivals{{{1, 1}, {-2, 1}}}, "arrivals: states[1].rate: must*(got -2)"},
      {MarkovModulatedArrivals{{{1, 0}}}, "arrivals: states[0].meanDwell: must be above 0 s*(got 0)"},
      {MarkovModulatedArrivals{{{0, 1}, {0, 2}}}, "arrivals: states: must be at least 0.0001 arrivals per visit*(got 0)"},
      {DiurnalArrivals{0, 1}, "arrivals: mean rate: must*(got 0)"},
      {DiurnalArrivals{1, 0.5}, "arrivals: peakToTrough: must be 1 to*(got 0.5)"},
      {DiurnalArrivals{1, 2, -5}, "arrivals: period: must*(got -5)"},
      {DiurnalArrivals{1, 2, 5, infinity}, "arrivals: peakAt: must*(got inf)"},
      {DiurnalArrivals{1, 2, 5, 0, -1}, "arrivals: bursts.rate: must*(got -1)"},
      {DiurnalArrivals{1, 2, 5, 0, 1, 0.5, 1}, "arrivals: bursts.requests: must*(got 0.5)"},
      {DiurnalArrivals{1, 2, 5, 0, 1, 10, 0}, "arrivals: bursts.duration: must*(got 0)"},
      {DiurnalArrivals{1, 2, 5, 0, 1e3, 10, 1e3}, "arrivals: bursts: must be at most 100000*(got 1000000)"},
      {TraceArrivals{}, "arrivals: times: must be at least two*(got 0)"},
      {TraceArrivals{{1, 1}, {}}, "arrivals: times: must be at least two, with time between*(got 2)"},
      {TraceArrivals{{1, 2, 1}, {}}, "arrivals: times[2]: must*(got 1)"},
      {TraceArrivals{{-1, 2}, {}}, "arrivals: times[0]: must*(got -1)"},
      {TraceArrivals{{1, infinity}, {}}, "arrivals: times[1]: must*(got inf)"},
      {TraceArrivals{{1, 2}, {0, 1}}, "trace: time scale: must*(got 0)"},
      {TraceArrivals{{1, 2}, {1, -1}}, "trace: rate scale: must be a factor above 0*(got -1)"},
  };
  for (const auto& [spec, expected] : cases) {
    const auto process = make_arrivals(spec, 1, "a");
    ASSERT_FALSE(process.ok()) << expected;
    EXPECT_EQ(process.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(process.error().message, Says(expected));
    const auto rate = mean_rate_per_s(spec);
    ASSERT_FALSE(rate.ok()) << expected;
    EXPECT_EQ(rate.error().message, process.error().message);
  }
}

}  // namespace
}  // namespace windlass::workload
