// Cross-validation; see cross_validation.h. Shuffles by Fisher and Yates, with the stream "cross-validation".
#include "planner/perf/cross_validation.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include <fmt/format.h>

#include "planner/base/rng.h"

namespace windlass::planner {
namespace {

std::vector<std::size_t> shuffled(std::size_t samples, std::uint64_t seed) {
  std::vector<std::size_t> order(samples);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Rng rng(seed, "cross-validation");
  for (std::size_t i = samples; i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(i) - 1))]);
  }
  return order;
}

// fold_of[i]: the fold that tests sample i.
std::vector<Split> splits(const std::vector<std::size_t>& fold_of, std::size_t folds) {
  std::vector<Split> result(folds);
  for (std::size_t i = 0; i < fold_of.size(); ++i) {
    for (std::size_t fold = 0; fold < folds; ++fold) (fold == fold_of[i] ? result[fold].test : result[fold].train).push_back(i);
  }
  return result;
}

}  // namespace

std::vector<Split> k_folds(std::size_t samples, int folds, std::uint64_t seed) {
  assert(samples >= 2 && folds >= 2);
  const std::size_t count = std::min(samples, static_cast<std::size_t>(folds));
  const std::vector<std::size_t> order = shuffled(samples, seed);
  std::vector<std::size_t> fold_of(samples);
  for (std::size_t i = 0; i < samples; ++i) fold_of[order[i]] = i % count;
  return splits(fold_of, count);
}

Split random_split(std::size_t samples, double train_share, std::uint64_t seed) {
  assert(train_share > 0 && train_share < 1);
  const auto train = static_cast<std::size_t>(std::lround(train_share * static_cast<double>(samples)));
  const std::vector<std::size_t> order = shuffled(samples, seed);
  Split split{{order.begin(), order.begin() + static_cast<std::ptrdiff_t>(train)},
              {order.begin() + static_cast<std::ptrdiff_t>(train), order.end()}};
  std::sort(split.train.begin(), split.train.end());
  std::sort(split.test.begin(), split.test.end());
  return split;
}

std::vector<Split> leave_one_group_out(std::span<const std::string> groups) {
  std::unordered_map<std::string, std::size_t> known;  // group -> fold, numbered by first appearance
  std::vector<std::size_t> fold_of;
  fold_of.reserve(groups.size());
  for (const std::string& group : groups) fold_of.push_back(known.try_emplace(group, known.size()).first->second);
  return splits(fold_of, known.size());
}

Result<std::vector<double>> predict_held_out(std::size_t samples, std::span<const Split> folds,
                                             const FitAndPredict& fit_and_predict) {
  std::vector<double> predicted(samples);
  [[maybe_unused]] std::vector<int> tested(samples);
  for (std::size_t fold = 0; fold < folds.size(); ++fold) {
    auto result = fit_and_predict(folds[fold]);
    if (!result.ok()) return result.error().within(fmt::format("fold {} of {}", fold + 1, folds.size()));
    assert(result->size() == folds[fold].test.size());
    for (std::size_t i = 0; i < folds[fold].test.size(); ++i) {
      predicted[folds[fold].test[i]] = (*result)[i];
      ++tested[folds[fold].test[i]];
    }
  }
  assert(std::all_of(tested.begin(), tested.end(), [](int count) { return count == 1; }));
  return predicted;
}

}  // namespace windlass::planner
