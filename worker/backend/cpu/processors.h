// Processors that this process may run on, and threads that stay on one of them.
#pragma once

#include <vector>

#include "planner/base/result.h"

namespace windlass::worker::cpu {

// Numbers of the processors that the process's main thread may run on, ascending: those of the machine, of the container's
// cpuset, or of taskset. Error: kUnavailable, where the system does not tell.
[[nodiscard]] Result<std::vector<int>> allowed_processors();

// Of `allowed`, those of one of `ranks` ranks with `threads` threads each; ranks share none. Error: kInvalidArgument, when there
// are fewer than ranks * threads. REQUIRES: 0 <= rank < ranks, threads >= 1.
[[nodiscard]] Result<std::vector<int>> processors_of_rank(const std::vector<int>& allowed, int threads, int rank, int ranks);

// The calling thread runs on this processor alone from now on; asking for the same again costs nothing. False, and nothing has
// changed, where the system refuses.
bool stay_on(int processor) noexcept;

}  // namespace windlass::worker::cpu
