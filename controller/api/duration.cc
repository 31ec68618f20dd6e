// Durations: one pass over the text when read, the fewest terms when printed.
#include "controller/api/duration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include <fmt/format.h>

#include "controller/api/digit.h"

namespace windlass::api {
namespace {

constexpr std::int64_t kMicrosPerSecond = 1'000'000;
constexpr std::int64_t kLargestTerm = 999'999;

Error refuse(std::string_view text) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("found \"{}\", allowed is a duration such as 500ms, 30s, 5m or 1h30m", text)};
}

// Whole seconds in hours, minutes and seconds, with one unit where one is enough.
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
    double seconds;
  };
  static constexpr std::array<Unit, 4> kUnits = {{{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}}};  // "ms" before "m"
  double total = 0;
  int terms = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t begin = at;
    while (at < text.size() && digit(text[at])) ++at;
    if (at == begin || at - begin > 6) return refuse(text);
    if (at < text.size() && text[at] == '.') {
      const std::size_t decimals = ++at;
      while (at < text.size() && digit(text[at])) ++at;
      if (at == decimals || at - decimals > 3) return refuse(text);
    }
    const double number = std::strtod(std::string(text.substr(begin, at - begin)).c_str(), nullptr);
    const Unit* unit = nullptr;
    for (const Unit& candidate : kUnits) {
      if (text.substr(at).starts_with(candidate.name)) {
        unit = &candidate;
        break;
      }
    }
    if (unit == nullptr || ++terms > 4) return refuse(text);
    at += unit->name.size();
    // To the microsecond, so that 1.1s and 1100ms are the same number.
    total += std::round(number * unit->seconds * kMicrosPerSecond);
  }
  if (terms == 0) return refuse(text);
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

}  // namespace windlass::api
