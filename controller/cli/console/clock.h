// Monotonic time for the loops of the commands: seconds since some moment in the past.
#pragma once

#include <ctime>

namespace windlass::cli {

inline double monotonic_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace windlass::cli
