// Reads YAML maps and reports the line and path of the first error; see yaml_reader.h.
#include "planner/base/yaml_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/base/foreign_text.h"

namespace windlass {
namespace {

std::optional<double> plain_number(std::string_view whole) {
  std::string_view text = whole;
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  const auto digit = [](char c) { return '0' <= c && c <= '9'; };
  std::string_view digits = text;
  if (!digits.empty() && digits[0] == '-') digits.remove_prefix(1);
  if (digits.empty() || (!digit(digits[0]) && !(digits[0] == '.' && digits.size() > 1 && digit(digits[1]))))
    return std::nullopt;
  if (digits.size() > 1 && digits[0] == '0' && digit(digits[1])) return std::nullopt;
  if (text.size() != whole.size() && text[0] == '-') return std::nullopt;  // "+-1"
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  return number + 0.0;  // -0 becomes 0
}

struct Unit {
  std::string_view name;
  double seconds;
};
// Longer names first: "ms" ends in "s".
constexpr std::array kUnits = {Unit{"ns", 1e-9}, Unit{"us", 1e-6}, Unit{"ms", 1e-3},
                               Unit{"s", 1},     Unit{"m", 60},    Unit{"h", 3600}};

}  // namespace

Error YamlMistake::error(const std::string& source) const {
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", source, line, what)};
}

std::optional<double> plain_number(const YamlValue& value) {
  if (value.kind != YamlValue::Kind::kText || value.quoted) return std::nullopt;
  return plain_number(std::string_view(value.text));
}

std::optional<double> duration_seconds(std::string_view text) {
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    const auto number = plain_number(text.substr(0, text.size() - unit.name.size()));
    if (!number || *number < 0) return std::nullopt;
    // Dividing by a power of ten rounds once: 5us is the double next to 0.000005.
    const double seconds = unit.seconds >= 1 ? *number * unit.seconds : *number / std::round(1 / unit.seconds);
    return std::isfinite(seconds) ? std::optional(seconds) : std::nullopt;
  }
  return std::nullopt;
}

std::string duration_text(double seconds) {
  if (seconds == 0) return "0s";
  for (const auto& [name, scale] : {std::pair{"s", 1.0}, std::pair{"ms", 1e3}, std::pair{"us", 1e6}}) {
    if (seconds * scale >= 1) return fmt::format("{:.10g}{}", seconds * scale, name);
  }
  return fmt::format("{:.10g}ns", seconds * 1e9);
}

YamlReader::YamlReader(const YamlValue& value, std::string path, YamlMistake& mistake, std::vector<std::string>* notes)
    : value_(value), path_(std::move(path)), mistake_(mistake), notes_(notes) {
  if (value_.kind != YamlValue::Kind::kMap) {
    mistake_.keep(value_.line, fmt::format("{}must be a map (got {})", path_.empty() ? "" : path_ + ": ", found_text(value_)));
  }
}

YamlReader YamlReader::inside(const char* key, const YamlValue& value) const { return {value, path_of(key), mistake_, notes_}; }

YamlReader YamlReader::item(const char* key, const YamlValue& list, std::size_t i) const {
  return {list.items[i], fmt::format("{}[{}]", path_of(key), i), mistake_, notes_};
}

const YamlValue* YamlReader::find(const char* key) {
  if (std::find(keys_.begin(), keys_.end(), key) == keys_.end()) keys_.emplace_back(key);
  return member_of(value_, key);
}

const YamlValue* YamlReader::require(const char* key, std::string_view allowed) {
  const YamlValue* found = find(key);
  if (found == nullptr) mistake_.keep(value_.line, fmt::format("{}: missing, must be {}", path_of(key), allowed));
  return found;
}

double YamlReader::number(const char* key, NumberRange range) {
  const std::string allowed = fmt::format("a number from {} to {}", range.low, range.high);
  const YamlValue* found = require(key, allowed);
  if (found == nullptr) return range.high;
  const auto value = plain_number(*found);
  if (value && range.low <= *value && *value <= range.high) return *value;
  refuse(key, *found, allowed);
  return range.high;
}

std::int64_t YamlReader::whole(const char* key, std::int64_t low, std::int64_t high, std::optional<std::int64_t> otherwise) {
  const std::string allowed = fmt::format("a whole number from {} to {}", low, high);
  const YamlValue* found = otherwise ? find(key) : require(key, allowed);
  if (found == nullptr) return otherwise.value_or(low);
  const auto value = plain_number(*found);
  if (value && *value == std::floor(*value) && std::abs(*value) <= 9007199254740992.0 && *value >= static_cast<double>(low) &&
      *value <= static_cast<double>(high)) {
    return static_cast<std::int64_t>(*value);
  }
  refuse(key, *found, allowed);
  return low;
}

std::string YamlReader::text(const char* key, std::string_view what, std::size_t max_bytes) {
  const YamlValue* found = require(key, what);
  if (found == nullptr) return "";
  if (found->kind == YamlValue::Kind::kText && !found->text.empty() && found->text.size() <= max_bytes &&
      is_printable(found->text)) {
    return found->text;
  }
  refuse(key, *found, what);
  return "";
}

std::size_t YamlReader::choice(const char* key, std::span<const char* const> allowed, std::optional<std::size_t> otherwise) {
  const std::string words = fmt::format("one of {}", fmt::join(allowed, ", "));
  const YamlValue* found = otherwise ? find(key) : require(key, words);
  if (found == nullptr) return otherwise.value_or(0);
  if (found->kind == YamlValue::Kind::kText) {
    for (std::size_t i = 0; i < allowed.size(); ++i) {
      if (found->text == allowed[i]) return i;
    }
  }
  refuse(key, *found, words);
  return 0;
}

bool YamlReader::flag(const char* key) {
  const YamlValue* found = find(key);
  if (found == nullptr) return false;
  if (found->kind == YamlValue::Kind::kText && !found->quoted && (found->text == "true" || found->text == "false")) {
    return found->text == "true";
  }
  refuse(key, *found, "true or false");
  return false;
}

double YamlReader::duration_s(const char* key, NumberRange range_s) {
  const std::string allowed = fmt::format("a time with its unit (ns, us, ms, s, m, h) from {} to {}",
                                          duration_text(range_s.low), duration_text(range_s.high));
  const YamlValue* found = require(key, allowed);
  if (found == nullptr) return range_s.high;
  if (found->kind == YamlValue::Kind::kText) {
    const auto value = duration_seconds(found->text);
    if (value && range_s.low <= *value && *value <= range_s.high) return *value;
  }
  refuse(key, *found, allowed);
  return range_s.high;
}

const YamlValue* YamlReader::list(const char* key, std::size_t fewest, std::size_t most, std::string_view of, bool required) {
  const std::string allowed =
      fewest == 0 ? fmt::format("a list of at most {} {}", most, of) : fmt::format("a list of {} to {} {}", fewest, most, of);
  const YamlValue* found = required ? require(key, allowed) : find(key);
  if (found == nullptr) return nullptr;
  const std::size_t items = found->items.size();
  const bool is_list = found->kind == YamlValue::Kind::kList;
  if (is_list && fewest <= items && items <= most) return found;
  const std::string what = is_list ? fmt::format("{} items", items) : found_text(*found);
  wrong_at(found->line, key, fmt::format("must be {} (got {})", allowed, what));
  return nullptr;
}

void YamlReader::refuse(const char* key, const YamlValue& found, std::string_view allowed) {
  mistake_.keep(found.line, fmt::format("{}: must be {} (got {})", path_of(key), allowed, found_text(found)));
}

void YamlReader::refuse(const char* key, std::string_view allowed) {
  if (const YamlValue* found = find(key)) refuse(key, *found, allowed);
}

void YamlReader::belongs(const char* key, std::string_view to) {
  if (const YamlValue* found = find(key)) mistake_.keep(found->line, fmt::format("{}: belongs to {}", path_of(key), to));
}

void YamlReader::note(const char* key, std::string_view value) {
  if (find(key) == nullptr && notes_ != nullptr) notes_->push_back(fmt::format("{}: {}", path_of(key), value));
}

void YamlReader::finish() {
  for (const YamlMember& member : value_.members) {
    if (mistake_.pass_over_keys || std::find(keys_.begin(), keys_.end(), member.key) != keys_.end()) continue;
    mistake_.keep(member.line,
                  fmt::format("{}: unknown field, must be one of {}", path_of(shown_text(member.key)), fmt::join(keys_, ", ")));
    return;
  }
}

}  // namespace windlass
