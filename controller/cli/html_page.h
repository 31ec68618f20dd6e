// The frame of a report: one self-contained HTML page with figures and text. Pure.
#pragma once

#include <string>

namespace windlass::cli {

// From the document type to the title on the page; page_end() closes it.
[[nodiscard]] std::string page_head(const std::string& title, int width_px = 900);
[[nodiscard]] std::string page_end();

// `svg` as it is; the others are text.
[[nodiscard]] std::string figure_of(const std::string& svg, const std::string& caption);
[[nodiscard]] std::string preformatted(const std::string& text);

}  // namespace windlass::cli
