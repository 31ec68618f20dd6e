// Writes files atomically; the only place that writes next to a file and renames.
#pragma once

#include <filesystem>
#include <string_view>

#include "planner/base/result.h"

namespace windlass {

// Readers find either all the bytes or the old file, even if we are killed. The bytes are written to PATH.new, by one writer at
// a time, and renamed. Not synced to disk: a power loss may lose the file. The mode is 0666 minus the umask. Error:
// kInvalidArgument when another path would work, otherwise kUnavailable: "PATH: cannot be written: REASON"; nothing is left
// behind. Any thread.
[[nodiscard]] Result<void> write_whole_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace windlass
