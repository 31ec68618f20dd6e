// Tests when to plan again: shifts of the rate and of lengths are found and named; noise and small drifts are not.
#include "planner/strategies/distserve/distserve_shift.h"

#include <cmath>
#include <utility>

#include <gtest/gtest.h>

#include "planner/base/rng.h"

namespace windlass::search {
namespace {

constexpr WorkloadFigures kPlanned = {5, 500, 200};

// Poisson arrivals from `from_s` to `to_s` with exponential lengths, checked every minute; returns the first shift found, and
// when.
std::pair<std::optional<Shift>, double> run(WorkloadShift& watch, const WorkloadFigures& real, double from_s, double to_s,
                                            std::uint64_t seed) {
  Rng rng(seed, "shift");
  double next_check_s = from_s + 60;
  for (double t = from_s; t < to_s;) {
    t += real.requests_per_s > 0 ? rng.exponential(real.requests_per_s) : to_s;
    for (; next_check_s <= std::min(t, to_s); next_check_s += 60) {
      if (const auto shift = watch.check(next_check_s)) return {shift, next_check_s};
    }
    if (t >= to_s) break;
    watch.arrived(t, 1 + static_cast<int>(rng.exponential(1 / real.mean_input_tokens)));
    watch.ended(t, 1 + static_cast<int>(rng.exponential(1 / real.mean_output_tokens)));
  }
  return {std::nullopt, to_s};
}

// Given the planned traffic for half a day with ten seeds; expects no shift.
TEST(WorkloadShift, NoiseIsNoShift) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    WorkloadShift watch = WorkloadShift::make(kPlanned, 0).value();
    EXPECT_FALSE(run(watch, kPlanned, 0, 43'200, seed).first.has_value()) << seed;
  }
}

// Given a figure that doubles or halves after an hour; expects it to be named within ten minutes, with the planned and roughly
// the new value; nothing before, and nothing more after the new plan.
TEST(WorkloadShift, FindsEachFigure) {
  struct Case {
    ShiftedFigure figure;
    double WorkloadFigures::*member;
  };
  for (const Case& of : {Case{ShiftedFigure::kRate, &WorkloadFigures::requests_per_s},
                         Case{ShiftedFigure::kInputTokens, &WorkloadFigures::mean_input_tokens},
                         Case{ShiftedFigure::kOutputTokens, &WorkloadFigures::mean_output_tokens}}) {
    for (const double factor : {0.5, 2.0}) {
      WorkloadShift watch = WorkloadShift::make(kPlanned, 0).value();
      ASSERT_FALSE(run(watch, kPlanned, 0, 3600, 1).first.has_value());
      WorkloadFigures real = kPlanned;
      real.*of.member *= factor;
      const auto [shift, at_s] = run(watch, real, 3600, 7200, 2);
      ASSERT_TRUE(shift.has_value()) << to_string(of.figure) << " x " << factor;
      EXPECT_EQ(shift->figure, of.figure);
      EXPECT_EQ(shift->planned, kPlanned.*of.member);
      EXPECT_EQ(shift->found > shift->planned, factor > 1);
      EXPECT_LE(at_s, 3600 + 600);
      watch.planned(real, at_s);
      EXPECT_FALSE(run(watch, real, at_s, 14'400, 3).first.has_value());
      EXPECT_NEAR(watch.recent(14'400).*of.member, real.*of.member, 0.15 * real.*of.member);
    }
  }
}

// Given a rate that rises by a tenth; expects no shift. Given traffic that stops; expects a rate of 0. Given a change right
// after a plan; expects no other until the pause is over.
TEST(WorkloadShift, SmallDriftsSilenceAndRest) {
  WorkloadShift drifts = WorkloadShift::make(kPlanned, 0).value();
  EXPECT_FALSE(run(drifts, {5.5, 500, 200}, 0, 20'000, 5).first.has_value());
  WorkloadShift silent = WorkloadShift::make(kPlanned, 0).value();
  const auto [shift, at_s] = run(silent, {0, 500, 200}, 0, 7200, 6);
  ASSERT_TRUE(shift.has_value());
  EXPECT_EQ(shift->found, 0);
  EXPECT_EQ(shift->text(), "requests per second went from 5 to 0");
  EXPECT_GE(at_s, ShiftOptions{}.rest_s);
}

// Given bursts at the planned mean rate; expects no shift, because their spread is taken into account.
TEST(WorkloadShift, BurstsAreNoShift) {
  WorkloadShift watch = WorkloadShift::make({5, 500, 200}, 0, {.window_s = 300, .least_change = 0.05}).value();
  Rng rng(3, "bursts");
  for (double t = 0; t < 20'000; t += rng.exponential(0.05)) {  // 100 at a time, every 20 s on average
    for (int i = 0; i < 100; ++i) watch.arrived(t, 450 + static_cast<int>(rng.uniform(0, 100)));
    EXPECT_FALSE(watch.check(t).has_value()) << t;
  }
}

// Given options with errors; expects them to be named.
TEST(WorkloadShift, NamesMistakes) {
  EXPECT_EQ(WorkloadShift::make(kPlanned, 0, {.window_s = 0}).error().message, "shift.window: must be a time above 0 (got 0)");
  EXPECT_EQ(WorkloadShift::make(kPlanned, 0, {.least_change = -1}).error().message,
            "shift.leastChange: must be a share above 0 (got -1)");
  EXPECT_EQ(WorkloadShift::make({-1, 1, 1}, 0).error().message, "shift.requestsPerSecond: must be at least 0 (got -1)");
}

}  // namespace
}  // namespace windlass::search
