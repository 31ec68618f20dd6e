// Reading small files of configuration. Contents may be secrets: errors name the path alone.
#pragma once

#include <filesystem>
#include <string>

#include "planner/base/result.h"

namespace windlass::kube {

// The whole file; refused above 10 MiB. kNotFound where there is none, kPermissionDenied where it may not be read.
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path);

}  // namespace windlass::kube
