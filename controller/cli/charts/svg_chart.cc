// Draws line charts as SVG; see svg_chart.h.
#include "controller/cli/charts/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace windlass::charts {
namespace {

constexpr double kWidth = 720, kHeight = 420, kLeft = 70, kRight = 190, kTop = 44, kBottom = 56;
constexpr std::array kColours = {"#0b5394", "#b45f06", "#38761d", "#990000", "#674ea7", "#007a87", "#7f6000", "#555555"};

// Maps a range of values, linear or logarithmic, to pixels from..to, and chooses round ticks.
class Axis {
 public:
  Axis(double low, double high, bool log, double from, double to) : log_(log), from_(from), to_(to) {
    if (log) {
      // The limits become 1, 2 or 5 times a power of ten.
      std::vector<double> digits;
      for (double power = std::floor(std::log10(low)); power <= std::ceil(std::log10(high)); ++power) {
        for (const double digit : {1.0, 2.0, 5.0}) digits.push_back(digit * std::pow(10, power));
      }
      std::size_t first = 0, last = digits.size() - 1;
      while (first + 1 < last && digits[first + 1] <= low) ++first;
      while (last > first + 1 && digits[last - 1] >= high) --last;
      low_ = std::log10(digits[first]);
      high_ = std::log10(digits[last]);
      for (std::size_t i = first; i <= last; ++i) {
        if (high_ - low_ <= 2.5 || i % 3 == 0) ticks_.push_back(digits[i]);
      }
      return;
    }
    if (!(high > low)) high = low + 1;
    const double raw = (high - low) / 6, power = std::pow(10, std::floor(std::log10(raw)));
    double step = 10 * power;
    for (const double digit : {5.0, 2.0, 1.0}) {
      if (digit * power >= raw) step = digit * power;
    }
    low_ = std::floor(low / step) * step;
    high_ = std::ceil(high / step) * step;
    for (int i = 0; low_ + i * step <= high_ + step / 2; ++i) ticks_.push_back(low_ + i * step);
  }

  [[nodiscard]] double at(double value) const {
    const double v = log_ ? std::log10(value) : value;
    return from_ + (to_ - from_) * (v - low_) / (high_ - low_);
  }
  [[nodiscard]] const std::vector<double>& ticks() const { return ticks_; }

 private:
  bool log_;
  double from_, to_, low_ = 0, high_ = 1;
  std::vector<double> ticks_;
};

std::string marker(std::size_t series, double x, double y) {
  const char* colour = kColours[series % kColours.size()];
  switch (series % 4) {
    case 0: return fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3.2' fill='{}'/>\n", x, y, colour);
    case 1: return fmt::format("<rect x='{:.1f}' y='{:.1f}' width='6' height='6' fill='{}'/>\n", x - 3, y - 3, colour);
    case 2: return fmt::format("<path d='M{:.1f} {:.1f}l4 7h-8z' fill='{}'/>\n", x, y - 4, colour);
    default: return fmt::format("<path d='M{:.1f} {:.1f}l4 4l-4 4l-4 -4z' fill='{}'/>\n", x, y - 4, colour);
  }
}

bool shown(const Chart& chart, const ChartPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y) && !(chart.y_log && point.y <= 0) && !(chart.x_log && point.x <= 0);
}

// The width of the legend: its longest name.
double width_of(const Chart& chart) {
  constexpr double kLetter = 7;  // average pixels per letter
  double longest = 0;
  for (const ChartSeries& series : chart.series) longest = std::max(longest, kLetter * static_cast<double>(series.name.size()));
  return std::max(kWidth, kWidth - kRight + 38 + longest);
}

struct Axes {
  Axis x, y;
};

// The range over all points that are drawn.
Axes axes_of(const Chart& chart) {
  double x_low = std::numeric_limits<double>::infinity(), x_high = -x_low, y_low = x_low, y_high = -x_low;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      if (!shown(chart, point)) continue;
      x_low = std::min(x_low, point.x);
      x_high = std::max(x_high, point.x);
      const double low = point.low.value_or(point.y);
      y_low = std::min({y_low, point.y, chart.y_log && low <= 0 ? point.y : low});
      y_high = std::max({y_high, point.y, point.high.value_or(point.y)});
    }
  }
  if (!chart.y_log && y_low > 0 && y_low < 0.6 * y_high) y_low = 0;
  return {Axis(x_low, x_high, chart.x_log, kLeft, kWidth - kRight), Axis(y_low, y_high, chart.y_log, kHeight - kBottom, kTop)};
}

// Draws the title, the axes, their ticks and names.
std::string frame_of(const Chart& chart, const Axes& axes) {
  std::string out = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' font-family='sans-serif' "
      "font-size='12'>\n<rect width='{0}' height='{1}' fill='white'/>\n<text x='{2}' y='24' font-size='15'>{3}</text>\n",
      width_of(chart), kHeight, kLeft, escaped(chart.title));
  for (const double tick : axes.x.ticks()) {
    out += fmt::format(
        "<path d='M{0:.1f} {1}V{2}' stroke='#e3e3e3'/><text x='{0:.1f}' y='{3}' text-anchor='middle'>{4:g}</text>\n",
        axes.x.at(tick), kTop, kHeight - kBottom, kHeight - kBottom + 18, tick);
  }
  for (const double tick : axes.y.ticks()) {
    out +=
        fmt::format("<path d='M{1} {0:.1f}H{2}' stroke='#e3e3e3'/><text x='{3}' y='{4:.1f}' text-anchor='end'>{5:g}</text>\n",
                    axes.y.at(tick), kLeft, kWidth - kRight, kLeft - 8, axes.y.at(tick) + 4, tick);
  }
  out +=
      fmt::format("<path d='M{0} {1}V{2}H{3}' fill='none' stroke='black'/>\n", kLeft, kTop, kHeight - kBottom, kWidth - kRight);
  out += fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>\n", (kLeft + kWidth - kRight) / 2, kHeight - 14,
                     escaped(chart.x_label));
  out += fmt::format("<text transform='translate(18 {}) rotate(-90)' text-anchor='middle'>{}</text>\n",
                     (kTop + kHeight - kBottom) / 2, escaped(chart.y_label));
  return out;
}

// Assigns a colour and marker to each series; series in the legend get one of their own.
std::vector<std::size_t> looks_of(const Chart& chart) {
  std::vector<std::size_t> looks;
  for (const ChartSeries& series : chart.series) {
    const auto in_legend = std::count_if(chart.series.begin(), chart.series.begin() + static_cast<std::ptrdiff_t>(looks.size()),
                                         [](const ChartSeries& before) { return !before.like; });
    looks.push_back(series.like ? looks[*series.like] : static_cast<std::size_t>(in_legend));
  }
  return looks;
}

// Draws the series' line, then its markers and intervals on top.
std::string points_of(const Chart& chart, const ChartSeries& series, std::size_t look, const Axes& axes) {
  const auto& [x, y] = axes;
  const char* colour = kColours[look % kColours.size()];
  std::string line, marks;
  for (const ChartPoint& point : series.points) {
    if (!shown(chart, point)) continue;
    line += fmt::format("{}{:.1f} {:.1f}", line.empty() ? "M" : "L", x.at(point.x), y.at(point.y));
    if (point.low && point.high) {
      const double bottom = chart.y_log && *point.low <= 0 ? point.y : *point.low;
      marks += fmt::format("<path d='M{0:.1f} {1:.1f}V{2:.1f}m-4 0h8M{3:.1f} {1:.1f}h8' stroke='{4}'/>\n", x.at(point.x),
                           y.at(bottom), y.at(*point.high), x.at(point.x) - 4, colour);
    }
    if (series.marked) marks += marker(look, x.at(point.x), y.at(point.y));
  }
  if (!series.joined || line.empty()) return marks;
  return fmt::format("<path d='{}' fill='none' stroke='{}' stroke-width='1.6'/>\n", line, colour) + marks;
}

std::string legend_entry(const ChartSeries& series, std::size_t look) {
  const double y = kTop + 10 + 20 * static_cast<double>(look);
  return marker(look, kWidth - kRight + 18, y) +
         fmt::format("<text x='{}' y='{}'>{}</text>\n", kWidth - kRight + 30, y + 4, escaped(series.name));
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string svg_of(const Chart& chart) {
  const Axes axes = axes_of(chart);
  const std::vector<std::size_t> looks = looks_of(chart);
  std::string out = frame_of(chart, axes);
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const ChartSeries& series = chart.series[i];
    out += points_of(chart, series, looks[i], axes);
    if (!series.like) out += legend_entry(series, looks[i]);
  }
  return out + "</svg>\n";
}

}  // namespace windlass::charts
