// Reads whole files.
#include "worker/model/files.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include <fmt/core.h>

namespace windlass::worker {

Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t max_bytes) {
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status)) return Error{ErrorCode::kNotFound, fmt::format("{}: no such file", path.string())};
  if (!std::filesystem::is_regular_file(status)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be a regular file", path.string())};
  }
  const auto size = std::filesystem::file_size(path, failure);
  if (!failure && size > max_bytes) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must be at most {} bytes (got {})", path.string(), max_bytes, size)};
  }
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.good() && !in.eof()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno))};
  }
  return bytes;
}

}  // namespace windlass::worker
