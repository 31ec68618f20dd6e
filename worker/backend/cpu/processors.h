// Finds the processors that this process may use, and pins threads to them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <sched.h>

#include "planner/base/result.h"

namespace windlass::worker::cpu {

// Numbers of the processors that the process's main thread may run on, ascending: those of the machine, the container's cpuset
// or taskset. Error: kUnavailable if the system does not tell.
[[nodiscard]] Result<std::vector<int>> allowed_processors();

// The lowest-numbered hardware thread of this processor's core; the processor itself if the system does not tell.
[[nodiscard]] int core_of(int processor);
// The same processors, ordered so that each core's first comes before any core's second.
[[nodiscard]] std::vector<int> cores_first(std::vector<int> processors, const std::function<int(int)>& core);

// Selects from `processors` those of one of `ranks` ranks with `threads` threads each; ranks share none. Error:
// kInvalidArgument if there are fewer than ranks * threads. REQUIRES: 0 <= rank < ranks, threads >= 1.
[[nodiscard]] Result<std::vector<int>> processors_of_rank(const std::vector<int>& processors, int threads, int rank, int ranks);

// A thread's affinity.
struct AffinityMask {
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  std::unique_ptr<cpu_set_t, Free> set;
  std::size_t bytes = 0;
};

// Pins the thread that creates it to one processor during its lifetime. Threads started meanwhile inherit the pin permanently.
class StaysOn {
 public:
  // Does nothing without a processor, or if the system refuses it. REQUIRES: destroyed on the thread that created it.
  explicit StaysOn(std::optional<int> processor);
  ~StaysOn();
  StaysOn(const StaysOn&) = delete;
  StaysOn& operator=(const StaysOn&) = delete;

  [[nodiscard]] bool stays() const { return before_.has_value(); }

 private:
  std::optional<AffinityMask> before_;
};

}  // namespace windlass::worker::cpu
