// TextTable: rows of text in columns, as kubectl prints them. Pure; also the numbers in it as people read them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "planner/base/bound.h"

namespace windlass::cli {

inline constexpr std::size_t kRunnersUpShown = 10;  // of what a plan was chosen from

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);

  // REQUIRES: as many cells as the header has.
  void add(std::vector<std::string> row);

  // Columns as wide as their widest cell, two spaces apart; a line each, no trailing spaces.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};

// Characters of UTF-8, not bytes: "≤" is one.
[[nodiscard]] std::size_t width_of(const std::string& text);
// At most `width` of them, the last one "…" where some are left out; filled up with spaces.
[[nodiscard]] std::string fitted(const std::string& text, std::size_t width);

// 0.0123 -> "12.3ms", 1.5 -> "1.50s", 90 -> "90.0s"; nullopt -> "-".
[[nodiscard]] std::string seconds_text(std::optional<double> seconds);
// What was measured, to three digits, or a limit of it: "1.74ms", "<10ms".
[[nodiscard]] std::string seconds_text(std::optional<double> seconds, Bound bound);

// 3.14159 -> "3.14"; nullopt -> "-".
[[nodiscard]] std::string number_text(std::optional<double> value, int decimals = 2);

// 0.957 -> "95.7%"; nullopt -> "-".
[[nodiscard]] std::string percent_text(std::optional<double> share);

// 17179869184 -> "16.0GiB".
[[nodiscard]] std::string bytes_text(double bytes);

// Prose broken at spaces into lines of at most `width`, each after `indent` spaces.
[[nodiscard]] std::string wrapped(const std::string& text, int indent, int width = 110);

}  // namespace windlass::cli
