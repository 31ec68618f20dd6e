// Durations as people write them in objects and flags ("500ms", "30s", "5m", "1h", "1h30m"), as seconds. Pure.
//
// "0", or terms, each a number (digits, and decimals after a point) with a unit of ns, us, ms, s, m or h; in all at most
// 999999h. The pattern in crds/ allows objects less: one to four terms, six digits, three decimals and no unit below ms.
#pragma once

#include <string>
#include <string_view>

#include "planner/base/result.h"

namespace windlass {

// "1h30m" -> 5400. The error says what was found and what is allowed.
[[nodiscard]] Result<double> parse_duration_s(std::string_view text);

// The shortest text that parse_duration_s reads back as the same value to the microsecond: 90 -> "90s", 300 -> "5m", 0.5 ->
// "500ms", 0.0123 -> "12.3ms", 0 -> "0s". Negative and NaN print as "0s"; more than 999999h prints as "999999h".
[[nodiscard]] std::string print_duration(double seconds);

// The same with at most three significant digits, for a status that should not change with every measurement.
[[nodiscard]] std::string print_duration_rounded(double seconds);

}  // namespace windlass
