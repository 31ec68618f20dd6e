// TraceReplay yields the rows of a trace in order, with time and rate scaled.
//
// Time scaling divides all times by `speed`: gaps shrink, burstiness stays. Rate scaling keeps the pace. Below 1 each row is
// kept with that probability, independently. Above 1 the trace is overlaid with copies of itself; each copy is shifted by an
// independent uniform time around a circle (the length of the trace plus one mean gap), and the last copy is thinned to the
// remaining fraction. The first copy is the unshifted trace, so a rate of 1 leaves the trace unchanged. It yields rows and not
// only times, because copies keep the lengths of their rows. O(log copies) per arrival.
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
  double speed = 1;  // times are divided by this
  double rate = 1;   // number of rows is multiplied by this; at most 10,000

  // Error kInvalidArgument names the field, what was found and what is allowed.
  [[nodiscard]] Result<void> validate() const;
};

class TraceReplay {
 public:
  struct Arrival {
    double time_s = 0;
    std::size_t row = 0;
  };

  TraceReplay() = default;  // for a trace without rows
  // REQUIRES: times that start at 0 or later and never decrease; scaling.validate(). `source` names the random stream.
  TraceReplay(std::vector<double> times_s, const TraceScaling& scaling, std::uint64_t seed, std::string_view source);

  // Times never decrease; at equal times the copy made first goes first.
  [[nodiscard]] std::optional<Arrival> next();

  // Length of the circle: a trace of n rows over L seconds repeats after L * n / (n - 1). 0 for fewer than two rows.
  [[nodiscard]] static double period_s(std::span<const double> times_s);

 private:
  // A copy's position on the circle, from the first row that its shift moves past the start of the trace.
  struct Copy {
    double shift_s = 0;
    double keep = 1;
    std::size_t row = 0;
    std::size_t left = 0;  // rows left, including this one
    double time_s = 0;     // of this row after the shift, before scaling by speed
    std::size_t index = 0;
  };
  struct Later {
    bool operator()(const Copy& a, const Copy& b) const {
      return a.time_s != b.time_s ? a.time_s > b.time_s : a.index > b.index;
    }
  };

  void push(Copy copy);  // does nothing if thinning removes all remaining rows

  std::vector<double> times_s_;
  double period_s_ = 0;
  double speed_ = 1;
  Rng rng_{0, ""};
  std::priority_queue<Copy, std::vector<Copy>, Later> copies_;
};

}  // namespace windlass::workload
