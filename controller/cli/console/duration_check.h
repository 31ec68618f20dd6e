// Validates and reads flags that take a duration: "500ms", "30s", "5m".
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "planner/base/duration.h"

namespace windlass::cli {

// A CLI11 validator.
inline CLI::Validator duration_check() {
  return CLI::Validator(
      [](std::string& text) {
        const auto parsed = parse_duration_s(text);
        return parsed.ok() ? std::string() : parsed.error().message;
      },
      "DURATION");
}

// Seconds of a text that passed duration_check(); 0 for any other text.
inline double duration_s(const std::string& text) { return parse_duration_s(text).value_or(0); }

}  // namespace windlass::cli
