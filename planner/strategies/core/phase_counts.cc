// See phase_counts.h.
#include "planner/strategies/core/phase_counts.h"

#include <algorithm>
#include <cmath>

namespace windlass::search {
namespace {

constexpr double kCountsGrowth = 1.3;  // growth factor of both counts, until a pair is feasible
constexpr double kCheaper = 1 - 1e-9;  // sums of prices are rounded

bool covers(const PhaseCounts& large, const PhaseCounts& small) {
  return large.prefill >= small.prefill && large.decode >= small.decode;
}

}  // namespace

int largest_good(int most, const std::function<bool(int)>& good) {
  if (most < 1 || !good(1)) return 0;
  int low = 1, high = 2;
  while (high <= most && good(high)) {
    low = high;
    high = high > most / 2 ? most + 1 : 2 * high;
  }
  high = std::min(high, most + 1);
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (good(middle) ? low : high) = middle;
  }
  return low;
}

std::optional<bool> CountWalk::known(const PhaseCounts& counts) const {
  if (std::any_of(held_.begin(), held_.end(), [&](const PhaseCounts& held) { return covers(counts, held); })) return true;
  if (std::any_of(failed_.begin(), failed_.end(), [&](const PhaseCounts& failed) { return covers(failed, counts); }))
    return false;
  return std::nullopt;
}

Result<std::vector<char>> CountWalk::hold(std::span<const PhaseCounts> counts) {
  std::vector<char> answers(counts.size());
  std::vector<PhaseCounts> open;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto answer = known(counts[i]);
    if (answer) answers[i] = *answer ? 1 : 0;
    if (!answer) open.push_back(counts[i]);
  }
  if (open.empty()) return answers;
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<char> told, questions_.hold(open));
  asked_ += static_cast<std::int64_t>(open.size());
  for (std::size_t i = 0, next = 0; i < counts.size(); ++i) {
    if (next == open.size() || !(counts[i] == open[next])) continue;
    answers[i] = told[next++];
    auto& list = answers[i] != 0 ? held_ : failed_;
    std::erase_if(
        list, [&](const PhaseCounts& other) { return answers[i] != 0 ? covers(other, counts[i]) : covers(counts[i], other); });
    list.push_back(counts[i]);
    if (answers[i] != 0 && worth(counts[i]) < below_ * kCheaper) {
      best_ = counts[i];
      below_ = worth(counts[i]);
    }
  }
  return answers;
}

int CountWalk::widest(int decode) const {
  return largest_good(questions_.max_workers, [&](int prefill) {
    const PhaseCounts counts{prefill, decode};
    return worth(counts) < below_ * kCheaper && questions_.fits(counts);
  });
}

Result<bool> CountWalk::grow(const PhaseCounts& guess) {
  const auto larger = [&](int count) { return std::max(count + 1, static_cast<int>(std::ceil(kCountsGrowth * count))); };
  PhaseCounts counts = guess;
  while (questions_.fits(counts) && worth(counts) < below_ * kCheaper) {
    if (std::max(counts.prefill, counts.decode) > questions_.max_workers) return false;
    WINDLASS_ASSIGN_OR_RETURN(const std::vector<char> holds, hold({&counts, 1}));
    if (holds[0] != 0) {
      WINDLASS_RETURN_IF_ERROR(descend(counts));
      return true;
    }
    counts.prefill = larger(counts.prefill);
    if (!questions_.unified) counts.decode = larger(counts.decode);
  }
  return true;
}

Result<void> CountWalk::descend(PhaseCounts holds) {
  int step = 1, fails = 0;
  while (holds.prefill - fails > 1) {
    // Double the step until one fails, then bisect.
    const int by = fails > 0 ? (holds.prefill - fails) / 2 : std::min(step, holds.prefill - 1);
    const PhaseCounts fewer{holds.prefill - by, holds.decode};
    WINDLASS_ASSIGN_OR_RETURN(const std::vector<char> answer, hold({&fewer, 1}));
    if (answer[0] != 0) {
      holds = fewer;
      step *= 2;
    } else {
      fails = fewer.prefill;
    }
  }
  return {};
}

Result<void> CountWalk::look_at(std::span<const PhaseCounts> tops) {
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<char> answers, hold(tops));
  for (std::size_t i = 0; i < tops.size(); ++i) {
    if (answers[i] == 0) continue;
    PhaseCounts top = tops[i];
    if (best_ != top) {  // another column has become cheaper since
      top.prefill = widest(top.decode);
      if (top.prefill == 0) continue;
      WINDLASS_ASSIGN_OR_RETURN(const std::vector<char> again, hold({&top, 1}));
      if (again[0] == 0) continue;
    }
    WINDLASS_RETURN_IF_ERROR(descend(top));
  }
  return {};
}

Result<void> CountWalk::run(const PhaseCounts& guess, double below) {
  below_ = best_ ? std::min(below, worth(*best_)) : below;
  WINDLASS_ASSIGN_OR_RETURN(const bool go_on, grow(guess));
  if (!go_on) return {};
  if (questions_.unified) {
    const PhaseCounts top{widest(0), 0};
    return top.prefill == 0 ? Result<void>() : look_at({&top, 1});
  }
  // Visit columns outwards from the start, alternating sides.
  const int middle = best_ ? best_->decode : guess.decode;
  for (int up = middle, down = middle - 1;; ++up, --down) {
    std::vector<PhaseCounts> tops;
    const bool fewer = down >= 1, more = up <= questions_.max_workers && widest(up) > 0;
    if (!fewer && !more) return {};
    if (more) tops.push_back({widest(up), up});
    if (fewer && widest(down) > 0) tops.push_back({widest(down), down});
    if (!tops.empty()) WINDLASS_RETURN_IF_ERROR(look_at(tops));
  }
}

}  // namespace windlass::search
