// The frame of a report: one self-contained HTML page with figures and text. Pure.
#pragma once

#include <string>

#include "controller/cli/charts/svg_chart.h"

namespace windlass::cli {

// From the document type to the title on the page; page_end() closes it.
[[nodiscard]] std::string page_head(const std::string& title, int width_px = 900);
[[nodiscard]] std::string page_end();

// Empty where the chart has no point to draw.
[[nodiscard]] std::string figure_of(const charts::Chart& chart, const std::string& caption);
// `svg` as it is; the others are text.
[[nodiscard]] std::string figure_of(const std::string& svg, const std::string& caption);
[[nodiscard]] std::string preformatted(const std::string& text);

}  // namespace windlass::cli
