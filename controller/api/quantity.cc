// Parses and prints quantities and fractions. The decimal point is moved in the text, not by multiplication, so that 3.35T is
// exactly 3350000000000.
#include "controller/api/quantity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>

#include "controller/api/digit.h"

namespace windlass::api {
namespace {

struct Unit {
  std::string_view name;
  int exponent_of_10;    // for decimal units
  double binary_factor;  // for binary units; 0 otherwise
};

constexpr std::array<Unit, 14> kUnits = {{{"Ki", 0, 0x1p10},
                                          {"Mi", 0, 0x1p20},
                                          {"Gi", 0, 0x1p30},
                                          {"Ti", 0, 0x1p40},
                                          {"Pi", 0, 0x1p50},
                                          {"Ei", 0, 0x1p60},
                                          {"", 0, 0},
                                          {"m", -3, 0},
                                          {"k", 3, 0},
                                          {"M", 6, 0},
                                          {"G", 9, 0},
                                          {"T", 12, 0},
                                          {"P", 15, 0},
                                          {"E", 18, 0}}};

Error refuse(std::string_view text, std::string_view allowed) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("must be {} (got \"{}\")", allowed, text)};
}

// Length of the decimal number ("12", "12.5") at the start of the text; 0 if there is none.
std::size_t decimal_length(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && digit(text[at])) ++at;
  if (at == 0) return 0;
  if (at < text.size() && text[at] == '.') {
    const std::size_t decimals = ++at;
    while (at < text.size() && digit(text[at])) ++at;
    if (at == decimals) return 0;
  }
  return at;
}

// The value with at most `decimals` decimals and six digits before the point; empty if that is not exact.
std::string short_decimal(double value, int decimals) {
  if (value >= 1e6) return "";
  const double scale = std::pow(10, decimals);
  const double scaled = std::round(value * scale);
  std::string text = fmt::format("{}", scaled / scale);
  return text.find('e') == std::string::npos ? text : "";
}

}  // namespace

Result<double> parse_quantity(std::string_view text) {
  constexpr std::string_view kAllowed = "a quantity such as 80Gi, 989T, 1.5k or 100";
  const std::size_t length = decimal_length(text);
  if (length == 0 || length > 32) return refuse(text, kAllowed);
  const std::string number(text.substr(0, length));
  const std::string_view suffix = text.substr(length);
  if (suffix.size() >= 2 && (suffix[0] == 'e' || suffix[0] == 'E') && digit(suffix[1])) {
    if (suffix.size() > 3 || !digit(suffix.back())) return refuse(text, kAllowed);
    return std::strtod((number + "e" + std::string(suffix.substr(1))).c_str(), nullptr);
  }
  for (const Unit& unit : kUnits) {
    if (unit.name != suffix) continue;
    const double value = std::strtod(fmt::format("{}e{}", number, unit.exponent_of_10).c_str(), nullptr);
    return unit.binary_factor > 0 ? value * unit.binary_factor : value;
  }
  return refuse(text, kAllowed);
}

Result<std::int64_t> parse_bytes(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const double value, parse_quantity(text));
  if (value >= 0x1p63) return refuse(text, "at most 2^63 - 1 bytes");
  return static_cast<std::int64_t>(std::llround(value));
}

std::string print_bytes(std::int64_t bytes) {
  static constexpr std::array<std::string_view, 8> kOrder = {"Ti", "Gi", "Mi", "Ki", "T", "G", "M", "k"};
  if (bytes <= 0) return "0";
  for (const bool whole : {true, false}) {  // prefer integers: 80Gi, not 85.899T
    for (const std::string_view name : kOrder) {
      for (const Unit& unit : kUnits) {
        if (unit.name != name) continue;
        const double factor = unit.binary_factor > 0 ? unit.binary_factor : std::pow(10, unit.exponent_of_10);
        std::string text = short_decimal(static_cast<double>(bytes) / factor, whole ? 0 : 3);
        if (text.empty() || text == "0") continue;
        text += unit.name;
        if (const auto back = parse_quantity(text); back.ok() && *back == static_cast<double>(bytes)) return text;
      }
    }
  }
  return fmt::format("{}", bytes);
}

std::string print_quantity(double value) {
  static constexpr std::array<std::pair<std::string_view, int>, 5> kOrder = {
      {{"P", 15}, {"T", 12}, {"G", 9}, {"M", 6}, {"k", 3}}};
  if (!(value > 0)) return "0";
  for (const bool at_least_one : {true, false}) {
    for (const auto& [name, exponent] : kOrder) {
      const double scaled = value / std::pow(10, exponent);
      if (at_least_one && scaled < 1) continue;
      std::string text = short_decimal(scaled, 3);
      if (text.empty() || text == "0") continue;
      text += name;
      if (const auto back = parse_quantity(text); back.ok() && *back == value) return text;
    }
  }
  return fmt::format("{}", value);
}

Result<double> parse_fraction(std::string_view text) {
  if (text.empty() || text.size() > 32 || decimal_length(text) != text.size()) {
    return refuse(text, "an integer, or a quoted decimal such as \"2.5\"");
  }
  return std::strtod(std::string(text).c_str(), nullptr);
}

std::string print_fraction(double value) {
  std::string text = fmt::format("{}", value);
  // fmt prints very large and very small numbers with an exponent, which a fraction must not have.
  return text.find('e') == std::string::npos ? text : fmt::format("{:.{}f}", value, value >= 1 ? 0 : 9);
}

std::string print_fraction_rounded(double value) {
  if (!(value > 0) || !std::isfinite(value)) return "0";
  const double digits_before = std::floor(std::log10(value)) + 1;
  const int decimals = static_cast<int>(std::clamp(4 - digits_before, 0.0, 9.0));
  return print_fraction(std::strtod(fmt::format("{:.{}f}", value, decimals).c_str(), nullptr));
}

}  // namespace windlass::api
