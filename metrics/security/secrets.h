// Tokens and digests. Nothing here puts a secret into an error.
#pragma once

#include <string>
#include <string_view>

#include "planner/base/result.h"

namespace windlass::security {

// The one token of a file: 16 to 4096 visible ASCII characters, white space around it left away.
[[nodiscard]] Result<std::string> parse_token(std::string_view text);

// 64 lower-case hexadecimal digits.
[[nodiscard]] std::string sha256_hex(std::string_view text);

// A secret for one purpose, from which neither `secret` nor those for other purposes can be told: HMAC-SHA256 (RFC 2104), 64
// hexadecimal digits.
[[nodiscard]] std::string derived_secret(std::string_view secret, std::string_view purpose);

// Takes the same time whatever differs, length included.
[[nodiscard]] bool same_secret(std::string_view a, std::string_view b);

// What stands after "Bearer " (in any case) in an Authorization header; empty when it is of another kind or missing.
[[nodiscard]] std::string_view bearer(std::string_view authorization);

}  // namespace windlass::security
