// TextTable: aligns rows of text in columns, as kubectl prints them. Also formats numbers for people. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "planner/base/bound.h"

namespace windlass::cli {

inline constexpr std::size_t kRunnersUpShown = 10;  // alternatives that a plan prints

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);

  // REQUIRES: as many cells as the header.
  void add(std::vector<std::string> row);

  // Each column is as wide as its widest cell; two spaces between columns; no trailing spaces.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};

// The number of UTF-8 characters, not bytes: "≤" counts as one.
[[nodiscard]] std::size_t width_of(const std::string& text);
// Exactly `width` characters: cut with "…" at the end if longer, padded with spaces if shorter.
[[nodiscard]] std::string fitted(const std::string& text, std::size_t width);

// 0.0123 -> "12.3ms", 1.5 -> "1.50s", 90 -> "90.0s"; nullopt -> "-".
[[nodiscard]] std::string seconds_text(std::optional<double> seconds);
// A measurement with three digits, or its bound: "1.74ms", "<10ms".
[[nodiscard]] std::string seconds_text(std::optional<double> seconds, Bound bound);

// A prediction with its 90 % interval: "71.2ms (56ms to 90ms)"; "71.2ms" alone if both ends read the same, as "-" does without
// any.
[[nodiscard]] std::string interval_text(const std::string& value, const std::string& low, const std::string& high);

// 3.14159 -> "3.14"; nullopt -> "-".
[[nodiscard]] std::string number_text(std::optional<double> value, int decimals = 2);

// 0.957 -> "95.7%"; nullopt -> "-".
[[nodiscard]] std::string percent_text(std::optional<double> share);

// 17179869184 -> "16.0GiB".
[[nodiscard]] std::string bytes_text(double bytes);

// Breaks prose at spaces into lines of at most `width` characters, each indented by `indent` spaces.
[[nodiscard]] std::string wrapped(const std::string& text, int indent, int width = 110);

}  // namespace windlass::cli
