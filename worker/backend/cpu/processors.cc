// Reads and sets Linux affinity masks, as large as the machine needs them.
#include "worker/backend/cpu/processors.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include <fmt/core.h>
#include <unistd.h>

namespace windlass::worker::cpu {
namespace {

constexpr std::size_t kMaxProcessors = 1U << 16U;  // Linux allows 8192

AffinityMask empty_mask(std::size_t processors) {
  AffinityMask mask{std::unique_ptr<cpu_set_t, AffinityMask::Free>(CPU_ALLOC(processors)), CPU_ALLOC_SIZE(processors)};
  if (mask.set != nullptr) CPU_ZERO_S(mask.bytes, mask.set.get());
  return mask;
}

// Of a thread, 0 for the calling one; nothing, with errno set, on failure.
std::optional<AffinityMask> mask_of(pid_t thread) {
  // The kernel rejects a mask that is smaller than its own.
  for (std::size_t room = 1024; room <= kMaxProcessors; room *= 2) {
    AffinityMask mask = empty_mask(room);
    if (mask.set == nullptr) return std::nullopt;
    if (::sched_getaffinity(thread, mask.bytes, mask.set.get()) == 0) return mask;
    if (errno != EINVAL) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<int>> allowed_processors() {
  const std::optional<AffinityMask> mask = mask_of(::getpid());
  if (!mask) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("the processors that this process may run on cannot be read: {}", std::strerror(errno))};
  }
  std::vector<int> processors;
  for (std::size_t each = 0; each < mask->bytes * 8; ++each) {
    if (CPU_ISSET_S(each, mask->bytes, mask->set.get())) processors.push_back(static_cast<int>(each));
  }
  return processors;
}

int core_of(int processor) {
  // "0-1" or "0,4": begins with the lowest.
  std::ifstream siblings(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", processor));
  int lowest = 0;
  return siblings >> lowest ? lowest : processor;
}

std::vector<int> cores_first(std::vector<int> processors, const std::function<int(int)>& core) {
  std::map<int, int> seen;                   // per core
  std::vector<std::pair<int, int>> in_turn;  // its index within its core, and the processor
  for (const int processor : processors) in_turn.emplace_back(seen[core(processor)]++, processor);
  std::stable_sort(in_turn.begin(), in_turn.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::transform(in_turn.begin(), in_turn.end(), processors.begin(), [](const auto& each) { return each.second; });
  return processors;
}

Result<std::vector<int>> processors_of_rank(const std::vector<int>& processors, int threads, int rank, int ranks) {
  assert(0 <= rank && rank < ranks && threads >= 1);
  const auto wanted = static_cast<std::size_t>(threads) * static_cast<std::size_t>(ranks);
  if (wanted > processors.size()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("threads: must be at most {}, the number of processors that this process may run on (got {})",
                             processors.size(), wanted)};
  }
  const auto first = processors.begin() + static_cast<std::ptrdiff_t>(rank) * threads;
  return std::vector<int>(first, first + threads);
}

StaysOn::StaysOn(std::optional<int> processor) {
  if (!processor) return;
  const auto at = static_cast<std::size_t>(*processor);
  const AffinityMask alone = empty_mask(at + 1);
  std::optional<AffinityMask> before = mask_of(0);
  if (alone.set == nullptr || !before) return;
  CPU_SET_S(at, alone.bytes, alone.set.get());
  if (::sched_setaffinity(0, alone.bytes, alone.set.get()) == 0) before_ = std::move(before);
}

StaysOn::~StaysOn() {
  if (before_) ::sched_setaffinity(0, before_->bytes, before_->set.get());
}

}  // namespace windlass::worker::cpu
