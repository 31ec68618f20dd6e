// Tests of medians of repeated runs on a machine that also does other things.
#include "planner/perf/robust_median.h"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/base/rng.h"

namespace windlass::planner {
namespace {

// Given few runs; expects their median and its error: unknown for one, the distance of two, and never an outlier.
TEST(RobustMedian, FewRuns) {
  const RobustMedian one = robust_median({3});
  EXPECT_EQ(one.value, 3);
  EXPECT_TRUE(std::isinf(one.standard_error));
  const RobustMedian two = robust_median({3, 4});
  EXPECT_EQ(two.value, 3.5);
  EXPECT_GT(two.standard_error, 0);
  const RobustMedian four = robust_median({3, 100, 3.1, 2.9});
  EXPECT_EQ(four.outliers, 0U);
  EXPECT_DOUBLE_EQ(four.value, 3.05);
  const RobustMedian same = robust_median({2, 2, 2, 2, 2, 9});
  EXPECT_EQ(same.value, 2);
  EXPECT_EQ(same.standard_error, 0);
}

// Given runs of which one took far longer; expects it to be excluded, and the others' range to stay.
TEST(RobustMedian, OutliersAreLeftOut) {
  const RobustMedian median = robust_median({1.0, 1.1, 0.9, 1.05, 60, 0.95});
  EXPECT_EQ(median.outliers, 1U);
  EXPECT_EQ(median.kept, 5U);
  EXPECT_DOUBLE_EQ(median.value, 1.0);
  EXPECT_EQ(median.low, 0.9);
  EXPECT_EQ(median.high, 1.1);
}

// Given normal runs, thousands of times; expects the deviation of the medians to be the reported standard error within a tenth.
// Given a third of them delayed by a hundred deviations; expects the median to move by less than one.
TEST(RobustMedian, ItsErrorIsWhatItSays) {
  Rng rng(7, "robust median");
  const auto normal = [&] {  // the sum of twelve uniform values
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(rng.integer(0, 1'000'000)) / 1e6;
    return sum;
  };
  constexpr int kSets = 4000;
  double squares = 0, told = 0, moved = 0;
  for (int set = 0; set < kSets; ++set) {
    std::vector<double> runs, held_up;
    for (int i = 0; i < 41; ++i) {
      runs.push_back(10 + normal());
      held_up.push_back(runs.back() + (rng.integer(0, 2) == 0 ? 100 : 0));
    }
    const RobustMedian median = robust_median(runs);
    squares += (median.value - 10) * (median.value - 10);
    told += median.standard_error;
    moved += robust_median(held_up).value - 10;
  }
  EXPECT_NEAR(std::sqrt(squares / kSets) / (told / kSets), 1, 0.1);
  EXPECT_LT(moved / kSets, 1);
}

}  // namespace
}  // namespace windlass::planner
