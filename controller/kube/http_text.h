// The small change of HTTP texts: percent-encoding and JSON written so that it never throws. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace windlass::kube {

// Everything but unreserved characters (RFC 3986) as %XX.
[[nodiscard]] std::string percent_encode(std::string_view text);

// The reverse; a broken escape stays as it is. `plus_is_space` for query strings.
[[nodiscard]] std::string percent_decode(std::string_view text, bool plus_is_space = false);

// Compact JSON; bytes that are not UTF-8 become U+FFFD instead of an exception.
[[nodiscard]] std::string to_text(const nlohmann::json& value);

}  // namespace windlass::kube
