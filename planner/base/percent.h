// Percent-encoding of URLs (RFC 3986). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace windlass {

// Escapes everything except unreserved characters as %XX.
[[nodiscard]] std::string percent_encoded(std::string_view text);

// Decodes; nullopt if a percent sign is not followed by two hexadecimal digits. `plus_is_space` is for query strings written by
// forms.
[[nodiscard]] std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space = false);

}  // namespace windlass
