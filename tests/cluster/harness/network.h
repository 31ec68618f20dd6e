// Addresses for pods that are processes of this machine: networks 127.N.0.0/16, each used by one test program at a time.
#pragma once

namespace windlass::testing {

// Claims `count` neighbouring networks 127.N.0.0/16 and returns the first N. They belong to this process until it ends. A claim
// is a bound socket, so the kernel releases it however the process ends, and no two processes on this machine claim the same
// network.
[[nodiscard]] int claim_networks(int count = 1);

}  // namespace windlass::testing
