// Validates and reads flags that take a percentage: "20%".
#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

namespace windlass::cli {

// "20%" gives 0.2; nullopt unless the text is a percentage of at least 0.
inline std::optional<double> share_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && std::string(end, text.data() + text.size()) == "%";
  return whole && value >= 0 && std::isfinite(value) ? std::optional(value / 100) : std::nullopt;
}

// A CLI11 validator.
inline CLI::Validator percent_check() {
  return CLI::Validator(
      [](std::string& text) { return share_of(text) ? std::string() : "must be a percentage such as 20% (got " + text + ")"; },
      "PERCENT");
}

}  // namespace windlass::cli
