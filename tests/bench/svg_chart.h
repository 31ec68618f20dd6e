// SvgChart: line charts as SVG text, for figures in the docs. Self-contained: no fonts, scripts or files from elsewhere.
//
// One chart has one x axis, one y axis and series of points, each with an optional interval. Colours keep their contrast on
// white and are told apart by marker shape too. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace windlass::bench {

struct ChartPoint {
  double x = 0;
  double y = 0;
  std::optional<double> low, high;  // an interval, drawn as a whisker
};

struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;  // in the order in which they are joined; not finite: left out
  bool joined = true;
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<ChartSeries> series;
  bool y_log = false;
};

[[nodiscard]] std::string svg_of(const Chart& chart);

}  // namespace windlass::bench
