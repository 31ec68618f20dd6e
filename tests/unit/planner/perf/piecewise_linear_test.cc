// Tests of piecewise linear curves: medians, interpolation, and how they continue outside.
#include "planner/perf/piecewise_linear.h"

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

// Given several points with one x, in any order: their median; for an even number, the mean of the middle two.
TEST(PiecewiseLinear, RepeatedPointsBecomeTheirMedian) {
  const PiecewiseLinear curve({{2, 10}, {1, 5}, {2, 30}, {1, 1}, {2, 11}, {1, 4}, {1, 100}});
  EXPECT_EQ(curve.points(), (std::vector<PiecewiseLinear::Point>{{1, 4.5}, {2, 11}}));
}

// Given random curves: every point is on the curve, and between two neighbours the value is on their line.
TEST(PiecewiseLinear, IsStraightBetweenItsPoints) {
  Rng rng(1, "curves");
  for (int round = 0; round < effort(200, 2000); ++round) {
    std::vector<PiecewiseLinear::Point> points;
    double x = 0;
    for (std::int64_t n = rng.integer(2, 8); n > 0; --n) points.push_back({x += rng.uniform(0.1, 3), rng.uniform(0, 10)});
    const PiecewiseLinear curve(points);
    for (std::size_t i = 0; i < points.size(); ++i) {
      ASSERT_NEAR(curve.at(points[i].x), points[i].y, 1e-12);
      if (i == 0) continue;
      const double share = rng.uniform();
      const double between = points[i - 1].x + share * (points[i].x - points[i - 1].x);
      ASSERT_NEAR(curve.at(between), points[i - 1].y + share * (points[i].y - points[i - 1].y), 1e-9);
      ASSERT_TRUE(curve.covers(between));
    }
    ASSERT_FALSE(curve.covers(points.front().x - 0.01));
    ASSERT_FALSE(curve.covers(points.back().x + 0.01));
  }
}

// Given a rising and a falling curve: both continue with their outermost segments, but the falling one stays level beyond its
// end, and neither is negative below its start.
TEST(PiecewiseLinear, CarriesOnOutside) {
  const PiecewiseLinear rising({{1, 1}, {2, 3}, {4, 4}});
  EXPECT_DOUBLE_EQ(rising.at(8), 6);
  EXPECT_DOUBLE_EQ(rising.at(0.75), 0.5);
  EXPECT_DOUBLE_EQ(rising.at(0.1), 0);
  const PiecewiseLinear falling({{1, 3}, {2, 2}});
  EXPECT_DOUBLE_EQ(falling.at(10), 2);
  EXPECT_DOUBLE_EQ(falling.at(0), 4);
}

// Given a single point: a constant.
TEST(PiecewiseLinear, OnePointIsAConstant) {
  const PiecewiseLinear curve({{5, 2}});
  EXPECT_EQ(curve.at(1), 2);
  EXPECT_EQ(curve.at(100), 2);
  EXPECT_TRUE(curve.covers(5));
  EXPECT_FALSE(curve.covers(6));
}

}  // namespace
}  // namespace windlass::planner
