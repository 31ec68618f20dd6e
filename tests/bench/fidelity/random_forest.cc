// Implements random_forest.h.
#include "tests/bench/fidelity/random_forest.h"

#include <algorithm>

#include "planner/base/rng.h"

namespace windlass::bench {

RandomForest::RandomForest(int dimensions, const std::vector<double>& points, const std::vector<double>& values,
                           const Options& options)
    : dimensions_(dimensions), options_(options), points_(&points), values_(&values) {
  Rng rng(options.seed, "random forest");
  const auto last = static_cast<std::int64_t>(values.size()) - 1;
  for (int i = 0; i < options.trees; ++i) {
    std::vector<std::size_t> rows;
    for (std::size_t row = 0; row < values.size(); ++row) rows.push_back(static_cast<std::size_t>(rng.integer(0, last)));
    trees_.emplace_back();
    grow(trees_.back(), rows, 0, rows.size());
  }
  points_ = nullptr;
  values_ = nullptr;
}

int RandomForest::grow(std::vector<Node>& tree, std::vector<std::size_t>& rows, std::size_t begin, std::size_t end) const {
  const auto coordinate = [&](std::size_t row, int feature) {
    return (*points_)[row * static_cast<std::size_t>(dimensions_) + static_cast<std::size_t>(feature)];
  };
  const auto count = static_cast<double>(end - begin);
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += (*values_)[rows[i]];
  const int self = static_cast<int>(tree.size());
  tree.push_back({.value = sum / count});

  // The split that explains most: the largest sum of squared sums over counts.
  const auto first = rows.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = rows.begin() + static_cast<std::ptrdiff_t>(end);
  double best = sum * sum / count * (1 + 1e-12) + 1e-12;
  Node split;
  for (int feature = 0; feature < dimensions_; ++feature) {
    std::sort(first, last, [&](std::size_t a, std::size_t b) {
      const double left = coordinate(a, feature);
      const double right = coordinate(b, feature);
      return left != right ? left < right : a < b;
    });
    double below = 0;
    for (std::size_t i = begin; i + 1 < end; ++i) {
      below += (*values_)[rows[i]];
      const double low = coordinate(rows[i], feature);
      const double high = coordinate(rows[i + 1], feature);
      const auto on_left = static_cast<double>(i + 1 - begin);
      if (low == high || on_left < options_.smallest_leaf || count - on_left < options_.smallest_leaf) continue;
      const double above = sum - below;
      const double explained = below * below / on_left + above * above / (count - on_left);
      if (explained <= best) continue;
      best = explained;
      split.feature = feature;
      split.threshold = (low + high) / 2;
    }
  }
  if (split.feature < 0) return self;
  const auto middle =
      std::partition(first, last, [&](std::size_t row) { return coordinate(row, split.feature) <= split.threshold; });
  const auto cut = static_cast<std::size_t>(middle - rows.begin());
  split.below = grow(tree, rows, begin, cut);
  split.above = grow(tree, rows, cut, end);
  split.value = sum / count;
  tree[static_cast<std::size_t>(self)] = split;
  return self;
}

double RandomForest::at(std::span<const double> x) const {
  double sum = 0;
  for (const std::vector<Node>& tree : trees_) {
    const Node* node = &tree.front();
    while (node->feature >= 0) {
      const bool below = x[static_cast<std::size_t>(node->feature)] <= node->threshold;
      node = &tree[static_cast<std::size_t>(below ? node->below : node->above)];
    }
    sum += node->value;
  }
  return sum / static_cast<double>(trees_.size());
}

}  // namespace windlass::bench
