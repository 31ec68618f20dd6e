// Instant is one moment as shown by both clocks. Plain data: callers pass it into the core, which never reads a clock itself.
#pragma once

namespace windlass {

struct Instant {
  double wall_s = 0;       // seconds since the Unix epoch; for people and other machines
  double monotonic_s = 0;  // never goes back; for leases, back-offs and ages on this machine
};

}  // namespace windlass
