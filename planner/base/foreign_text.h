// Helpers for reading text from outside: splitting it into lines, and quoting what was found in a one-line message. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace windlass {

// Removes the next line from the text and returns it without its LF or CR LF.
[[nodiscard]] std::string_view take_line(std::string_view& text);

// Well-formed UTF-8 without control characters, line separators and the like.
[[nodiscard]] bool is_printable(std::string_view text);

// Makes foreign text fit on one line: control characters and invalid UTF-8 become '?', and the text is cut after `most` bytes.
[[nodiscard]] std::string shown_text(std::string_view text, std::size_t most = 60);
inline constexpr std::size_t kLongestReason =
    300;  // longest message taken from a library; some repeat the input they could not read

}  // namespace windlass
