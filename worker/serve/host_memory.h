// HostMemory: how much memory this process can still have, as the machine, its control groups and its own limits say it.
//
// Read from files below /proc and /sys/fs/cgroup, of control groups version 1 and 2; what cannot be read limits nothing. Pages
// of files (safetensors among them) are not counted as used: the kernel drops them for whoever needs memory. Swap counts as
// memory where it may be used. Functions of files; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace windlass::worker {

// What is left below one limit.
struct MemoryRoom {
  std::int64_t bytes = 0;
  std::string limit;  // for a person: "MemAvailable", "/sys/fs/cgroup/x/memory.max", "ulimit -v"

  bool operator==(const MemoryRoom&) const = default;
};

struct HostMemory {
  std::optional<MemoryRoom> shared;         // with all other processes: the least of the machine's and its control groups'
  std::optional<MemoryRoom> address_space;  // of this process alone; nothing where it has no limit
};

// `root`: of the file system. As of now.
[[nodiscard]] HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace windlass::worker
