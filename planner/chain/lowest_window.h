// lowest_window(): the window of consecutive blocks that needs another server most, as CG-BP and PETALS both choose it.
//
// Windows of one width are compared by their values sorted in rising order, lexicographically: first by their least value, then
// by the second least, and so on (Sun et al., "Optimizing Resource Allocation for Geographically-Distributed Inference by Large
// Language Models", Alg. 1, and PETALS' block selection). Pure. Time O(n log n + n * n/64).
#pragma once

#include <span>

namespace windlass::chain {

// The index at which the least window starts; the smallest one among equal windows.
// REQUIRES: 1 <= width <= the number of values.
[[nodiscard]] int lowest_window(std::span<const double> values, int width);

}  // namespace windlass::chain
