// Formats a JSON value for an error message: one line of at most 60 bytes. Only that much of a large value is printed. Pure.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace windlass {

namespace detail {

inline constexpr std::size_t kShownBytes = 60;

inline std::string cut_string(std::string_view text) {
  const auto cut = text.substr(0, kShownBytes + 4);  // a character cut in half lies beyond what is shown
  return nlohmann::json(cut).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Stops printing once the line is longer than the limit.
template <class Json>
void write_shown(const Json& value, std::string& line) {
  if (value.is_string()) {
    line += cut_string(value.template get_ref<const std::string&>());
  } else if (value.is_object() || value.is_array()) {
    line += value.is_object() ? '{' : '[';
    for (auto it = value.begin(); it != value.end() && line.size() <= kShownBytes; ++it) {
      if (it != value.begin()) line += ',';
      if (value.is_object()) line += cut_string(it.key()) + ":";
      write_shown(*it, line);
    }
    line += value.is_object() ? '}' : ']';
  } else {
    line += value.dump();
  }
}

}  // namespace detail

template <class Json>
[[nodiscard]] std::string shown(const Json& value) {
  std::string line;
  detail::write_shown(value, line);
  if (line.size() <= detail::kShownBytes) return line;
  std::size_t end = detail::kShownBytes - 3;
  while ((static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80U) --end;  // do not cut a character in half
  return line.substr(0, end) + "...";
}

}  // namespace windlass
