// What the readers of foreign texts share: cutting lines, and showing what was found in a message of one line. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace windlass {

// Cuts the next line off the text, without its LF or CR LF.
[[nodiscard]] std::string_view take_line(std::string_view& text);

// Well-formed UTF-8 without control characters, line separators and the like.
[[nodiscard]] bool is_printable(std::string_view text);

// Foreign text as part of one line: control characters and broken UTF-8 become '?', and what is longer than `most` bytes is
// cut.
[[nodiscard]] std::string shown_text(std::string_view text, std::size_t most = 60);
inline constexpr std::size_t kLongestReason = 300;  // of a library that repeats what it could not read

}  // namespace windlass
