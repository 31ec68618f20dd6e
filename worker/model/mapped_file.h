// MappedFile: a whole file mapped as read-only memory. Any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

#include "planner/base/result.h"

namespace windlass::worker {

class MappedFile {
 public:
  // Errors name the file: kNotFound, kResourceExhausted (address space), kInvalidArgument (empty, a folder, not readable).
  [[nodiscard]] static Result<std::unique_ptr<const MappedFile>> open(const std::filesystem::path& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(memory_), size_}; }

 private:
  MappedFile(void* memory, std::size_t size) : memory_(memory), size_(size) {}
  [[nodiscard]] static Result<std::unique_ptr<const MappedFile>> map(int fd, const std::string& file);

  void* memory_;
  std::size_t size_;
};

}  // namespace windlass::worker
