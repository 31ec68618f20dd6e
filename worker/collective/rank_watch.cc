// Counts checks instead of time, like RankGroup, because time passes even while this process is frozen.
#include "worker/collective/rank_watch.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include <fmt/core.h>

namespace windlass::worker {
namespace {

// Checks one running step from another thread.
class StepLooks {
 public:
  StepLooks(const RankGroup& group, double limit_s) : group_(group), limit_s_(limit_s) {}

  [[nodiscard]] std::optional<Error> look() {
    ++looks_;
    if (auto why = group_.lost()) return why;
    for (int rank = 0; rank < group_.ranks(); ++rank) {
      if (rank == group_.rank()) continue;
      const int silent = silences_[static_cast<std::size_t>(rank)].look(group_.beats(rank));
      if (silent * RankGroup::kLookS >= group_.patience().silent_s) return group_.silent(rank);
    }
    if (looks_ * RankGroup::kLookS <= limit_s_) return std::nullopt;
    return Error{ErrorCode::kUnavailable, fmt::format("the ranks do not meet: rank {} of {} has waited for {:g} s",
                                                      group_.rank(), group_.ranks(), limit_s_)};
  }

 private:
  const RankGroup& group_;
  const double limit_s_;
  int looks_ = 0;
  std::array<Silence, RankGroup::kMaxRanks> silences_;
};

}  // namespace

RankWatch::RankWatch(const RankGroup& group, double limit_s, Fault fault, std::function<void(const Error&)> lost)
    : group_(group),
      limit_s_(limit_s),
      fault_(std::move(fault)),
      lost_(std::move(lost)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void RankWatch::run(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  std::uint64_t watched = 0;
  std::optional<StepLooks> step;
  while (!stop.stop_requested()) {
    never.wait_for(lock, stop, std::chrono::duration<double>(RankGroup::kLookS), [] { return false; });
    const std::uint64_t now = steps_.load(std::memory_order_relaxed);
    if (now % 2 == 0) continue;
    if (now != watched) step.emplace(group_, limit_s_);
    watched = now;
    auto why = step->look();
    if (!why && fault_) why = fault_();
    if (!why || steps_.load(std::memory_order_relaxed) != now) continue;
    lost_(*why);
    return;
  }
}

}  // namespace windlass::worker
