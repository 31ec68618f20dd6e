// What a target says of its bytes.
#pragma once

#include <cstdlib>

namespace windlass::fuzz {

// Ends the program where it does not hold; what called it stands in the sanitizer's trace.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace windlass::fuzz
