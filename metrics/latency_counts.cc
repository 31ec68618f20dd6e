// Sums, differences and percentiles of intervals; see latency_counts.h.
#include "metrics/latency_counts.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

namespace windlass::metrics {
namespace {

constexpr double kMaxRelativeError = 0.05;  // largest error of a value that stands for an interval

bool before(const LatencyInterval& a, const LatencyInterval& b) {
  return std::tie(a.above_s, a.max_s) < std::tie(b.above_s, b.max_s);
}

// The latency at that rank if every latency were at the given end of its interval. REQUIRES: not empty.
double at_rank(const std::vector<LatencyInterval>& intervals, double LatencyInterval::*end, double rank) {
  std::vector<std::pair<double, double>> ends;
  ends.reserve(intervals.size());
  for (const LatencyInterval& one : intervals) ends.emplace_back(one.*end, one.count);
  std::sort(ends.begin(), ends.end());
  double below = 0;
  for (const auto& [value, count] : ends) {
    below += count;
    if (below >= rank) return value;
  }
  return ends.back().first;
}

}  // namespace

LatencyCounts::LatencyCounts(std::vector<LatencyInterval> intervals) : intervals_(std::move(intervals)) {
  std::erase_if(intervals_, [](const LatencyInterval& one) { return !(one.count > 0); });
  std::sort(intervals_.begin(), intervals_.end(), before);
}

LatencyCounts LatencyCounts::of(const HistogramSnapshot& histogram) {
  std::vector<LatencyInterval> intervals;
  for (std::size_t i = 0; i < histogram.bounds.size(); ++i) {
    const double above_s = i == 0 ? 0.0 : histogram.bounds[i - 1], below = i == 0 ? 0.0 : histogram.counts[i - 1];
    intervals.push_back({above_s, histogram.bounds[i], histogram.counts[i] - below});
  }
  return LatencyCounts(std::move(intervals));
}

void LatencyCounts::add(const LatencyCounts& other) {
  std::vector<LatencyInterval> sum;
  sum.reserve(intervals_.size() + other.intervals_.size());
  std::merge(intervals_.begin(), intervals_.end(), other.intervals_.begin(), other.intervals_.end(), std::back_inserter(sum),
             before);
  intervals_.clear();
  for (const LatencyInterval& one : sum) {
    if (!intervals_.empty() && !before(intervals_.back(), one)) {
      intervals_.back().count += one.count;
    } else {
      intervals_.push_back(one);
    }
  }
}

std::optional<LatencyCounts> LatencyCounts::since(const LatencyCounts& earlier) const {
  LatencyCounts grown = *this;
  auto mine = grown.intervals_.begin();
  for (const LatencyInterval& was : earlier.intervals_) {
    mine = std::lower_bound(mine, grown.intervals_.end(), was, before);
    if (mine == grown.intervals_.end() || before(was, *mine) || mine->count < was.count) return std::nullopt;
    mine->count -= was.count;
  }
  std::erase_if(grown.intervals_, [](const LatencyInterval& one) { return one.count == 0; });
  return grown;
}

double LatencyCounts::total() const {
  double sum = 0;
  for (const LatencyInterval& one : intervals_) sum += one.count;
  return sum;
}

std::optional<Percentile> LatencyCounts::percentile(double percent) const {
  if (empty() || !(percent >= 0) || !(percent <= 100)) return std::nullopt;
  // The latency at this rank lies between two cases: every latency at the lower end of its interval, and every one at the upper
  // end.
  const double rank = percent / 100 * total() * (1 - 1e-12);  // 0.07 * 100 is slightly more than 7
  const double least_s = at_rank(intervals_, &LatencyInterval::above_s, rank);
  const double max_s = at_rank(intervals_, &LatencyInterval::max_s, rank);
  if (std::isinf(max_s)) return Percentile{least_s, Bound::kAbove};
  // This value has the same relative error at both ends, the smallest possible.
  if (max_s - least_s <= kMaxRelativeError * (max_s + least_s)) return Percentile{least_s * (2 / (1 + least_s / max_s))};
  return Percentile{max_s, Bound::kBelow};
}

}  // namespace windlass::metrics
