// The building blocks of HTML reports: the head and end of a self-contained page, figures and preformatted text. Pure.
#pragma once

#include <string>

#include "controller/cli/charts/svg_chart.h"

namespace windlass::cli {

// The page from its document type to its title. Close it with page_end().
[[nodiscard]] std::string page_head(const std::string& title, int width_px = 900);
[[nodiscard]] std::string page_end();

// Empty if the chart has no points.
[[nodiscard]] std::string figure_of(const charts::Chart& chart, const std::string& caption);
// `svg` is inserted as it is; the caption is escaped.
[[nodiscard]] std::string figure_of(const std::string& svg, const std::string& caption);
[[nodiscard]] std::string preformatted(const std::string& text);

}  // namespace windlass::cli
