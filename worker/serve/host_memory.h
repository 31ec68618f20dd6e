// HostMemory: how much more memory this process can get, according to the machine, its control groups and its resource limits.
//
// Read from files below /proc and /sys/fs/cgroup (control groups v1 and v2); a file that cannot be read imposes no limit. File
// pages (safetensors among them) do not count as used, because the kernel drops them on demand. Swap counts where it may be
// used. Functions of files; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace windlass::worker {

// The memory left below one limit.
struct MemoryRoom {
  std::int64_t bytes = 0;
  std::string limit;  // for messages: "MemAvailable", "/sys/fs/cgroup/x/memory.max", "ulimit -v"

  bool operator==(const MemoryRoom&) const = default;
};

struct HostMemory {
  std::optional<MemoryRoom> shared;  // shared with other processes: the smallest room of the machine and its control groups
  std::optional<MemoryRoom> address_space;  // of this process alone; nothing if unlimited
};

// Reads the current state. `root`: of the file system.
[[nodiscard]] HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace windlass::worker
