// Durations as people write them in objects and flags ("500ms", "30s", "5m", "1h30m"), converted to and from seconds. Pure.
//
// A duration is "0" or a list of terms. Each term is a number (digits, optionally with decimals) and a unit: ns, us, ms, s, m
// or h. The total is at most 999999h. The pattern in crds/ is stricter: one to four terms, six digits, three decimals and no
// unit below ms.
#pragma once

#include <string>
#include <string_view>

#include "planner/base/result.h"

namespace windlass {

// "1h30m" -> 5400.
[[nodiscard]] Result<double> parse_duration_s(std::string_view text);

// The shortest text that parse_duration_s reads back as the same value, to the microsecond: 90 -> "90s", 300 -> "5m", 0.5 ->
// "500ms", 0.0123 -> "12.3ms", 0 -> "0s". Negative numbers and NaN print as "0s"; more than 999999h prints as "999999h".
[[nodiscard]] std::string print_duration(double seconds);

// Like print_duration, but with at most three significant digits, for a status that should not change with every measurement.
[[nodiscard]] std::string print_duration_rounded(double seconds);

}  // namespace windlass
