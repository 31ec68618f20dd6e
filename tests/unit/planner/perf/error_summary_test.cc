// Tests errors of predictions against figures computed by hand.
#include "planner/perf/error_summary.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace windlass::planner {
namespace {

// Given 1, 2, 4 predicted as 1.1, 1.8, 4: every figure as computed by hand.
TEST(ErrorSummary, FiguresByHand) {
  const std::vector<double> actual = {1, 2, 4};
  const std::vector<double> predicted = {1.1, 1.8, 4};
  const ErrorSummary summary = error_summary(actual, predicted);
  EXPECT_EQ(summary.samples, 3u);
  EXPECT_NEAR(summary.rmse, std::sqrt(0.05 / 3), 1e-12);
  EXPECT_NEAR(summary.mape, 0.2 / 3, 1e-12);
  EXPECT_NEAR(summary.median_ape, 0.1, 1e-12);
  EXPECT_NEAR(summary.max_ape, 0.1, 1e-12);
  EXPECT_NEAR(summary.r_squared, 1 - 0.05 / (14.0 / 3), 1e-12);
}

// Given an even number of samples: the median is the mean of the middle two.
TEST(ErrorSummary, MedianOfAnEvenNumber) {
  const std::vector<double> actual = {1, 1, 1, 1};
  const std::vector<double> predicted = {1, 1.1, 1.3, 2};
  EXPECT_NEAR(error_summary(actual, predicted).median_ape, 0.2, 1e-12);
}

// Given targets that do not vary: R^2 is 1 for exact predictions, and 0 otherwise.
TEST(ErrorSummary, ConstantTargets) {
  const std::vector<double> actual = {2, 2};
  EXPECT_EQ(error_summary(actual, actual).r_squared, 1);
  EXPECT_EQ(error_summary(actual, std::vector<double>{2, 3}).r_squared, 0);
}

}  // namespace
}  // namespace windlass::planner
