// Computes error measures of predictions; see error_summary.h.
#include "planner/perf/error_summary.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

#include "planner/perf/robust_median.h"

namespace windlass::planner {

ErrorSummary error_summary(std::span<const double> actual, std::span<const double> predicted) {
  assert(!actual.empty() && actual.size() == predicted.size());
  const double n = static_cast<double>(actual.size());
  double mean = 0;
  for (const double value : actual) mean += value / n;

  std::vector<double> shares(actual.size());
  double squared = 0;
  double deviation = 0;
  ErrorSummary summary;
  summary.samples = actual.size();
  for (std::size_t i = 0; i < actual.size(); ++i) {
    assert(actual[i] > 0);
    const double error = predicted[i] - actual[i];
    shares[i] = std::abs(error) / actual[i];
    squared += error * error;
    deviation += (actual[i] - mean) * (actual[i] - mean);
    summary.mape += shares[i] / n;
  }
  summary.rmse = std::sqrt(squared / n);
  if (deviation > 0) {
    summary.r_squared = 1 - squared / deviation;
  } else {
    summary.r_squared = squared > 0 ? 0 : 1;
  }
  summary.median_ape = median_of(shares);
  summary.max_ape = *std::max_element(shares.begin(), shares.end());
  return summary;
}

}  // namespace windlass::planner
