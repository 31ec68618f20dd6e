// LatencyCounts: how many latencies fell into which interval, and percentiles of them. The one place that computes a latency's
// percentile for people: controller, `windlass top` and `windlass up` call it.
//
// The intervals may be a gateway's fine bins (latency_bins.h), a Prometheus histogram's coarse buckets, or both in one sum:
// they need not fit each other. What they allow to know is what comes out: a value, or no more than a limit. Plain data; pure.
#pragma once

#include <optional>
#include <vector>

#include "metrics/exposition_parser.h"
#include "planner/base/bound.h"

namespace windlass::metrics {

struct Percentile {
  double seconds = 0;
  Bound bound = Bound::kNone;  // not kNone: the percentile is below or above that many seconds, and no more is known

  bool operator==(const Percentile&) const = default;
};

// `count` latencies were above above_s and at most most_s, which may be +Inf.
struct LatencyInterval {
  double above_s = 0;
  double most_s = 0;
  double count = 0;

  bool operator==(const LatencyInterval&) const = default;
};

class LatencyCounts {
 public:
  LatencyCounts() = default;
  // In any order, each interval once; those with a count of 0 are left out.
  explicit LatencyCounts(std::vector<LatencyInterval> intervals);

  // REQUIRES: bounds above 0.
  [[nodiscard]] static LatencyCounts of(const HistogramSnapshot& histogram);

  void add(const LatencyCounts& other);
  // this - earlier; nullopt where a count fell (the writer restarted).
  [[nodiscard]] std::optional<LatencyCounts> since(const LatencyCounts& earlier) const;

  // Of `percent` (0 to 100) by nearest rank, as `windlass load` computes its own. A value where the intervals say it to 5 %:
  // the middle of a fine bin; a limit otherwise. nullopt when nothing was counted.
  [[nodiscard]] std::optional<Percentile> percentile(double percent) const;

  [[nodiscard]] double total() const;
  [[nodiscard]] bool empty() const { return intervals_.empty(); }
  // By their lower, then by their upper end.
  [[nodiscard]] const std::vector<LatencyInterval>& intervals() const { return intervals_; }

  bool operator==(const LatencyCounts&) const = default;

 private:
  std::vector<LatencyInterval> intervals_;
};

}  // namespace windlass::metrics
