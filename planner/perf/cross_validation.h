// Cross-validation of any fit: seeded splits of sample indices, and predictions of each sample by a fit that has not seen it.
//
//   auto predicted = predict_held_out(samples.size(), k_folds(samples.size(), 5, seed), [&](const Split& split) {
//     ... fit on split.train, return one prediction per index of split.test, in order ...
//   });
//
// Pure: the same seed gives the same split on every platform.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "planner/base/result.h"

namespace windlass::planner {

// Sample indices, ascending; each index is in one of the two.
struct Split {
  std::vector<std::size_t> train;
  std::vector<std::size_t> test;

  bool operator==(const Split&) const = default;
};

// Each index is in the test set of exactly one fold, and fold sizes differ by at most one. With more folds than samples, each
// fold has one sample. REQUIRES: samples >= 2, folds >= 2.
[[nodiscard]] std::vector<Split> k_folds(std::size_t samples, int folds, std::uint64_t seed);

// round(train_share * samples) of the indices, drawn without replacement, for training. REQUIRES: 0 < train_share < 1.
[[nodiscard]] Split random_split(std::size_t samples, double train_share, std::uint64_t seed);

// One fold per distinct group, in the order of first appearance; its test set is that group.
[[nodiscard]] std::vector<Split> leave_one_group_out(std::span<const std::string> groups);

using FitAndPredict = std::function<Result<std::vector<double>>(const Split&)>;

// Predicts every sample by the fold that tests it. Stops with the error of the first fold that fails.
// REQUIRES: each index is in exactly one test set.
[[nodiscard]] Result<std::vector<double>> predict_held_out(std::size_t samples, std::span<const Split> folds,
                                                           const FitAndPredict& fit_and_predict);

}  // namespace windlass::planner
