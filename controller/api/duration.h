// Durations as people write them in objects ("500ms", "30s", "5m", "1h", "1h30m"), as seconds.
//
// The same grammar as the pattern in crds/: one to four terms, each a number of at most six digits (and at most three decimals)
// with a unit of ms, s, m or h.
#pragma once

#include <string>
#include <string_view>

#include "planner/base/result.h"

namespace windlass::api {

// "1h30m" -> 5400. The error says what was found and what is allowed.
[[nodiscard]] Result<double> parse_duration_s(std::string_view text);

// The shortest text that parse_duration_s reads back as the same value to the microsecond: 90 -> "90s", 300 -> "5m", 0.5 ->
// "500ms", 0.0123 -> "12.3ms", 0 -> "0s". Negative and NaN print as "0s"; more than 999999h prints as "999999h".
[[nodiscard]] std::string print_duration(double seconds);

// The same with at most three significant digits, for a status that should not change with every measurement.
[[nodiscard]] std::string print_duration_rounded(double seconds);

}  // namespace windlass::api
