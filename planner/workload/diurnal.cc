// Generates arrivals along a daily curve with bursts, by thinning; see diurnal.h.
#include "planner/workload/diurnal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

namespace windlass::workload {
namespace {

// Half the distance from trough to peak, relative to the mean: peak / trough = (1 + a) / (1 - a).
double amplitude(const DiurnalArrivals& spec) { return (spec.peak_to_trough - 1) / (spec.peak_to_trough + 1); }

}  // namespace

double DiurnalArrivals::curve_per_s(double time_s) const {
  const double angle = 2 * std::numbers::pi * std::fmod(time_s - peak_at_s, period_s) / period_s;
  return mean_rate_per_s * (1 + amplitude(*this) * std::cos(angle));
}

DiurnalProcess::DiurnalProcess(const DiurnalArrivals& spec, std::uint64_t seed, std::string_view source)
    : spec_(spec),
      times_(seed, std::string(source) + "/times"),
      bursts_(seed, std::string(source) + "/bursts"),
      peak_per_s_(spec.mean_rate_per_s * (1 + amplitude(spec))) {
  next_burst_s_ = gap_to_burst_s();
  if (spec.burst_rate_per_s == 0) return;
  burst_per_s_ = spec.burst_requests / spec.burst_duration_s;
  // Bursts that started within one duration before time 0 are still active; each started at a uniform moment in it.
  const std::int64_t under_way = bursts_.poisson(spec.burst_rate_per_s * spec.burst_duration_s);
  for (std::int64_t i = 0; i < under_way; ++i) ends_s_.push_back(bursts_.uniform(0, spec.burst_duration_s));
  std::sort(ends_s_.begin(), ends_s_.end());
}

double DiurnalProcess::gap_to_burst_s() {
  if (spec_.burst_rate_per_s == 0) return std::numeric_limits<double>::infinity();
  return bursts_.exponential(spec_.burst_rate_per_s);
}

std::optional<double> DiurnalProcess::next_s() {
  while (true) {
    const double from_bursts_per_s = static_cast<double>(ends_s_.size()) * burst_per_s_;
    const double at_most_per_s = peak_per_s_ + from_bursts_per_s;
    const double candidate_s = now_s_ + times_.exponential(at_most_per_s);
    const bool ends_first = !ends_s_.empty() && ends_s_.front() <= next_burst_s_;
    const double change_s = ends_first ? ends_s_.front() : next_burst_s_;
    if (candidate_s >= change_s) {
      now_s_ = change_s;
      if (ends_first) {
        ends_s_.pop_front();
      } else {
        ends_s_.push_back(next_burst_s_ + spec_.burst_duration_s);
        next_burst_s_ += gap_to_burst_s();
      }
      continue;
    }
    now_s_ = candidate_s;
    if (spec_.peak_to_trough == 1) return now_s_;
    if (times_.uniform() * at_most_per_s < spec_.curve_per_s(now_s_) + from_bursts_per_s) return now_s_;
  }
}

}  // namespace windlass::workload
