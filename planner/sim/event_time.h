// Event times: integer nanoseconds from the start of a run, so that the order of events does not depend on rounding.
#pragma once

#include <cassert>
#include <cstdint>

namespace windlass::sim {

inline constexpr double kNanosecondsPerSecond = 1e9;
inline constexpr std::int64_t kEndOfTimeNs = std::int64_t{1} << 62;  // 146 years

// The time this many seconds after another, at most the end of time. REQUIRES: seconds >= 0.
[[nodiscard]] inline std::int64_t after(std::int64_t now_ns, double seconds) {
  assert(seconds >= 0);
  const double ns = seconds * kNanosecondsPerSecond + 0.5;
  if (!(ns < static_cast<double>(kEndOfTimeNs - now_ns))) return kEndOfTimeNs;
  return now_ns + static_cast<std::int64_t>(ns);
}

[[nodiscard]] inline double seconds_between(std::int64_t from_ns, std::int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) / kNanosecondsPerSecond;
}

}  // namespace windlass::sim
