// PiecewiseLinear is a curve of straight segments through points; the outermost segments continue.
//
// Beyond the last point it never falls (its slope is at least 0): a falling last segment of a profile is noise, and extending
// it would predict negative times. Below the first point the value is at least 0. Pure value.
#pragma once

#include <vector>

namespace windlass::planner {

class PiecewiseLinear {
 public:
  struct Point {
    double x = 0;
    double y = 0;

    bool operator==(const Point&) const = default;
  };

  PiecewiseLinear() = default;

  // Points with equal x are merged, with the median of their y. REQUIRES: at least one point, all finite.
  explicit PiecewiseLinear(std::vector<Point> points);

  [[nodiscard]] bool empty() const { return points_.empty(); }
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }  // ascending in x
  [[nodiscard]] bool covers(double x) const { return !empty() && points_.front().x <= x && x <= points_.back().x; }

  // A single point is a constant. REQUIRES: !empty().
  [[nodiscard]] double at(double x) const;

 private:
  std::vector<Point> points_;
};

}  // namespace windlass::planner
