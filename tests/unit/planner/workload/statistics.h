// Moments of arrivals, for tests that compare them with theory.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "planner/workload/arrivals.h"

namespace windlass::workload {

// All arrivals of the process before `end_s`; also checks their order.
inline std::vector<double> arrivals_before(const ArrivalSpec& spec, double end_s, std::uint64_t seed,
                                           std::string_view source = "test") {
  auto process = make_arrivals(spec, seed, source);
  EXPECT_TRUE(process.ok()) << process.error().message;
  std::vector<double> times_s;
  double last_s = 0;
  for (auto time_s = process.value()->next_s(); time_s && *time_s < end_s; time_s = process.value()->next_s()) {
    EXPECT_GE(*time_s, last_s);
    last_s = *time_s;
    times_s.push_back(*time_s);
  }
  return times_s;
}

// The number of times in each of the windows [0, w), [w, 2w), ...
inline std::vector<double> counts(const std::vector<double>& times_s, double window_s, std::size_t windows) {
  std::vector<double> counts(windows);
  for (const double time_s : times_s) {
    const auto window = static_cast<std::size_t>(time_s / window_s);
    if (window < windows) ++counts[window];
  }
  return counts;
}

struct Moments {
  double mean = 0;
  double variance = 0;
};

inline Moments moments(const std::vector<double>& values) {
  Moments result;
  const auto n = static_cast<double>(values.size());
  for (const double value : values) result.mean += value / n;
  for (const double value : values) result.variance += (value - result.mean) * (value - result.mean) / (n - 1);
  return result;
}

// Checks that the sum of (observed - expected)^2 / expected is within 5 standard deviations of its mean.
inline void expect_chi_square(const std::vector<double>& observed, const std::vector<double>& expected) {
  ASSERT_EQ(observed.size(), expected.size());
  double sum = 0;
  for (std::size_t i = 0; i < observed.size(); ++i) {
    ASSERT_GE(expected[i], 5);  // with fewer, the sum is not chi-square distributed
    sum += (observed[i] - expected[i]) * (observed[i] - expected[i]) / expected[i];
  }
  const auto n = static_cast<double>(observed.size());
  EXPECT_NEAR(sum, n, 5 * std::sqrt(2 * n));
}

}  // namespace windlass::workload
