// Tells whether a character is an ASCII digit, whatever the locale.
#pragma once

namespace windlass::api {

inline bool digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace windlass::api
