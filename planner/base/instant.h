// Instant: one moment as both clocks show it. Plain data: it is passed into the core, which never asks a clock itself.
#pragma once

namespace windlass {

struct Instant {
  double wall_s = 0;       // seconds since the Unix epoch; for what people and other machines read
  double monotonic_s = 0;  // never goes back; for leases, back-offs and ages on this machine
};

}  // namespace windlass
