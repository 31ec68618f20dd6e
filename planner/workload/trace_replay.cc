// Replays a trace with time and rate scaled; see trace_replay.h.
#include "planner/workload/trace_replay.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace windlass::workload {

Result<void> TraceScaling::validate() const {
  const auto bad = [](const char* field, double found, const char* allowed) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("trace: {}: must be {} (got {})", field, allowed, found)};
  };
  if (!(speed >= 1e-6 && speed <= 1e6)) return bad("time scale", speed, "a factor from 0.000001 to 1000000");
  if (!(rate > 0 && rate <= 1e4)) return bad("rate scale", rate, "a factor above 0 and at most 10000");
  return {};
}

double TraceReplay::period_s(std::span<const double> times_s) {
  if (times_s.size() < 2) return 0;
  const auto rows = static_cast<double>(times_s.size());
  return (times_s.back() - times_s.front()) * rows / (rows - 1);
}

TraceReplay::TraceReplay(std::vector<double> times_s, const TraceScaling& scaling, std::uint64_t seed, std::string_view source)
    : times_s_(std::move(times_s)),
      period_s_(period_s(times_s_)),
      speed_(scaling.speed),
      rng_(seed, std::string(source) + "/trace") {
  assert(scaling.validate().ok());
  assert(std::is_sorted(times_s_.begin(), times_s_.end()));
  if (times_s_.empty()) return;
  const double whole = std::floor(scaling.rate);
  const double rest = scaling.rate - whole;
  const auto copies = static_cast<std::size_t>(whole) + (rest > 0 ? 1 : 0);
  // Draw all shifts before any thinning, so that all rates between 2 and 3 share their second copy.
  std::vector<Copy> made(copies);
  for (std::size_t i = 0; i < copies; ++i) {
    Copy& copy = made[i];
    copy.index = i;
    copy.left = times_s_.size();
    if (i + 1 == copies && rest > 0) copy.keep = rest;
    if (i > 0) copy.shift_s = rng_.uniform(0, period_s_);
    if (copy.shift_s == 0) continue;
    const auto first = std::lower_bound(times_s_.begin(), times_s_.end(), times_s_.front() + period_s_ - copy.shift_s);
    copy.row = static_cast<std::size_t>(first - times_s_.begin());
    if (copy.row == times_s_.size()) {
      copy.row = 0;  // the shift falls into the gap after the last row
    } else {
      copy.shift_s -= period_s_;
    }
  }
  for (const Copy& copy : made) push(copy);
}

void TraceReplay::push(Copy copy) {
  for (; copy.left > 0; --copy.left) {
    if (copy.keep == 1 || rng_.uniform() < copy.keep) {
      // Rounding must not move a shifted row before the start of the trace.
      copy.time_s = std::max(times_s_.front(), times_s_[copy.row] + copy.shift_s);
      copies_.push(copy);
      return;
    }
    if (++copy.row == times_s_.size()) {
      copy.row = 0;
      copy.shift_s += period_s_;
    }
  }
}

std::optional<TraceReplay::Arrival> TraceReplay::next() {
  if (copies_.empty()) return std::nullopt;
  Copy copy = copies_.top();
  copies_.pop();
  const Arrival arrival{copy.time_s / speed_, copy.row};
  if (++copy.row == times_s_.size()) {
    copy.row = 0;
    copy.shift_s += period_s_;
  }
  --copy.left;
  push(copy);
  return arrival;
}

}  // namespace windlass::workload
