// LocalRegression: see local_regression.h. A k-d tree finds the neighbours; Cholesky's method solves the normal equations, at
// most five by five.
#include "planner/perf/local_regression.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>

namespace windlass::planner {

namespace {

constexpr std::size_t kMaxTerms = 5;  // a constant and four slopes

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Solves the symmetric positive definite system of `terms` rows, and returns its first unknown.
double first_unknown(std::array<std::array<double, kMaxTerms>, kMaxTerms>& matrix, std::array<double, kMaxTerms>& right,
                     std::size_t terms) {
  // Eliminate the unknowns from last to first, so that only the first is left at the end.
  for (std::size_t pivot = terms - 1; pivot > 0; --pivot) {
    for (std::size_t row = 0; row < pivot; ++row) {
      const double factor = matrix[row][pivot] / matrix[pivot][pivot];
      for (std::size_t column = 0; column < pivot; ++column) matrix[row][column] -= factor * matrix[pivot][column];
      right[row] -= factor * right[pivot];
    }
  }
  return right[0] / matrix[0][0];
}

}  // namespace

LocalRegression::LocalRegression(int dimensions, std::vector<double> points, std::vector<double> values, const Options& options)
    : dimensions_(dimensions), options_(options) {
  assert(1 <= dimensions && dimensions < static_cast<int>(kMaxTerms));
  assert(!values.empty() && points.size() == values.size() * static_cast<std::size_t>(dimensions));
  const auto width = static_cast<std::size_t>(dimensions);
  // Merge equal points.
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto compare = [&](std::size_t a, std::size_t b) {
    return std::lexicographical_compare_three_way(&points[a * width], &points[a * width] + width, &points[b * width],
                                                  &points[b * width] + width);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return compare(a, b) < 0; });
  std::vector<double> same;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    same.clear();
    for (; end < order.size() && compare(order[begin], order[end]) == 0; ++end) same.push_back(values[order[end]]);
    points_.insert(points_.end(), &points[order[begin] * width], &points[order[begin] * width] + width);
    values_.push_back(median(same));
    begin = end;
  }

  low_.assign(points_.begin(), points_.begin() + dimensions);
  high_ = low_;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    for (std::size_t d = 0; d < width; ++d) {
      low_[d] = std::min(low_[d], point(i)[d]);
      high_[d] = std::max(high_[d], point(i)[d]);
    }
  }

  order.resize(values_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  arrange(order, 0, order.size(), 0);
  std::vector<double> arranged_points;
  std::vector<double> arranged_values;
  arranged_points.reserve(points_.size());
  arranged_values.reserve(values_.size());
  for (const std::size_t i : order) {
    arranged_points.insert(arranged_points.end(), point(i), point(i) + width);
    arranged_values.push_back(values_[i]);
  }
  points_ = std::move(arranged_points);
  values_ = std::move(arranged_values);
}

void LocalRegression::arrange(std::vector<std::size_t>& order, std::size_t begin, std::size_t end, int axis) const {
  if (end - begin < 2) return;
  const std::size_t middle = begin + (end - begin) / 2;
  const auto at = [&](std::size_t offset) { return order.begin() + static_cast<std::ptrdiff_t>(offset); };
  std::nth_element(at(begin), at(middle), at(end), [&](std::size_t a, std::size_t b) {
    const double left = point(a)[axis];
    const double right = point(b)[axis];
    return left != right ? left < right : a < b;
  });
  arrange(order, begin, middle, (axis + 1) % dimensions_);
  arrange(order, middle + 1, end, (axis + 1) % dimensions_);
}

template <int Dimensions>
void LocalRegression::find(const double* x, std::size_t begin, std::size_t end, int axis, std::vector<Near>& nearest) const {
  const std::size_t middle = begin + (end - begin) / 2;
  const double* const at = &points_[middle * Dimensions];
  double squared_distance = 0;
  for (int d = 0; d < Dimensions; ++d) {
    const double difference = x[d] - at[d];
    squared_distance += difference * difference;
  }
  // A max-heap of the nearest points so far. Ties go to the smaller index, so the answer does not depend on the search order.
  const auto nearer = [](const Near& a, const Near& b) {
    return a.squared_distance != b.squared_distance ? a.squared_distance < b.squared_distance : a.index < b.index;
  };
  const Near found{squared_distance, middle};
  if (nearest.size() < static_cast<std::size_t>(options_.neighbours)) {
    nearest.push_back(found);
    std::push_heap(nearest.begin(), nearest.end(), nearer);
  } else if (nearer(found, nearest.front())) {
    std::pop_heap(nearest.begin(), nearest.end(), nearer);
    nearest.back() = found;
    std::push_heap(nearest.begin(), nearest.end(), nearer);
  }
  const double offset = x[axis] - at[axis];
  const int next = (axis + 1) % Dimensions;
  const auto look_in = [&](std::size_t first, std::size_t last) {
    if (first != last) find<Dimensions>(x, first, last, next, nearest);
  };
  const bool left_first = offset < 0;
  left_first ? look_in(begin, middle) : look_in(middle + 1, end);
  if (nearest.size() < static_cast<std::size_t>(options_.neighbours) || offset * offset <= nearest.front().squared_distance) {
    left_first ? look_in(middle + 1, end) : look_in(begin, middle);
  }
}

double LocalRegression::at(std::span<const double> x) const {
  assert(!empty() && x.size() == static_cast<std::size_t>(dimensions_));
  const auto width = static_cast<std::size_t>(dimensions_);
  std::array<double, kMaxTerms> inside{};
  for (std::size_t d = 0; d < width; ++d) inside[d] = std::clamp(x[d], low_[d], high_[d]);
  const std::span<const double> query(inside.data(), width);

  std::vector<Near> nearest;
  nearest.reserve(static_cast<std::size_t>(options_.neighbours));
  switch (dimensions_) {
    case 1: find<1>(query.data(), 0, values_.size(), 0, nearest); break;
    case 2: find<2>(query.data(), 0, values_.size(), 0, nearest); break;
    case 3: find<3>(query.data(), 0, values_.size(), 0, nearest); break;
    default: find<4>(query.data(), 0, values_.size(), 0, nearest);
  }
  double squared_reach = 0;
  for (const Near& near : nearest) {
    if (near.squared_distance == 0) return values_[near.index];
    squared_reach = std::max(squared_reach, near.squared_distance);
  }
  // The farthest neighbour keeps a little weight: with few points it may be the only one in its direction.
  const double reach = std::sqrt(squared_reach) * 1.0001;
  std::array<std::array<double, kMaxTerms>, kMaxTerms> matrix{};
  std::array<double, kMaxTerms> right{};
  double weights = 0;
  double low = values_[nearest.front().index];
  double high = low;
  for (const Near& near : nearest) {
    const double share = std::sqrt(near.squared_distance) / reach;
    const double rest = 1 - share * share * share;
    const double weight = rest * rest * rest + 1e-9;
    std::array<double, kMaxTerms> term{1};
    for (std::size_t d = 0; d < width; ++d) term[d + 1] = point(near.index)[d] - query[d];
    const double value = values_[near.index];
    for (std::size_t i = 0; i <= width; ++i) {
      for (std::size_t j = 0; j <= width; ++j) matrix[i][j] += weight * term[i] * term[j];
      right[i] += weight * term[i] * value;
    }
    weights += weight;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  for (std::size_t i = 1; i <= width; ++i) matrix[i][i] += options_.ridge * weights;
  // With neighbours on one side only, the plane may go far beyond their values; limit that to half their spread.
  const double margin = (high - low) / 2;
  return std::clamp(first_unknown(matrix, right, width + 1), low - margin, high + margin);
}

bool LocalRegression::covers(std::span<const double> x) const {
  assert(!empty() && x.size() == static_cast<std::size_t>(dimensions_));
  for (std::size_t d = 0; d < x.size(); ++d) {
    if (x[d] < low_[d] || x[d] > high_[d]) return false;
  }
  return true;
}

}  // namespace windlass::planner
