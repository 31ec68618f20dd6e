// Reads small files whole (JSON of a model folder), with errors that name the file. Pure functions; any thread.
#pragma once

#include <filesystem>
#include <string>

#include "planner/base/result.h"

namespace windlass::worker {

// The file's bytes. Errors: kNotFound if it does not exist; kInvalidArgument if it cannot be read or exceeds max_bytes.
[[nodiscard]] Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t max_bytes = 256U << 20U);

}  // namespace windlass::worker
