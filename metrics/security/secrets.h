// Parses, derives and compares secrets such as bearer tokens, and computes digests. No error here contains a secret.
#pragma once

#include <string>
#include <string_view>

#include "planner/base/result.h"

namespace windlass::security {

// The single token in a file: 16 to 4096 visible ASCII characters; surrounding white space is ignored.
[[nodiscard]] Result<std::string> parse_token(std::string_view text);

// 64 lower-case hexadecimal digits.
[[nodiscard]] std::string sha256_hex(std::string_view text);

// Derives a secret for one purpose. It reveals neither `secret` nor the secrets for other purposes: HMAC-SHA256 (RFC 2104), 64
// hexadecimal digits.
[[nodiscard]] std::string derived_secret(std::string_view secret, std::string_view purpose);

// Compares in constant time, whatever differs, including the length.
[[nodiscard]] bool same_secret(std::string_view a, std::string_view b);

// The text after "Bearer " (in any case) in an Authorization header; empty for another scheme or a missing header.
[[nodiscard]] std::string_view bearer(std::string_view authorization);

}  // namespace windlass::security
