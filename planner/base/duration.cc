// Parses durations in one pass and prints them with as few terms as possible.
#include "planner/base/duration.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

namespace windlass {
namespace {

constexpr std::int64_t kMicrosPerSecond = 1'000'000;
constexpr std::int64_t kLargestTerm = 999'999;

// Prints whole seconds as hours, minutes and seconds; a single unit if that is enough.
std::string print_whole(std::int64_t seconds) {
  if (seconds % 3600 == 0 && seconds > 0) return fmt::format("{}h", std::min(seconds / 3600, kLargestTerm));
  if (seconds % 60 == 0 && seconds > 0 && seconds / 60 <= kLargestTerm) return fmt::format("{}m", seconds / 60);
  if (seconds <= kLargestTerm) return fmt::format("{}s", seconds);
  const std::int64_t minutes = seconds / 60;
  const std::string rest = seconds % 60 == 0 ? "" : fmt::format("{}s", seconds % 60);
  if (minutes <= kLargestTerm) return fmt::format("{}m{}", minutes, rest);
  return fmt::format("{}h{}{}", std::min(minutes / 60, kLargestTerm), minutes % 60 == 0 ? "" : fmt::format("{}m", minutes % 60),
                     rest);
}

}  // namespace

Result<double> parse_duration_s(std::string_view text) {
  struct Unit {
    std::string_view name;
    double micros;
  };
  static constexpr std::array<Unit, 6> kUnits = {
      {{"ns", 1e-3}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"m", 60e6}, {"h", 3600e6}}};  // "ms" before "m"
  const Error refused{ErrorCode::kInvalidArgument,
                      fmt::format("must be a duration such as 500ms, 30s, 5m or 1h30m (got '{}')", text)};
  const auto digits_from = [](std::string_view rest) { return std::min(rest.find_first_not_of("0123456789"), rest.size()); };
  if (text == "0") return 0.0;
  if (text.empty()) return refused;
  double total = 0;
  for (std::string_view rest = text; !rest.empty();) {
    std::size_t length = digits_from(rest);
    if (length == 0) return refused;
    if (length < rest.size() && rest[length] == '.') {
      const std::size_t decimals = digits_from(rest.substr(length + 1));
      if (decimals == 0) return refused;
      length += 1 + decimals;
    }
    double number = 0;
    if (std::from_chars(rest.data(), rest.data() + length, number, std::chars_format::fixed).ec != std::errc()) return refused;
    rest.remove_prefix(length);
    const auto* unit = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return rest.starts_with(u.name); });
    if (unit == kUnits.end()) return refused;
    rest.remove_prefix(unit->name.size());
    // Round to the microsecond, so that 1.1s and 1100ms are the same number.
    total += unit->micros > 1 ? std::round(number * unit->micros) : number * unit->micros;
  }
  if (total > kLargestTerm * 3600e6) return refused;
  return total / kMicrosPerSecond;
}

std::string print_duration(double seconds) {
  if (!(seconds > 0)) return "0s";
  if (seconds > kLargestTerm * 3600.0) return fmt::format("{}h", kLargestTerm);
  const std::int64_t micros = std::llround(seconds * kMicrosPerSecond);
  const std::int64_t whole_s = micros / kMicrosPerSecond;
  const std::int64_t rest = micros % kMicrosPerSecond;
  if (rest == 0) return print_whole(whole_s);
  if (micros / 1000 <= kLargestTerm) return fmt::format("{}ms", static_cast<double>(micros) / 1000);
  return print_whole(whole_s) + fmt::format("{}ms", static_cast<double>(rest) / 1000);
}

std::string print_duration_rounded(double seconds) {
  if (!(seconds > 0) || !std::isfinite(seconds)) return print_duration(seconds);
  const double step = std::pow(10, std::floor(std::log10(seconds)) - 2);
  return print_duration(std::round(seconds / step) * step);
}

}  // namespace windlass
