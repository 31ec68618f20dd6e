// Interpolates a curve through points; see piecewise_linear.h.
#include "planner/perf/piecewise_linear.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>

namespace windlass::planner {

PiecewiseLinear::PiecewiseLinear(std::vector<Point> points) {
  assert(!points.empty());
  std::sort(points.begin(), points.end(),
            [](const Point& a, const Point& b) { return a.x < b.x || (a.x == b.x && a.y < b.y); });
  for (std::size_t first = 0, end = 0; first < points.size(); first = end) {
    assert(std::isfinite(points[first].x) && std::isfinite(points[first].y));
    while (end < points.size() && points[end].x == points[first].x) ++end;
    const std::size_t half = (end - first) / 2;
    const double median =
        (end - first) % 2 == 1 ? points[first + half].y : (points[first + half - 1].y + points[first + half].y) / 2;
    points_.push_back({points[first].x, median});
  }
}

double PiecewiseLinear::at(double x) const {
  assert(!empty());
  if (points_.size() == 1) return points_.front().y;
  const auto above = std::upper_bound(points_.begin() + 1, points_.end() - 1, x,
                                      [](double value, const Point& point) { return value < point.x; });
  const Point& low = *(above - 1);
  const Point& high = *above;
  const double slope = (high.y - low.y) / (high.x - low.x);
  if (x > points_.back().x) return points_.back().y + std::max(slope, 0.0) * (x - points_.back().x);
  const double y = low.y + slope * (x - low.x);
  return x < points_.front().x ? std::max(y, 0.0) : y;
}

}  // namespace windlass::planner
