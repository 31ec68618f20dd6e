// LatencyCounts: counts of latencies per interval, and percentiles of them. All latency percentiles shown to people come from
// here: controller, `windlass top` and `windlass up` use it.
//
// The intervals may be a gateway's fine bins (latency_bins.h), a Prometheus histogram's coarse buckets, or a sum of both; they
// need not line up. The result is a value when the intervals are narrow enough, otherwise a bound. Plain data; pure.
#pragma once

#include <optional>
#include <vector>

#include "metrics/exposition_parser.h"
#include "planner/base/bound.h"

namespace windlass::metrics {

struct Percentile {
  double seconds = 0;
  Bound bound = Bound::kNone;  // not kNone: all that is known is that the percentile is below or above `seconds`

  bool operator==(const Percentile&) const = default;
};

// `count` latencies were above above_s and at most max_s, which may be +Inf.
struct LatencyInterval {
  double above_s = 0;
  double max_s = 0;
  double count = 0;

  bool operator==(const LatencyInterval&) const = default;
};

class LatencyCounts {
 public:
  LatencyCounts() = default;
  // In any order, each interval once; intervals with a count of 0 are dropped.
  explicit LatencyCounts(std::vector<LatencyInterval> intervals);

  // REQUIRES: bounds above 0.
  [[nodiscard]] static LatencyCounts of(const HistogramSnapshot& histogram);

  void add(const LatencyCounts& other);
  // this - earlier; nullopt when a count fell (the writer restarted).
  [[nodiscard]] std::optional<LatencyCounts> since(const LatencyCounts& earlier) const;

  // Percentile `percent` (0 to 100) by nearest rank, as in `windlass load`. A value when the intervals determine it to 5 % (the
  // middle of a fine bin), otherwise a bound. nullopt when nothing was counted.
  [[nodiscard]] std::optional<Percentile> percentile(double percent) const;

  [[nodiscard]] double total() const;
  [[nodiscard]] bool empty() const { return intervals_.empty(); }
  // Ordered by lower end, then by upper end.
  [[nodiscard]] const std::vector<LatencyInterval>& intervals() const { return intervals_; }

  bool operator==(const LatencyCounts&) const = default;

 private:
  std::vector<LatencyInterval> intervals_;
};

}  // namespace windlass::metrics
