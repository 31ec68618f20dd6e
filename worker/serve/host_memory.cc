// Parses /proc and control-group files.
#include "worker/serve/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <vector>

#include <unistd.h>

namespace windlass::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNoLimit = 1LL << 60U;  // v1 writes a large number for "no limit"

// Nothing if it is not a whole number: "max", "unlimited".
std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::string first_word(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

std::optional<std::int64_t> number_in(const fs::path& file) { return whole_number(first_word(file)); }

// The number after this name in a file of lines "NAME NUMBER ...".
std::optional<std::int64_t> named_in(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string first, second;
    if (words >> first >> second && first == name) return whole_number(second);
  }
  return std::nullopt;
}

// Files that tell how much a control group may still use, apart from droppable pages.
struct GroupFiles {
  const char* limit;
  const char* used;
  std::vector<std::string> droppable;  // names in memory.stat
};

std::optional<MemoryRoom> room_of_group(const fs::path& folder, const GroupFiles& names, const fs::path& root) {
  const auto limit = number_in(folder / names.limit);
  const auto used = number_in(folder / names.used);
  if (!limit || !used || *limit >= kNoLimit) return std::nullopt;
  std::int64_t held = *used;
  for (const std::string& name : names.droppable) held -= named_in(folder / "memory.stat", name).value_or(0);
  const fs::path shown = "/" / (folder / names.limit).lexically_relative(root);
  return MemoryRoom{std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, held)), shown.string()};
}

// How much of the free swap the group may use.
std::int64_t swap_of_group(const fs::path& folder, std::int64_t free_bytes) {
  const auto limit = number_in(folder / "memory.swap.max");
  if (!limit) return free_bytes;
  return std::clamp<std::int64_t>(*limit - number_in(folder / "memory.swap.current").value_or(0), 0, free_bytes);
}

void lessen(std::optional<MemoryRoom>& least, std::optional<MemoryRoom> room) {
  if (room && (!least || room->bytes < least->bytes)) least = std::move(room);
}

// Applies the limits of the group at this path and its ancestors. Inside a container the path may be the host's; then only the
// root exists.
void lessen_by_groups(const fs::path& hierarchy, fs::path path, const GroupFiles& names, std::int64_t swap_bytes,
                      const fs::path& root, std::optional<MemoryRoom>& least) {
  for (path = path.relative_path();; path = path.parent_path()) {
    const fs::path folder = path.empty() ? hierarchy : hierarchy / path;
    auto room = room_of_group(folder, names, root);
    if (room) room->bytes += swap_of_group(folder, swap_bytes);
    lessen(least, std::move(room));
    if (path.empty()) return;
  }
}

std::optional<MemoryRoom> shared_room(const fs::path& root) {
  static const GroupFiles kSecond{"memory.max", "memory.current", {"active_file", "inactive_file", "slab_reclaimable"}};
  static const GroupFiles kFirst{
      "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_active_file", "total_inactive_file"}};
  const fs::path machine = root / "proc/meminfo";
  const std::int64_t swap_bytes = named_in(machine, "SwapFree:").value_or(0) * 1024;
  std::optional<MemoryRoom> least;
  if (const auto available = named_in(machine, "MemAvailable:")) {
    least = MemoryRoom{*available * 1024 + swap_bytes, "MemAvailable"};
  }
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "ID:CONTROLLERS:PATH"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path path = line.substr(second + 1);
    if (controllers == ",,") {
      lessen_by_groups(root / "sys/fs/cgroup", path, kSecond, swap_bytes, root, least);
    } else if (controllers.find(",memory,") != std::string::npos) {
      lessen_by_groups(root / "sys/fs/cgroup/memory", path, kFirst, swap_bytes, root, least);
    }
  }
  return least;
}

std::optional<MemoryRoom> address_space_room(const fs::path& root) {
  std::ifstream limits(root / "proc/self/limits");
  for (std::string line; std::getline(limits, line);) {
    constexpr std::string_view kName = "Max address space";
    if (line.rfind(kName, 0) != 0) continue;
    std::istringstream words(line.substr(kName.size()));
    std::string soft;
    words >> soft;
    const auto limit = whole_number(soft);
    const auto pages = number_in(root / "proc/self/statm");
    if (!limit || !pages) return std::nullopt;
    return MemoryRoom{std::max<std::int64_t>(0, *limit - *pages * ::sysconf(_SC_PAGESIZE)), "ulimit -v"};
  }
  return std::nullopt;
}

}  // namespace

HostMemory host_memory(const std::filesystem::path& root) { return {shared_room(root), address_space_room(root)}; }

}  // namespace windlass::worker
