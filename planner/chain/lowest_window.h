// lowest_window() finds the window of consecutive blocks that most needs another server, as CG-BP and PETALS choose it.
//
// Windows of the same width are compared by their values in ascending order, lexicographically: first by the smallest value,
// then by the second smallest, and so on (Sun et al., "Optimizing Resource Allocation for Geographically-Distributed Inference
// by Large Language Models", Alg. 1, and PETALS' block selection). Pure. Time O(n log n + n * n/64).
#pragma once

#include <span>

namespace windlass::chain {

// The index at which the lowest window starts; the smallest index among equal windows.
// REQUIRES: 1 <= width <= the number of values.
[[nodiscard]] int lowest_window(std::span<const double> values, int width);

}  // namespace windlass::chain
