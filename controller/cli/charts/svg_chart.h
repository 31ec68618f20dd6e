// SvgChart: draws line charts as SVG text, for figures in the docs and on pages. Self-contained: no external fonts, scripts or
// files.
//
// A chart has one x axis, one y axis and series of points with optional intervals. Colours have contrast on white, and series
// also differ by marker shape. Pure.
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
  std::vector<ChartPoint> points;  // in drawing order; points that are not finite are skipped
  bool joined = true;
  bool marked = true;                    // false: a line without markers, for many points
  std::optional<std::size_t> like = {};  // takes the colour and marker of this series, and is not in the legend
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<ChartSeries> series;
  bool y_log = false;
  bool x_log = false;
};

// REQUIRES: at least one point that is finite and, on logarithmic axes, above 0.
[[nodiscard]] std::string svg_of(const Chart& chart);

// Escapes text for use between HTML or SVG tags.
[[nodiscard]] std::string escaped(const std::string& text);

}  // namespace windlass::charts
