// Processors that this process may run on, and threads that stay on one of them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <sched.h>

#include "planner/base/result.h"

namespace windlass::worker::cpu {

// Numbers of the processors that the process's main thread may run on, ascending: those of the machine, of the container's
// cpuset, or of taskset. Error: kUnavailable, where the system does not tell.
[[nodiscard]] Result<std::vector<int>> allowed_processors();

// The lowest number among the processors that are threads of this one's core; its own where the system does not tell.
[[nodiscard]] int core_of(int processor);
// The same processors, the first of each core before the second of any.
[[nodiscard]] std::vector<int> cores_first(std::vector<int> processors, const std::function<int(int)>& core);

// Of `processors`, those of one of `ranks` ranks with `threads` threads each; ranks share none. Error: kInvalidArgument, when
// there are fewer than ranks * threads. REQUIRES: 0 <= rank < ranks, threads >= 1.
[[nodiscard]] Result<std::vector<int>> processors_of_rank(const std::vector<int>& processors, int threads, int rank, int ranks);

// A thread's affinity.
struct AffinityMask {
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  std::unique_ptr<cpu_set_t, Free> set;
  std::size_t bytes = 0;
};

// While this lives, the thread that made it runs on one processor alone. Threads that it starts meanwhile do, too, for good.
class StaysOn {
 public:
  // Nothing changes without a processor, or where the system refuses this one. REQUIRES: ends on the thread that made it.
  explicit StaysOn(std::optional<int> processor);
  ~StaysOn();
  StaysOn(const StaysOn&) = delete;
  StaysOn& operator=(const StaysOn&) = delete;

  [[nodiscard]] bool stays() const { return before_.has_value(); }

 private:
  std::optional<AffinityMask> before_;
};

}  // namespace windlass::worker::cpu
