// Files that are written whole: the one place that writes next to a file and renames.
#pragma once

#include <filesystem>
#include <string_view>

#include "planner/base/result.h"

namespace windlass {

// Whoever reads the file, at any time or after we were killed, finds all of the bytes or what was there before: they are
// written to PATH.new, by one writer at a time, and renamed. Not synchronised with the disk: a loss of power may still take the
// file. The mode is 0666 less the umask. Error: kInvalidArgument where another path would do, else kUnavailable: "PATH: cannot
// be written: why"; nothing is left behind then. Any thread.
[[nodiscard]] Result<void> write_whole_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace windlass
