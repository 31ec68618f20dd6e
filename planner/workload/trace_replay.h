// TraceReplay: which row of a trace arrives next, and when, with time and rate scaled.
//
// Time scaling divides all times by `speed`: gaps shrink, burstiness stays. Rate scaling keeps the trace's pace: below 1 each
// row stays with that chance, independently; above 1 the trace is laid over copies of itself, each shifted by an independent
// uniform time around the trace's circle (its length and one mean gap), and the last one thinned to the fraction that is left.
// The trace itself is one of the copies, unshifted. A rate of 1 is the trace as it is. Copies keep their rows' lengths, hence
// the rows and not only the times. Per arrival O(log copies).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/base/rng.h"

namespace windlass::workload {

struct TraceScaling {
  double speed = 1;  // times are divided by it
  double rate = 1;   // rows are thinned or multiplied by it; at most 10,000

  // Error kInvalidArgument names the field, what was found and what is allowed.
  [[nodiscard]] Result<void> validate() const;
};

class TraceReplay {
 public:
  struct Arrival {
    double time_s = 0;
    std::size_t row = 0;
  };

  TraceReplay() = default;  // of a trace without rows
  // REQUIRES: times from 0 on that never fall, scaling.validate(). `source` names the random stream.
  TraceReplay(std::vector<double> times_s, const TraceScaling& scaling, std::uint64_t seed, std::string_view source);

  // Times never fall; of two at the same time the copy made first is first.
  [[nodiscard]] std::optional<Arrival> next();

  // The circle's length: a trace of n rows over L seconds repeats after L * n / (n - 1). 0 for fewer than two rows.
  [[nodiscard]] static double period_s(std::span<const double> times_s);

 private:
  // One copy's way around the circle, from the first row that its shift brings past the trace's begin.
  struct Copy {
    double shift_s = 0;
    double keep = 1;
    std::size_t row = 0;
    std::size_t left = 0;  // rows to go, this one included
    double time_s = 0;     // of this row, shifted, before the speed
    std::size_t index = 0;
  };
  struct Later {
    bool operator()(const Copy& a, const Copy& b) const {
      return a.time_s != b.time_s ? a.time_s > b.time_s : a.index > b.index;
    }
  };

  void push(Copy copy);  // unless none of its rows that are left stays

  std::vector<double> times_s_;
  double period_s_ = 0;
  double speed_ = 1;
  Rng rng_{0, ""};
  std::priority_queue<Copy, std::vector<Copy>, Later> copies_;
};

}  // namespace windlass::workload
