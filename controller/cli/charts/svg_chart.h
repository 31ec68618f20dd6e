// SvgChart: line charts as SVG text, for figures in the docs and on pages. Self-contained: no fonts, scripts or files from
// elsewhere.
//
// One chart has one x axis, one y axis and series of points, each with an optional interval. Colours keep their contrast on
// white and are told apart by marker shape too. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace windlass::charts {

struct ChartPoint {
  double x = 0;
  double y = 0;
  std::optional<double> low, high;  // an interval, drawn as a whisker
};

struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;  // in the order in which they are joined; not finite: left out
  bool joined = true;
  bool marked = true;                    // false: a line of many points
  std::optional<std::size_t> like = {};  // drawn in the colour and with the marker of this series, and not in the legend
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<ChartSeries> series;
  bool y_log = false;
  bool x_log = false;
};

// REQUIRES: a point that is finite and, on logarithmic axes, above 0.
[[nodiscard]] std::string svg_of(const Chart& chart);

// As text between the tags of HTML or SVG.
[[nodiscard]] std::string escaped(const std::string& text);

}  // namespace windlass::charts
