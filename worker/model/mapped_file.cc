// Maps files; a file is closed once it is mapped.
#include "worker/model/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace windlass::worker {

Result<std::unique_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return Error{errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
                 fmt::format("{}: cannot be opened: {}", path.string(), std::strerror(errno))};
  }
  auto mapped = map(fd, path.string());
  ::close(fd);
  return mapped;
}

Result<std::unique_ptr<const MappedFile>> MappedFile::map(int fd, const std::string& file) {
  const auto broken = [&](const std::string& what) { return Error{ErrorCode::kInvalidArgument, file + ": " + what}; };
  struct stat info {};
  if (::fstat(fd, &info) != 0) return broken(fmt::format("cannot be read: {}", std::strerror(errno)));
  if (!S_ISREG(info.st_mode))
    return broken(S_ISDIR(info.st_mode) ? "must be a regular file (got a folder)" : "must be a regular file");
  if (info.st_size == 0) return broken("must not be empty");
  const auto size = static_cast<std::size_t>(info.st_size);
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (memory != MAP_FAILED) return std::unique_ptr<const MappedFile>(new MappedFile(memory, size));
  const int failure = errno;
  return Error{failure == ENOMEM ? ErrorCode::kResourceExhausted : ErrorCode::kInvalidArgument,
               fmt::format("{}: {} bytes cannot be mapped: {}{}", file, size, std::strerror(failure),
                           failure == ENOMEM ? " (is the address space limited? see ulimit -v)" : "")};
}

MappedFile::~MappedFile() { ::munmap(memory_, size_); }

}  // namespace windlass::worker
