// See whole_file.h.
#include "metrics/host/whole_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace windlass {
namespace {

// 0, or an errno.
int write_all(const char* path, std::string_view bytes) {
  const int file = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return errno;
  int why = 0;
  while (why == 0 && !bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written >= 0) bytes.remove_prefix(static_cast<std::size_t>(written));
    if (written < 0 && errno != EINTR) why = errno;
  }
  if (::close(file) != 0 && why == 0) why = errno;
  return why;
}

}  // namespace

Result<void> write_whole_file(const std::filesystem::path& path, std::string_view bytes) {
  const std::string draft = fmt::format("{}.{}.new", path.string(), ::getpid());
  std::error_code ignored;
  int why = std::filesystem::is_directory(path, ignored) ? EISDIR : write_all(draft.c_str(), bytes);
  if (why == 0 && std::rename(draft.c_str(), path.c_str()) != 0) why = errno;
  if (why == 0) return {};
  ::unlink(draft.c_str());
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}: cannot be written: {}", path.string(), std::strerror(why))};
}

}  // namespace windlass
