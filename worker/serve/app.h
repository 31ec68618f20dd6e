// The worker's life: listen, load, serve, drain, exit. Belongs to main's thread, which also waits for signals.
#pragma once

#include <string>
#include <vector>

#include "worker/serve/flags.h"

namespace windlass::worker {

// From now on SIGTERM and SIGINT are what serve_model() waits for. Call once, before serve_model().
void catch_stop_signals();

// Returns the exit code: 0 after a drain that finished everything, 1 when the model or the address is unusable or the drain ran
// out of time. Where another rank, or the GPU, is lost it ends the process with 1 at once. `arguments`: of the program, for the
// other ranks.
[[nodiscard]] int serve_model(const ServeFlags& flags, const std::vector<std::string>& arguments);

// The life of a rank other than 0. The exit code: 0 when rank 0 has ended it.
[[nodiscard]] int serve_rank(const ServeFlags& flags);

}  // namespace windlass::worker
