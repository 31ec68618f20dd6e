// The gateway's composition root: creates the parts, connects them, and runs the single thread until the gateway stops.
#pragma once

#include "gateway/options.h"

namespace windlass::gateway {

// Serves until SIGTERM or SIGINT, then drains: it takes no new connections or requests, and gives waiting and running requests
// up to drain_timeout_s. A second signal stops it immediately. Returns the exit code: 0, or 1 when it could not start.
[[nodiscard]] int run_gateway(const Options& options);

}  // namespace windlass::gateway
