// Reads whole files that a person named on the command line.
#pragma once

#include <string>

#include "planner/base/result.h"

namespace windlass::cli {

// The error is "PATH: cannot be read: why; allowed is WHAT". `what` describes the file that is wanted: "a YAML file".
[[nodiscard]] Result<std::string> read_text_file(const std::string& path, const std::string& what);

// A gzipped text's content; any other text as it is. `path` is for the error: not whole, or more than a gibibyte.
[[nodiscard]] Result<std::string> unpacked(std::string text, const std::string& path);

}  // namespace windlass::cli
