// What commands share about flags with a duration: "500ms", "30s", "5m".
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "planner/base/duration.h"

namespace windlass::cli {

// CLI11's check.
inline CLI::Validator duration_check() {
  return CLI::Validator(
      [](std::string& text) {
        const auto parsed = parse_duration_s(text);
        return parsed.ok() ? std::string() : parsed.error().message;
      },
      "DURATION");
}

// Of a text that was checked; 0 for any other.
inline double duration_s(const std::string& text) { return parse_duration_s(text).value_or(0); }

}  // namespace windlass::cli
