// Memory that is read whole over and over, as weights and caches are.
//
// Reading it fast takes large pages: with those of 4 KiB a processor waits for translations, for half of the time on some
// machines. Linux gives pages of 2 MiB to who asks for them, before anything is written there.
#pragma once

#include <cstddef>
#include <vector>

namespace windlass::worker {

// Asks for large pages in a range; no error where there are none. Any thread.
void prefer_large_pages(void* begin, std::size_t bytes);

// Makes room for exactly `count` elements in all, with large pages where it is new. For memory that grows once.
template <class T>
void reserve_large(std::vector<T>& to, std::size_t count) {
  if (to.capacity() >= count) return;
  to.reserve(count);
  prefer_large_pages(to.data() + to.size(), (count - to.size()) * sizeof(T));
}

}  // namespace windlass::worker
