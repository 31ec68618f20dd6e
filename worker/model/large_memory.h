// Memory with large pages, for data that is read completely again and again, such as weights and caches.
//
// With 4 KiB pages, a processor may spend half its time on address translation. Linux gives 2 MiB pages to memory that asks for
// them before it is first written.
#pragma once

#include <cstddef>
#include <vector>

namespace windlass::worker {

// Asks for large pages in a range; no error if there are none. Any thread.
void prefer_large_pages(void* begin, std::size_t bytes);

// Reserves room for exactly `count` elements in total, with large pages if newly allocated. For memory that grows once.
template <class T>
void reserve_large(std::vector<T>& to, std::size_t count) {
  if (to.capacity() >= count) return;
  to.reserve(count);
  prefer_large_pages(to.data() + to.size(), (count - to.size()) * sizeof(T));
}

}  // namespace windlass::worker
