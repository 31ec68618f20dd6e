// Reads whole files named on the command line.
#pragma once

#include <string>

#include "planner/base/result.h"

namespace windlass::cli {

// `what` describes the expected file ("a YAML file"). The error is "PATH: must be WHAT (cannot be read: why)".
[[nodiscard]] Result<std::string> read_text_file(const std::string& path, const std::string& what);

// Decompresses a gzipped text; returns any other text unchanged. Errors name `path`: the data is truncated, or over 1 GiB.
[[nodiscard]] Result<std::string> unpacked(std::string text, const std::string& path);

}  // namespace windlass::cli
