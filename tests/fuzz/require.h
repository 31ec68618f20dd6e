// Conditions that fuzz targets check.
#pragma once

#include <cstdlib>

namespace windlass::fuzz {

// Aborts if the condition is false; the sanitizer's trace shows the caller.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace windlass::fuzz
