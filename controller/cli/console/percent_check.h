// What commands share about flags with a percentage: "20%".
#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

namespace windlass::cli {

// 0.2 of "20%"; nullopt for a text that is no percentage of at least 0.
inline std::optional<double> share_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && std::string(end, text.data() + text.size()) == "%";
  return whole && value >= 0 && std::isfinite(value) ? std::optional(value / 100) : std::nullopt;
}

// CLI11's check.
inline CLI::Validator percent_check() {
  return CLI::Validator(
      [](std::string& text) { return share_of(text) ? std::string() : "must be a percentage such as 20% (got " + text + ")"; },
      "PERCENT");
}

}  // namespace windlass::cli
