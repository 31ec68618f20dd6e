// Reads a file and reports the system's reason on failure.
#include "controller/kube/files.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

namespace windlass::kube {
namespace {
constexpr std::uintmax_t kMaxBytes = 10 << 20;
}

Result<std::string> read_file(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be a file (got a directory)", path.string())};
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    int why = errno;
    ErrorCode code = why == ENOENT   ? ErrorCode::kNotFound
                     : why == EACCES ? ErrorCode::kPermissionDenied
                                     : ErrorCode::kUnavailable;
    return Error{code, fmt::format("{}: {}", path.string(), std::strerror(why))};
  }
  std::string text;
  char chunk[8192];
  while (in.read(chunk, sizeof(chunk)) || in.gcount() > 0) {
    text.append(chunk, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMaxBytes) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must have at most {} bytes", path.string(), kMaxBytes)};
    }
  }
  if (in.bad()) return Error{ErrorCode::kUnavailable, fmt::format("{}: reading failed", path.string())};
  return text;
}

}  // namespace windlass::kube
