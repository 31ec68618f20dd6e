// Linux's affinity masks, as large as the machine needs them.
#include "worker/backend/cpu/processors.h"

#include <cassert>
#include <cerrno>
#include <cstring>
#include <memory>

#include <fmt/core.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

namespace windlass::worker::cpu {
namespace {

constexpr int kMostProcessors = 1 << 16;  // Linux allows 8192

struct FreeMask {
  void operator()(cpu_set_t* mask) const { CPU_FREE(mask); }
};
using Mask = std::unique_ptr<cpu_set_t, FreeMask>;

}  // namespace

Result<std::vector<int>> allowed_processors() {
  // The kernel refuses a mask that is smaller than its own.
  for (int room = 1024; room <= kMostProcessors; room *= 2) {
    const Mask mask(CPU_ALLOC(static_cast<std::size_t>(room)));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(room));
    if (mask == nullptr) break;
    if (::sched_getaffinity(::getpid(), bytes, mask.get()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    std::vector<int> processors;
    for (int each = 0; each < room; ++each) {
      if (CPU_ISSET_S(static_cast<std::size_t>(each), bytes, mask.get())) processors.push_back(each);
    }
    return processors;
  }
  return Error{ErrorCode::kUnavailable,
               fmt::format("the processors that this process may run on cannot be read: {}", std::strerror(errno))};
}

Result<std::vector<int>> processors_of_rank(const std::vector<int>& allowed, int threads, int rank, int ranks) {
  assert(0 <= rank && rank < ranks && threads >= 1);
  const auto wanted = static_cast<std::size_t>(threads) * static_cast<std::size_t>(ranks);
  if (wanted > allowed.size()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("found {} threads that compute, allowed is at most {}: this process may run on so many processors",
                             wanted, allowed.size())};
  }
  const auto first = allowed.begin() + static_cast<std::ptrdiff_t>(rank) * threads;
  return std::vector<int>(first, first + threads);
}

bool stay_on(int processor) noexcept {
  thread_local int stays_on = -1;
  if (stays_on == processor) return true;
  const auto room = static_cast<std::size_t>(processor) + 1;
  const Mask mask(CPU_ALLOC(room));
  if (mask == nullptr) return false;
  const std::size_t bytes = CPU_ALLOC_SIZE(room);
  CPU_ZERO_S(bytes, mask.get());
  CPU_SET_S(static_cast<std::size_t>(processor), bytes, mask.get());
  if (::pthread_setaffinity_np(::pthread_self(), bytes, mask.get()) != 0) return false;
  stays_on = processor;
  return true;
}

}  // namespace windlass::worker::cpu
