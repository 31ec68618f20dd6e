// Reads a whole file that a person named on the command line.
#pragma once

#include <string>

#include "planner/base/result.h"

namespace windlass::cli {

// The error is "PATH: cannot be read: why; allowed is WHAT". `what` describes the file that is wanted: "a YAML file".
[[nodiscard]] Result<std::string> read_text_file(const std::string& path, const std::string& what);

}  // namespace windlass::cli
