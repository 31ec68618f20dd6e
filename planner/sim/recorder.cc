// See recorder.h. A bucket is the sign, exponent and first eight bits of the mantissa of a double: 256 buckets per octave,
// whose middle is within 1 / 512 of all values in it.
#include "planner/sim/recorder.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <utility>

#include <boost/math/distributions/students_t.hpp>

#include "planner/sim/event_time.h"

namespace windlass::sim {
namespace {

constexpr int kMantissaShift = 44;     // keeps eight of the 52 bits
constexpr std::int64_t kOctaves = 68;  // from 2^-34 s, under a tenth of a nanosecond, to 2^34 s, over 500 years
constexpr std::int64_t kFirst = std::int64_t{1023 - 34} << 8;
constexpr std::int64_t kBuckets = 1 + (kOctaves << 8);  // the first one holds smaller values, mostly 0

std::size_t bucket_of(double seconds) {
  const auto place = static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(seconds) >> kMantissaShift);
  return static_cast<std::size_t>(std::clamp<std::int64_t>(place - kFirst + 1, 0, kBuckets - 1));
}

double middle_of(std::size_t bucket) {
  if (bucket == 0) return 0;
  const auto place = static_cast<std::uint64_t>(static_cast<std::int64_t>(bucket) - 1 + kFirst);
  return 0.5 * (std::bit_cast<double>(place << kMantissaShift) + std::bit_cast<double>((place + 1) << kMantissaShift));
}

}  // namespace

// Grows by whole octaves, so that a run with similar times grows only a few times.
void TimeRecorder::grow_to(std::size_t bucket) {
  const std::size_t octave = (bucket - 1) >> 8;
  const std::size_t from = buckets_.empty() ? octave : std::min(octave, (first_ - 1) >> 8);
  const std::size_t to = buckets_.empty() ? octave + 1 : std::max(octave + 1, (first_ - 1 + buckets_.size()) >> 8);
  std::vector<std::int64_t> grown((to - from) << 8, 0);
  std::copy(buckets_.begin(), buckets_.end(),
            grown.begin() + static_cast<std::ptrdiff_t>(buckets_.empty() ? 0 : first_ - 1 - (from << 8)));
  buckets_ = std::move(grown);
  first_ = 1 + (from << 8);
}

void TimeRecorder::observe(double seconds) {
  assert(seconds >= 0);
  seconds += 0.0;  // clears the sign bit of negative zero
  ++count_;
  const double off = seconds - mean_;
  mean_ += off / static_cast<double>(count_);
  squares_ += off * (seconds - mean_);
  min_ = count_ == 1 ? seconds : std::min(min_, seconds);
  max_ = std::max(max_, seconds);
  const std::size_t bucket = bucket_of(seconds);
  if (bucket == 0) {
    ++smallest_;
    return;
  }
  if (bucket - first_ >= buckets_.size()) grow_to(bucket);  // the difference wraps around if bucket < first_
  ++buckets_[bucket - first_];
}

TimeSummary TimeRecorder::summary() const {
  if (count_ == 0) return {};
  TimeSummary summary;
  summary.mean_s = mean_;
  summary.standard_deviation_s = count_ > 1 ? std::sqrt(squares_ / static_cast<double>(count_ - 1)) : 0;
  summary.min_s = min_;
  summary.max_s = max_;
  // The smallest time that at least this share of all values do not exceed.
  const auto quantile = [this](double share) {
    const auto rank = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(count_)));
    std::int64_t seen = smallest_;
    if (seen >= rank) return std::clamp(0.0, min_, max_);
    std::size_t at = 0;
    while (at + 1 < buckets_.size() && (seen += buckets_[at]) < rank) ++at;
    return std::clamp(middle_of(first_ + at), min_, max_);
  };
  summary.p50_s = quantile(0.50);
  summary.p90_s = quantile(0.90);
  summary.p95_s = quantile(0.95);
  summary.p99_s = quantile(0.99);
  return summary;
}

void RunRecorder::observe(std::int64_t at, std::int64_t arrived_ns, std::int64_t started_ns, std::int64_t ended_ns) {
  waiting_.observe(seconds_between(arrived_ns, started_ns));
  trend_.observe(at, seconds_between(arrived_ns, started_ns));
  service_.observe(seconds_between(started_ns, ended_ns));
  response_.observe(seconds_between(arrived_ns, ended_ns));
}

SimulationResult RunRecorder::result(std::int64_t last_event_ns) const {
  return {response_.count(), waiting_.summary(), service_.summary(), response_.summary(), seconds_between(0, last_event_ns),
          trend_.tenths()};
}

MeanEstimate mean_over_replications(std::span<const double> means) {
  MeanEstimate estimate;
  if (means.empty()) return estimate;
  const auto count = static_cast<double>(means.size());
  for (const double mean : means) estimate.mean += mean / count;
  if (means.size() == 1) return estimate;
  double squares = 0;
  for (const double mean : means) squares += (mean - estimate.mean) * (mean - estimate.mean);
  const boost::math::students_t student(count - 1);
  estimate.half_width = boost::math::quantile(student, 0.975) * std::sqrt(squares / (count - 1) / count);
  return estimate;
}

}  // namespace windlass::sim
