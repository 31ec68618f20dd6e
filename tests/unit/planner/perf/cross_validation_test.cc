// Tests of splits: every sample is tested once, no fold trains on what it tests, and the seed determines the split.
#include "planner/perf/cross_validation.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace windlass::planner {
namespace {

// Checks that both parts are ascending and contain every index once.
void expect_partition(const Split& split, std::size_t samples) {
  EXPECT_TRUE(std::is_sorted(split.train.begin(), split.train.end()));
  EXPECT_TRUE(std::is_sorted(split.test.begin(), split.test.end()));
  std::set<std::size_t> all(split.train.begin(), split.train.end());
  all.insert(split.test.begin(), split.test.end());
  EXPECT_EQ(split.train.size() + split.test.size(), samples);
  EXPECT_EQ(all.size(), samples);
  EXPECT_EQ(*all.rbegin(), samples - 1);
}

// Given 2 to 40 samples and 2 to 12 folds: each index is tested once, and sizes differ by at most one.
TEST(CrossValidation, FoldsPartitionTheSamples) {
  for (std::size_t samples = 2; samples <= 40; ++samples) {
    for (int count = 2; count <= 12; ++count) {
      const auto folds = k_folds(samples, count, 7);
      ASSERT_EQ(folds.size(), std::min<std::size_t>(samples, static_cast<std::size_t>(count)));
      std::vector<int> tested(samples);
      std::size_t smallest = samples;
      std::size_t largest = 0;
      for (const Split& fold : folds) {
        expect_partition(fold, samples);
        for (const std::size_t index : fold.test) ++tested[index];
        smallest = std::min(smallest, fold.test.size());
        largest = std::max(largest, fold.test.size());
      }
      EXPECT_EQ(tested, std::vector<int>(samples, 1));
      EXPECT_LE(largest - smallest, 1u);
    }
  }
}

// Given the same seed twice and another one: the same split, and a different one.
TEST(CrossValidation, TheSeedDecides) {
  EXPECT_EQ(k_folds(100, 5, 1), k_folds(100, 5, 1));
  EXPECT_NE(k_folds(100, 5, 1), k_folds(100, 5, 2));
  EXPECT_EQ(random_split(100, 0.8, 1), random_split(100, 0.8, 1));
  EXPECT_NE(random_split(100, 0.8, 1), random_split(100, 0.8, 2));
}

// Given 3,000 splits of ten samples: each sample is tested in about a fifth of them (five standard deviations).
TEST(CrossValidation, SplitsAreEven) {
  std::vector<int> tested(10);
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Split split = random_split(10, 0.8, seed);
    expect_partition(split, 10);
    ASSERT_EQ(split.test.size(), 2u);
    for (const std::size_t index : split.test) ++tested[index];
  }
  for (const int count : tested) EXPECT_NEAR(count, 600, 5 * std::sqrt(3000 * 0.2 * 0.8));
}

// Given groups that recur: one fold each, in the order of first appearance.
TEST(CrossValidation, LeavesOneGroupOut) {
  const std::vector<std::string> groups = {"b", "a", "b", "c", "a"};
  const auto folds = leave_one_group_out(groups);
  ASSERT_EQ(folds.size(), 3u);
  EXPECT_EQ(folds[0], (Split{{1, 3, 4}, {0, 2}}));
  EXPECT_EQ(folds[1], (Split{{0, 2, 3}, {1, 4}}));
  EXPECT_EQ(folds[2], (Split{{0, 1, 2, 4}, {3}}));
}

// Given a fit that predicts each test index from itself: every prediction is at its index.
TEST(CrossValidation, PredictionsLandAtTheirSample) {
  const auto predicted = predict_held_out(23, k_folds(23, 4, 3), [](const Split& split) -> Result<std::vector<double>> {
    std::vector<double> values;
    for (const std::size_t index : split.test) values.push_back(10.0 * static_cast<double>(index));
    return values;
  });
  ASSERT_TRUE(predicted.ok());
  for (std::size_t i = 0; i < 23; ++i) EXPECT_EQ((*predicted)[i], 10.0 * static_cast<double>(i));
}

// Given a fit that fails on one fold: its error is returned, with the fold's number.
TEST(CrossValidation, AFailingFoldEndsIt) {
  int calls = 0;
  const auto predicted = predict_held_out(6, k_folds(6, 3, 0), [&](const Split& split) -> Result<std::vector<double>> {
    if (++calls == 2) return Error{ErrorCode::kFailedPrecondition, "no fit"};
    return std::vector<double>(split.test.size());
  });
  ASSERT_FALSE(predicted.ok());
  EXPECT_EQ(predicted.error().message, "fold 2 of 3: no fit");
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace windlass::planner
