// RankWatch: detects lost ranks while this rank waits for them on its GPU. The GPU's collectives do not notice that a
// process is lost, so the waiting call may never return.
//
// While a step runs, a thread checks every RankGroup::kLookS whether a rank is lost or silent, the step takes too long, or
// another fault exists, and reports that once. The receiver should end the process, because the thread of the step may never
// return. Starting and ending a step cost one atomic operation each.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

#include "planner/base/result.h"
#include "worker/collective/rank_group.h"

namespace windlass::worker {

class RankWatch {
 public:
  // Other faults to check for; called on any thread.
  using Fault = std::function<std::optional<Error>()>;

  // `limit_s`: of a step. `lost`: called on the watch's thread. REQUIRES: the group outlives this.
  RankWatch(const RankGroup& group, double limit_s, Fault fault, std::function<void(const Error&)> lost);
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // A step, for the lifetime of this object. One at a time.
  class Step {
   public:
    explicit Step(RankWatch& watch) : watch_(watch) { watch_.steps_.fetch_add(1, std::memory_order_relaxed); }
    ~Step() { watch_.steps_.fetch_add(1, std::memory_order_relaxed); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    RankWatch& watch_;
  };

 private:
  void run(const std::stop_token& stop);

  const RankGroup& group_;
  const double limit_s_;
  const Fault fault_;
  const std::function<void(const Error&)> lost_;
  std::atomic<std::uint64_t> steps_ = 0;  // counts starts and ends; odd: a step is running
  std::jthread thread_;                   // last member: destroyed first
};

}  // namespace windlass::worker
