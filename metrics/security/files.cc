// See files.h.
#include "metrics/security/files.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <sys/stat.h>

namespace windlass::security {

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return Error{ErrorCode::kNotFound, fmt::format("{}: {}", path, std::strerror(errno))};
  if (!S_ISREG(status.st_mode)) return Error{ErrorCode::kInvalidArgument, path + ": must be a file (got something else)"};
  if (static_cast<std::size_t>(status.st_size) > max_bytes) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{}: must be at most {} bytes long (got {})", path, max_bytes, status.st_size)};
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) return Error{ErrorCode::kPermissionDenied, path + ": cannot be read"};
  return text;
}

std::string permission_warning(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || (status.st_mode & (S_IROTH | S_IWOTH)) == 0) return "";
  return fmt::format("{}: must have mode 640 or less (got {:o}): every user of this machine may read or write it", path,
                     status.st_mode & 0777U);
}

}  // namespace windlass::security
