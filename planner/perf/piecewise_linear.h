// PiecewiseLinear: a curve through points, straight between them; the outermost segments carry on.
//
// Beyond the last point it never falls (its slope there is at least 0): in a profile a last segment that falls is noise, and
// carried on it would promise times below zero. Below the first point it is at least 0. Pure value.
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

  // The y of points of one x are replaced by their median. REQUIRES: at least one point, all finite.
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
