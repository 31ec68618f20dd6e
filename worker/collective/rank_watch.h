// RankWatch: sees to it that nobody waits for ever for ranks that he waits for elsewhere than in the group: on a GPU, whose
// collectives know of no lost process, and where a call may never come back.
//
// While a step runs, a thread of its own looks every RankGroup::kLookS whether a rank is lost, or has given no sign of life, or
// the step takes too long, or something else is wrong; and then says so, once. Who is told should end the process: the thread
// of the step may never come back. To begin a step and to end it cost an atomic each.
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
  // What else can go wrong; any thread.
  using Fault = std::function<std::optional<Error>()>;

  // limit_s: of a step. lost: called on the watch's thread. REQUIRES: the group outlives this.
  RankWatch(const RankGroup& group, double limit_s, Fault fault, std::function<void(const Error&)> lost);
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // A step, as long as it lives. One at a time.
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
  std::atomic<std::uint64_t> steps_ = 0;  // begun and ended; odd: one runs
  std::jthread thread_;                   // last: ends first
};

}  // namespace windlass::worker
