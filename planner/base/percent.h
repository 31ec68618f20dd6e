// Percent-encoding of URLs (RFC 3986). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace windlass {

// Everything but unreserved characters as %XX.
[[nodiscard]] std::string percent_encoded(std::string_view text);

// The reverse; nullopt where a percent sign begins no byte. `plus_is_space` for query strings as forms write them.
[[nodiscard]] std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space = false);

}  // namespace windlass
