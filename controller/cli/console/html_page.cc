// The fixed parts of a report's page; see html_page.h.
#include "controller/cli/console/html_page.h"

#include <algorithm>

#include <fmt/format.h>

namespace windlass::cli {

using charts::escaped;

std::string page_head(const std::string& title, int width_px) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
      "<meta name='viewport' content='width=device-width, initial-scale=1'>\n<title>{0}</title>\n"
      "<style>body{{font-family:sans-serif;max-width:{1}px;margin:2em auto;padding:0 "
      "1em;color:#111;background:#fff}}pre{{overflow-x:auto;background:#f6f6f6;padding:1em}}figure{{margin:2em "
      "0}}svg{{max-width:100%;height:auto}}figcaption{{color:#444}}.note{{border-left:4px solid "
      "#990000;padding-left:1em}}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      escaped(title), width_px);
}

std::string page_end() { return "</body>\n</html>\n"; }

std::string figure_of(const charts::Chart& chart, const std::string& caption) {
  const auto drawn = [&](const charts::ChartPoint& point) { return !chart.x_log || point.x > 0; };
  const bool any = std::any_of(chart.series.begin(), chart.series.end(), [&](const charts::ChartSeries& series) {
    return std::any_of(series.points.begin(), series.points.end(), drawn);
  });
  return any ? figure_of(charts::svg_of(chart), caption) : "";
}

std::string figure_of(const std::string& svg, const std::string& caption) {
  return fmt::format("<figure>\n{}<figcaption>{}</figcaption>\n</figure>\n", svg, escaped(caption));
}

std::string preformatted(const std::string& text) { return fmt::format("<pre>{}</pre>\n", escaped(text)); }

}  // namespace windlass::cli
