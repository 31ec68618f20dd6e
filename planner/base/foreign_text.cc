// Splits foreign text into lines and shows it on one line; see foreign_text.h.
#include "planner/base/foreign_text.h"

#include <algorithm>

namespace windlass {
namespace {

// Length in bytes of the well-formed UTF-8 character at `at`; 0 if there is none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first < 0xE0   ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  const bool refused = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                       (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return refused ? 0 : length;
}

bool is_control(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  switch (character.size()) {
    case 1: return byte(0) < 0x20 || byte(0) == 0x7F;
    case 2: return byte(0) == 0xC2 && byte(1) < 0xA0;  // U+0080 to U+009F
    case 3:
      return (byte(0) == 0xE2 && byte(1) == 0x80 && (byte(2) == 0xA8 || byte(2) == 0xA9)) ||  // line, paragraph separator
             (byte(0) == 0xE2 && byte(1) == 0x80 && byte(2) >= 0xAA && byte(2) <= 0xAE) ||    // directions
             (byte(0) == 0xEF && byte(1) == 0xBB && byte(2) == 0xBF) ||                       // byte order mark
             (byte(0) == 0xEF && byte(1) == 0xBF && byte(2) >= 0xBE);                         // U+FFFE, U+FFFF
    default: return false;
  }
}

}  // namespace

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_printable(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0 || is_control(text.substr(at, length))) return false;
    at += length;
  }
  return true;
}

std::string shown_text(std::string_view text, std::size_t most) {
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    if (shown.size() >= most) return shown + "...";
    const std::size_t length = utf8_length(text, at);
    const bool good = length > 0 && !is_control(text.substr(at, length));
    shown += good ? text.substr(at, length) : "?";
    at += std::max<std::size_t>(1, length);
  }
  return shown;
}

}  // namespace windlass
