// Asks the kernel for large pages; see large_memory.h.
#include "worker/model/large_memory.h"

#include <cstdint>

#include <sys/mman.h>

namespace windlass::worker {

void prefer_large_pages(void* begin, std::size_t bytes) {
  constexpr std::uintptr_t kLargePage = 2U << 20U;
  const auto first = (reinterpret_cast<std::uintptr_t>(begin) + kLargePage - 1) / kLargePage * kLargePage;
  const auto end = (reinterpret_cast<std::uintptr_t>(begin) + bytes) / kLargePage * kLargePage;
  if (first < end) static_cast<void>(::madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE));
}

}  // namespace windlass::worker
