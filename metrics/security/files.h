// Reads small files: certificates, keys, tokens.
#pragma once

#include <string>

#include "planner/base/result.h"

namespace windlass::security {

// The whole text. Error: the path and the system's reason; kResourceExhausted beyond max_bytes.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t max_bytes = std::size_t{1} << 20U);

// A warning for people if every user of the machine may read the file; otherwise empty.
[[nodiscard]] std::string permission_warning(const std::string& path);

}  // namespace windlass::security
