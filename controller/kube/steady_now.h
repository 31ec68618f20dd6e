// Seconds on the clock that only goes forward.
#pragma once

#include <chrono>

namespace windlass::kube {

inline double steady_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace windlass::kube
