// The gateway's composition root: makes the parts, joins them, runs the one thread until it is told to end.
#pragma once

#include "gateway/options.h"

namespace windlass::gateway {

// Serves until SIGTERM or SIGINT, then drains: no new connections or requests, what is in flight or waits goes on up to
// drain_timeout_s. A second signal ends at once. Returns the exit code: 0, or 1 when it could not start.
[[nodiscard]] int run_gateway(const Options& options);

}  // namespace windlass::gateway
