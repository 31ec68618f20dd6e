// Addresses for pods that are processes of this machine: whole networks 127.N.0.0/16, each of one test program at a time.
#pragma once

namespace windlass::testing {

// The N of the first of `count` neighbouring networks 127.N.0.0/16. They belong to this process until it ends: a claim is a
// socket, so that the kernel lets go of it however the process ends, and no other claim on this machine gets the same one.
[[nodiscard]] int claim_networks(int count = 1);

}  // namespace windlass::testing
