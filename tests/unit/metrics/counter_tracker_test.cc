// Counters read over time: writers restart, readers restart, readings are missed.
#include "metrics/counter_tracker.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "tests/effort.h"

namespace windlass::metrics {
namespace {

// Given a reader that starts while the counter is at a million; expects the history not to be an increase, and no rate before
// two readings.
TEST(CounterTracker, TheFirstReadingIsABaseline) {
  CounterTracker tracker;
  EXPECT_EQ(tracker.rate_per_s(0, 60), std::nullopt);
  tracker.observe(10, 1e6);
  EXPECT_EQ(tracker.rate_per_s(10, 60), std::nullopt);
  tracker.observe(20, 1e6 + 30);
  EXPECT_EQ(tracker.increase(20, 60), 30);
  EXPECT_EQ(tracker.rate_per_s(20, 60), 3);
  EXPECT_EQ(tracker.total(), 30);
  EXPECT_EQ(tracker.first_reading_s(), 10);
  EXPECT_EQ(tracker.last_reading_s(), 20);
}

// Given a writer that restarts (the reading falls); expects the new value to count in full and nothing to be negative.
TEST(CounterTracker, AFallIsARestartOfTheWriter) {
  CounterTracker tracker;
  tracker.observe(0, 100);
  tracker.observe(10, 150);
  tracker.observe(20, 20);
  tracker.observe(30, 25);
  EXPECT_EQ(tracker.increase(30, 60), 50 + 20 + 5);
  EXPECT_EQ(tracker.resets(), 1);
}

// Given a writer that restarts and passes its old value between two readings; expects its start time to reveal the restart.
TEST(CounterTracker, AChangedStartTimeIsARestart) {
  CounterTracker tracker;
  tracker.observe(0, 10, 1000.0);
  tracker.observe(10, 40, 1000.0);
  tracker.observe(20, 45, 1015.0);
  EXPECT_EQ(tracker.increase(20, 60), 30 + 45);
  EXPECT_EQ(tracker.resets(), 1);
}

// Given a series that appears after a reading without it; expects its first value to be an increase from 0.
TEST(CounterTracker, ASeriesBornUnderObservationStartsAtZero) {
  CounterTracker tracker;
  tracker.observe_absent(0);
  tracker.observe_absent(10);
  EXPECT_EQ(tracker.last_reading_s(), std::nullopt);
  tracker.observe(20, 7);
  EXPECT_EQ(tracker.increase(20, 60), 7);
  EXPECT_EQ(tracker.rate_per_s(20, 60), 0.7);
  tracker.observe_absent(30);
  tracker.observe(40, 9);
  EXPECT_EQ(tracker.increase(40, 60), 9);
}

// Given NaN, infinite, negative and out-of-order readings; expects them to be skipped, and the next good one to cover the gap.
TEST(CounterTracker, BadReadingsAreSkipped) {
  CounterTracker tracker;
  tracker.observe(0, 10);
  tracker.observe(10, NAN);
  tracker.observe(11, INFINITY);
  tracker.observe(12, -1);
  tracker.observe(20, 30);
  tracker.observe(20, 900);
  tracker.observe(15, 900);
  EXPECT_EQ(tracker.increase(20, 60), 20);
  EXPECT_EQ(tracker.resets(), 0);
}

// Given readings every 10 s; expects a window to begin at the last reading not after its start, and no value from a stale
// tracker.
TEST(CounterTracker, WindowsAndStaleness) {
  CounterTracker tracker(100);
  for (int i = 0; i <= 50; ++i) tracker.observe(i * 10, i * i);
  EXPECT_EQ(tracker.increase(500, 20), 2500 - 48 * 48);
  EXPECT_EQ(tracker.increase(505, 20), 2500 - 48 * 48);
  EXPECT_EQ(tracker.increase(500, 100), 2500 - 40 * 40);
  EXPECT_EQ(tracker.increase(600, 60), std::nullopt);
  EXPECT_EQ(tracker.last_reading_s(), 500);
}

// Given seeded random counters with random restarts, and a reading right before each restart; expects the true total.
TEST(CounterTracker, TotalIsExactOverRandomRestarts) {
  for (std::uint64_t seed = 1; seed <= effort(50U, 500U); ++seed) {
    std::mt19937_64 rng(seed);
    CounterTracker tracker(50);
    double value = static_cast<double>(rng() % 1000);
    double truth = 0;
    double start_s = 0;
    tracker.observe(0, value, start_s);
    for (int t = 1; t < 200; ++t) {
      if (rng() % 20 == 0) {
        value = 0;
        start_s = t;
      }
      const double grown = static_cast<double>(rng() % 10);
      value += grown;
      truth += grown;
      tracker.observe(t, value, start_s);
      ASSERT_EQ(tracker.total(), truth) << "seed " << seed << " t " << t;
      ASSERT_GE(*tracker.increase(t, 20), 0) << "seed " << seed;
    }
  }
}

// Given a reading per second for 1,000 s and a resolution of 10 s; expects the increase over a window to be exact to within one
// step and the total to be exact; the same for latency counts.
TEST(CounterTracker, ThinsOutWhatALongWindowDoesNotNeed) {
  CounterTracker counter(300, 10);
  LatencyTracker latencies(300, 10);
  for (int second = 0; second <= 1000; ++second) {
    counter.observe(second, 2.0 * second);
    latencies.observe(second, {LatencyCounts({{0.1, 0.2, 1.0 * second}, {0.2, 0.3, 1.0 * second}}), true});
  }
  EXPECT_EQ(counter.total(), 2000);
  const auto increase = counter.increase(1000, 300);
  ASSERT_TRUE(increase);
  EXPECT_GE(*increase, 600);
  EXPECT_LE(*increase, 600 + 2 * 10);
  const auto rate = counter.rate_per_s(1000, 300);
  EXPECT_DOUBLE_EQ(rate.value_or(0), 2);
  const auto window = latencies.increase(1000, 300);
  ASSERT_TRUE(window);
  EXPECT_GE(window->total(), 600);
  EXPECT_LE(window->total(), 600 + 2 * 10);
}

}  // namespace
}  // namespace windlass::metrics
