// The worker's life cycle: listen, load, serve, drain, exit. Runs on main's thread, which also waits for signals.
#pragma once

#include <string>
#include <vector>

#include "worker/serve/flags.h"

namespace windlass::worker {

// Routes SIGTERM and SIGINT to serve_model() from now on. Call once, before serve_model().
void catch_stop_signals();

// Serves until a stop signal. `arguments`: the program's, passed on to the other ranks. Returns the exit code: 0 after a
// complete drain; 1 if the model or the address is unusable or the drain timed out. If another rank or the GPU is lost, ends
// the process immediately with 1.
[[nodiscard]] int serve_model(const ServeFlags& flags, const std::vector<std::string>& arguments);

// Runs a rank other than 0. Returns the exit code: 0 if rank 0 ended it.
[[nodiscard]] int serve_rank(const ServeFlags& flags);

}  // namespace windlass::worker
