// Reads the clocks of this machine. Code whose tests control the time must not use them; it takes the time as an argument,
// as an Instant or in seconds.
#pragma once

#include <chrono>

#include "planner/base/instant.h"

namespace windlass {

// Seconds since the Unix epoch.
[[nodiscard]] inline double wall_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Seconds since an arbitrary moment in the past; never goes back.
[[nodiscard]] inline double monotonic_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[nodiscard]] inline Instant now() { return {wall_s(), monotonic_s()}; }

}  // namespace windlass
