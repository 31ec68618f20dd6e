// Lays out tables and numbers for people; see text_table.h.
#include "controller/cli/console/text_table.h"

#include <cassert>
#include <cmath>
#include <sstream>

#include <fmt/format.h>

namespace windlass::cli {
std::size_t width_of(const std::string& text) {
  std::size_t width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return width;
}

std::string fitted(const std::string& text, std::size_t width) {
  const std::size_t has = width_of(text);
  if (has <= width) return text + std::string(width - has, ' ');
  if (width == 0) return "";
  std::size_t end = 0;
  for (std::size_t kept = 0; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0) != 0x80 && kept++ == width - 1) break;
  }
  return text.substr(0, end) + "…";
}

TextTable::TextTable(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void TextTable::add(std::vector<std::string> row) {
  assert(row.size() == rows_.front().size());
  rows_.push_back(std::move(row));
}

std::string TextTable::text() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - width_of(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string seconds_text(std::optional<double> seconds) {
  if (!seconds || !std::isfinite(*seconds)) return "-";
  const double s = *seconds;
  if (s < 0.0995) return fmt::format("{:.1f}ms", s * 1e3);
  if (s < 0.9995) return fmt::format("{:.0f}ms", s * 1e3);
  if (s < 9.995) return fmt::format("{:.2f}s", s);
  return fmt::format("{:.1f}s", s);
}

std::string seconds_text(std::optional<double> seconds, Bound bound) {
  if (!seconds || !std::isfinite(*seconds)) return "-";
  const double s = *seconds;
  const std::string text = s < 0.9995  ? fmt::format("{:.3g}ms", s * 1e3)
                           : s < 999.5 ? fmt::format("{:.3g}s", s)
                                       : fmt::format("{:.0f}s", s);
  return std::string(sign_of(bound)) + text;
}

std::string interval_text(const std::string& value, const std::string& low, const std::string& high) {
  return low == high ? value : fmt::format("{} ({} to {})", value, low, high);
}

std::string number_text(std::optional<double> value, int decimals) {
  if (!value || !std::isfinite(*value)) return "-";
  return fmt::format("{:.{}f}", *value, decimals);
}

std::string percent_text(std::optional<double> share) {
  if (!share || !std::isfinite(*share)) return "-";
  return fmt::format("{:.1f}%", *share * 100);
}

std::string bytes_text(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}B", bytes) : fmt::format("{:.1f}{}", bytes, kUnits[unit]);
}

std::string wrapped(const std::string& text, int indent, int width) {
  std::istringstream words(text);
  std::string out;
  std::string line(static_cast<std::size_t>(indent), ' ');
  bool empty = true;
  for (std::string word; words >> word;) {
    if (!empty && width_of(line) + 1 + width_of(word) > static_cast<std::size_t>(width)) {
      out += line + "\n";
      line.assign(static_cast<std::size_t>(indent), ' ');
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  return empty ? out : out + line + "\n";
}

}  // namespace windlass::cli
