// See waiting_trend.h.
#include "planner/sim/waiting_trend.h"

#include <cassert>
#include <cstddef>

namespace windlass::sim {
namespace {

constexpr int kRisingPairs = 40;

}  // namespace

void WaitingTrend::observe(std::int64_t at, double waiting_s) {
  assert(0 <= at && at < requests_);
  Sum& sum = sums_[static_cast<std::size_t>(10 * (static_cast<double>(at) / static_cast<double>(requests_)))];
  sum.seconds += waiting_s;
  ++sum.count;
}

WaitingByTenth WaitingTrend::tenths() const {
  WaitingByTenth means;
  for (std::size_t i = 0; i < means.size(); ++i) {
    if (sums_[i].count > 0) means[i] = sums_[i].seconds / static_cast<double>(sums_[i].count);
  }
  return means;
}

WaitingByTenth mean_by_tenth(std::span<const WaitingByTenth> replications) {
  WaitingByTenth means;
  for (std::size_t i = 0; i < means.size() && !replications.empty(); ++i) {
    means[i] = 0;
    for (const WaitingByTenth& tenths : replications) {
      if (!tenths[i]) means[i].reset();
      if (means[i]) *means[i] += *tenths[i] / static_cast<double>(replications.size());
    }
  }
  return means;
}

bool waiting_grows(const WaitingByTenth& tenths, double mean_service_s) {
  int rising = 0;
  for (std::size_t later = 0; later < tenths.size(); ++later) {
    if (!tenths[later]) return false;
    for (std::size_t earlier = 0; earlier < later; ++earlier) rising += *tenths[later] > *tenths[earlier];
  }
  return rising >= kRisingPairs && *tenths.back() > mean_service_s;
}

}  // namespace windlass::sim
