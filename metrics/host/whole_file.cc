// See whole_file.h.
#include "metrics/host/whole_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace windlass {
namespace {

// Opens and empties the draft file, locked against other writers until it is closed; below 0: errno is set. If another writer
// renamed the draft while this one waited for the lock, the renamed file is theirs.
int open_draft(const char* draft) {
  for (;;) {
    const int file = ::open(draft, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return file;
    while (::flock(file, LOCK_EX) != 0 && errno == EINTR) {
    }
    struct stat ours = {}, there = {};
    const bool same =
        ::fstat(file, &ours) == 0 && ::stat(draft, &there) == 0 && ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
    if (same && ::ftruncate(file, 0) == 0) return file;
    const int why = errno;
    ::close(file);
    errno = why;
    if (same) return -1;
  }
}

// Returns 0, or an errno.
int write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written >= 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

bool is_callers_fault(int why) {
  return why == EISDIR || why == ENOENT || why == ENOTDIR || why == EACCES || why == EPERM || why == EROFS ||
         why == ENAMETOOLONG;
}

}  // namespace

Result<void> write_whole_file(const std::filesystem::path& path, std::string_view bytes) {
  const std::string draft = path.string() + ".new";
  const auto failed = [&](int why) {
    return Error{is_callers_fault(why) ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable,
                 fmt::format("{}: cannot be written: {}", path.string(), std::strerror(why))};
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return failed(EISDIR);
  const int file = open_draft(draft.c_str());
  if (file < 0) return failed(errno);
  int why = write_all(file, bytes);
  if (why == 0 && std::rename(draft.c_str(), path.c_str()) != 0) why = errno;
  if (why != 0) ::unlink(draft.c_str());
  ::close(file);
  if (why == 0) return {};
  return failed(why);
}

}  // namespace windlass
