// Tests arrivals over time: intervals, gaps, the level, the forecast over a start, and burstiness.
#include "planner/policy/arrivals.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/policy/tuning.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

// A counter that grows at rate(t), with the memory of the plans that read it.
class Counter {
 public:
  Counter() : service(testing::chat_service()) {
    service.starts = StartTimes{60, 5};
    memory.history_since_s = 0;
  }
  template <class Rate>
  void run(double until_s, Rate rate) {
    for (; now_s < until_s; now_s += 1) {
      total += rate(now_s);
      service.demand.arrivals_total = Reading{total, now_s};
      count_arrivals(memory, service, now_s);
    }
  }

  Service service;
  PolicyMemory memory;
  double now_s = 0;
  double total = 0;
};

// Given no starts, too few, invalid ones and enough; expects the assumption until there are enough, then the measured P90.
TEST(Arrivals, StartTimeIsMeasuredOrAssumed) {
  Service service = testing::chat_service();
  EXPECT_EQ(start_time_s(service), kAssumedStartS);
  service.starts = StartTimes{45, kStartsToBelieve - 1};
  EXPECT_EQ(start_time_s(service), kAssumedStartS);
  for (const auto& [seen_s, expected_s] : {std::pair(1.5, 4.5), {0.1, 1.0}, {300.0, 300.0}}) {
    service.starts = StartTimes{seen_s, 1};
    EXPECT_EQ(start_time_s(service), expected_s);
  }
  service.starts = StartTimes{45, kStartsToBelieve};
  EXPECT_EQ(start_time_s(service), 45);
  service.starts = StartTimes{std::numeric_limits<double>::quiet_NaN(), 9};
  EXPECT_EQ(start_time_s(service), kAssumedStartS);
}

// Given a steady count; expects its rate as the level of a whole minute, the same forecast, and no burstiness.
TEST(Arrivals, SteadyCountsAreTheirLevel) {
  Counter counter;
  counter.run(1800, [](double) { return 12.0; });
  const auto level = arrivals_level(counter.memory, counter.now_s);
  ASSERT_TRUE(level.has_value());
  EXPECT_NEAR(level->per_s, 12, 1e-9);
  EXPECT_NEAR(level->window_s, kLevelWindowS, kCountIntervalS);
  const auto forecast = forecast_arrivals(counter.memory, counter.service, counter.now_s);
  ASSERT_TRUE(forecast.has_value());
  EXPECT_NEAR(forecast->requests_per_s, 12, 1e-6);
  EXPECT_EQ(forecast->horizon_s, 60);
  EXPECT_GT(forecast->judged, kForecastsToBelieve);
  EXPECT_LT(forecast->relative_error, 1e-6);
  EXPECT_EQ(counter.memory.burstiness, 1);
}

// Given a steady rise; expects a forecast above the present level by about what a start-up time adds.
TEST(Arrivals, ARiseIsForecast) {
  Counter counter;
  counter.run(3600, [](double at_s) { return 5 + 0.02 * at_s; });
  const auto level = arrivals_level(counter.memory, counter.now_s);
  const auto forecast = forecast_arrivals(counter.memory, counter.service, counter.now_s);
  ASSERT_TRUE(level && forecast);
  EXPECT_EQ(forecast->method, "HoltWinters");
  EXPECT_GT(forecast->requests_per_s, level->per_s + 0.02 * 60);
  EXPECT_NEAR(forecast->requests_per_s, 5 + 0.02 * (counter.now_s + 60), 1.5);
}

// Given a count that is missing, NaN, falls, or was not read for long; expects a gap: no sample of zero, and no level from
// before.
TEST(Arrivals, GapsAreNoZeros) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::optional<Reading>& broken :
       {std::optional<Reading>(), std::optional<Reading>(Reading{nan, 1040}), std::optional<Reading>(Reading{-1, 1040}),
        std::optional<Reading>(Reading{1e9, 1000})}) {
    Counter counter;
    counter.run(1000, [](double) { return 12.0; });
    for (double now_s = 1000; now_s <= 1040; now_s += 1) {
      counter.service.demand.arrivals_total = broken;
      count_arrivals(counter.memory, counter.service, broken && broken->value == 1e9 ? 1040 : now_s);
    }
    for (const auto& sample : counter.memory.arrivals) EXPECT_NEAR(sample.rate_per_s, 12, 1e-9);
    counter.now_s = 1041;
    counter.run(1075, [](double) { return 12.0; });
    ASSERT_FALSE(counter.memory.arrivals.empty());
    for (const auto& sample : counter.memory.arrivals) EXPECT_NEAR(sample.rate_per_s, 12, 1e-9);
  }
  Counter counter;
  counter.run(1000, [](double) { return 12.0; });
  counter.total = 0;  // its writer restarted
  counter.run(1015, [](double) { return 12.0; });
  ASSERT_FALSE(counter.memory.arrivals.empty());
  for (const auto& sample : counter.memory.arrivals) EXPECT_NEAR(sample.rate_per_s, 12, 1e-9);
}

// Given the same moment counted twice; expects the same memory. Given years of counting; expects that the memory does not grow.
TEST(Arrivals, MemoryIsSmallAndCountingTwiceChangesNothing) {
  Counter counter;
  counter.run(1000, [](double) { return 3.0; });
  const PolicyMemory before = counter.memory;
  count_arrivals(counter.memory, counter.service, counter.now_s - 1);
  EXPECT_EQ(counter.memory, before);
  counter.run(100'000, [](double) { return 3.0; });
  EXPECT_LE(counter.memory.arrivals.size(), 7U);
  EXPECT_LE(counter.memory.forecast->pending.size(), workload::kForecastsPerHorizon);
  EXPECT_TRUE(counter.memory.forecast->methods[1].last.has_value());
}

// Given Poisson arrivals for an hour; expects a burstiness near 1. Given four times the rate during 20 s of every 2 minutes;
// expects one far above 1.
TEST(Arrivals, BurstinessIsLearned) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Rng rng(seed, "arrivals");
    Counter poisson;
    poisson.run(3600, [&](double) { return static_cast<double>(rng.poisson(20)); });
    EXPECT_LT(poisson.memory.burstiness, 1.8);
    Counter bursts;
    bursts.run(3600, [&](double at_s) { return static_cast<double>(rng.poisson(std::fmod(at_s, 120) < 20 ? 60 : 15)); });
    EXPECT_GT(bursts.memory.burstiness, 8);
  }
}

}  // namespace
}  // namespace windlass::planner
