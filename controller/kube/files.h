// Reads small configuration files. Contents may be secrets, so errors have only the path.
#pragma once

#include <filesystem>
#include <string>

#include "planner/base/result.h"

namespace windlass::kube {

// The whole file. Error: larger than 10 MiB, kNotFound, or kPermissionDenied.
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path);

}  // namespace windlass::kube
