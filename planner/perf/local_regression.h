// LocalRegression is a smooth surface through scattered measurements: at each query it fits a plane to the nearest points, with
// tricube weights by distance (locally weighted regression: Cleveland, "Robust Locally Weighted Regression", JASA 74, 1979).
//
// Operator tables use it with logarithms of sizes to predict the logarithm of measured time / roofline time. That ratio varies
// slowly, while the time itself covers five decades, and it halves the error on shapes that were not measured.
// docs/algorithms/latency.md compares it with alternatives by cross-validation: a random forest (Vidur's choice) over the same
// efficiencies is up to a point better on some tables and worse on others; this one is continuous, exact at measured points,
// and needs no training. Outside the bounding box of the points it returns the value at the nearest point of the box, because
// extrapolating a slope over decades is useless. Pure, immutable.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace windlass::planner {

class LocalRegression {
 public:
  struct Options {
    int neighbours = 12;
    double ridge = 1e-3;  // pulls slopes to 0 if the neighbours do not determine them; fraction of the sum of weights

    bool operator==(const Options&) const = default;
  };

  LocalRegression() = default;

  // `points` has values.size() rows of `dimensions` coordinates. Equal points are merged, with the median of their values.
  // REQUIRES: 1 <= dimensions <= 4, at least one point, all finite.
  LocalRegression(int dimensions, std::vector<double> points, std::vector<double> values, const Options& options);
  LocalRegression(int dimensions, std::vector<double> points, std::vector<double> values)
      : LocalRegression(dimensions, std::move(points), std::move(values), Options{}) {}

  [[nodiscard]] bool empty() const { return values_.empty(); }
  [[nodiscard]] std::size_t size() const { return values_.size(); }

  // REQUIRES: !empty(), x has `dimensions` coordinates.
  [[nodiscard]] double at(std::span<const double> x) const;

  // Whether x is in the bounding box of the points.
  [[nodiscard]] bool covers(std::span<const double> x) const;

 private:
  struct Near {
    double squared_distance;
    std::size_t index;
  };

  [[nodiscard]] const double* point(std::size_t index) const { return &points_[index * static_cast<std::size_t>(dimensions_)]; }
  void arrange(std::vector<std::size_t>& order, std::size_t begin, std::size_t end, int axis) const;
  template <int Dimensions>
  void find(const double* x, std::size_t begin, std::size_t end, int axis, std::vector<Near>& nearest) const;

  int dimensions_ = 0;
  Options options_;
  std::vector<double> points_;  // a k-d tree without pointers: the median of each range is in its middle
  std::vector<double> values_;
  std::vector<double> low_;
  std::vector<double> high_;
};

}  // namespace windlass::planner
