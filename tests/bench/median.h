// Times an operation that may fail: the median of several runs.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "planner/base/result.h"

namespace windlass::bench {

// Seconds: the median of `repeats` runs after `before` warm-up runs. `run` returns a Result<void>; its first error is returned.
template <typename Run>
[[nodiscard]] Result<double> median_s(int repeats, int before, const Run& run) {
  std::vector<double> seconds;
  for (int i = -before; i < repeats; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    WINDLASS_RETURN_IF_ERROR(run());
    if (i >= 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
  }
  const auto middle = seconds.begin() + repeats / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace windlass::bench
