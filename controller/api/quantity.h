// Parses and prints Kubernetes quantities ("80Gi", "989T", "3350G", "1.5k") and fractions ("2.50", 99.9).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "planner/base/result.h"

namespace windlass::api {

// A decimal number with one of the suffixes k M G T P E (powers of 1000), Ki Mi Gi Ti Pi Ei (powers of 1024), m (thousandths)
// or an exponent (1e9). The error has the rule and the value.
[[nodiscard]] Result<double> parse_quantity(std::string_view text);

// A number of bytes: an integer from 0 to 2^63 - 1.
[[nodiscard]] Result<std::int64_t> parse_bytes(std::string_view text);

// The shortest exact text: 85899345920 -> "80Gi", 3350000000000 -> "3350G", 1001 -> "1001".
[[nodiscard]] std::string print_bytes(std::int64_t bytes);
[[nodiscard]] std::string print_quantity(double value);

// A fraction: digits with an optional decimal part. "2.50" -> 2.5.
[[nodiscard]] Result<double> parse_fraction(std::string_view text);

// 2.5 -> "2.5", 4 -> "4"; reads back as the same double. REQUIRES: finite and not negative.
[[nodiscard]] std::string print_fraction(double value);

// Same, with at most four significant digits, for a status.
[[nodiscard]] std::string print_fraction_rounded(double value);

}  // namespace windlass::api
