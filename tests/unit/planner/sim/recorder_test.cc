// Tests the recorder against exact moments and quantiles, and Student's t interval against a table.
#include "planner/sim/recorder.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"

namespace windlass::sim {
namespace {

// Given 100,000 draws of several distributions, from nanoseconds to years and with many zeros; expects exact moments and every
// quantile within 0.2 % of the exact one.
TEST(Recorder, AgreesWithTheExactValues) {
  Rng rng(1, "recorder");
  struct Case {
    const char* name;
    std::function<double()> draw;
  };
  const std::vector<Case> cases = {
      {"exponential", [&] { return rng.exponential(0.3); }},
      {"uniform", [&] { return rng.uniform(2, 3); }},
      {"logarithms uniform", [&] { return std::exp(rng.uniform(std::log(1e-9), std::log(1e8))); }},
      {"constant", [] { return 0.7; }},
      {"zeros", [&] { return rng.uniform() < 0.6 ? 0.0 : rng.exponential(2); }},
      {"mostly zeros", [&] { return rng.uniform() < 0.97 ? -0.0 : rng.exponential(2); }},
      {"heavy tail", [&] { return std::pow(1 - rng.uniform(), -1.5); }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    TimeRecorder recorder;
    std::vector<double> all(100'000);
    for (double& seconds : all) recorder.observe(seconds = one.draw());
    std::sort(all.begin(), all.end());
    long double sum = 0;
    for (const double seconds : all) sum += seconds;
    const long double mean = sum / static_cast<long double>(all.size());
    long double squares = 0;
    for (const double seconds : all) squares += (seconds - mean) * (seconds - mean);
    const auto deviation = static_cast<double>(std::sqrt(squares / static_cast<long double>(all.size() - 1)));
    const TimeSummary found = recorder.summary();
    EXPECT_EQ(recorder.count(), 100'000);
    EXPECT_NEAR(found.mean_s, static_cast<double>(mean), 1e-11 * static_cast<double>(mean));
    EXPECT_NEAR(found.standard_deviation_s, deviation, 1e-9 * deviation + 1e-13);
    EXPECT_EQ(found.min_s, all.front());
    EXPECT_EQ(found.max_s, all.back());
    const auto exact = [&](double share) {
      return all[static_cast<std::size_t>(std::ceil(share * static_cast<double>(all.size()))) - 1];
    };
    EXPECT_NEAR(found.p50_s, exact(0.50), 0.002 * exact(0.50));
    EXPECT_NEAR(found.p95_s, exact(0.95), 0.002 * exact(0.95));
    EXPECT_NEAR(found.p99_s, exact(0.99), 0.002 * exact(0.99));
  }
}

// Given nothing; expects zeros. Given one time; expects it everywhere. Given times beyond all buckets; expects the largest and
// smallest.
TEST(Recorder, ExtremeCases) {
  TimeRecorder recorder;
  EXPECT_EQ(recorder.summary().mean_s, 0);
  EXPECT_EQ(recorder.summary().p99_s, 0);
  recorder.observe(1.25);
  TimeSummary one = recorder.summary();
  EXPECT_EQ(one.mean_s, 1.25);
  EXPECT_EQ(one.standard_deviation_s, 0);
  EXPECT_EQ(one.p50_s, 1.25);
  EXPECT_EQ(one.p99_s, 1.25);
  TimeRecorder far;
  far.observe(1e-300);
  far.observe(1e300);
  EXPECT_EQ(far.summary().p50_s, 1e-300);
  EXPECT_GT(far.summary().p99_s, 1e10) << "in the last bucket, which is open";
}

// Given the means of replications; expects their mean and the half-width from a table of Student's t; none for one replication.
TEST(Replications, ConfidenceInterval) {
  const MeanEstimate five = mean_over_replications(std::vector<double>{1, 2, 3, 4, 5});
  EXPECT_DOUBLE_EQ(five.mean, 3);
  EXPECT_NEAR(five.half_width.value(), 2.776445 * std::sqrt(2.5 / 5), 1e-5);
  const MeanEstimate two = mean_over_replications(std::vector<double>{1, 3});
  EXPECT_NEAR(two.half_width.value(), 12.706205, 1e-5);
  EXPECT_EQ(mean_over_replications(std::vector<double>{7}).mean, 7);
  EXPECT_FALSE(mean_over_replications(std::vector<double>{7}).half_width.has_value());
  EXPECT_FALSE(mean_over_replications({}).half_width.has_value());
}

}  // namespace
}  // namespace windlass::sim
