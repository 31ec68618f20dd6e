// ErrorSummary says how far predictions are from measurements, in the measures that papers on latency models use.
//
// Values are fractions and not per cent: a MAPE of 0.03 is 3 %. Pure.
#pragma once

#include <cstddef>
#include <span>

namespace windlass::planner {

struct ErrorSummary {
  std::size_t samples = 0;
  double rmse = 0;        // root of the mean squared error, in the unit of the samples
  double mape = 0;        // mean of |predicted - actual| / actual
  double median_ape = 0;  // median of the same
  double max_ape = 0;
  double r_squared =
      0;  // 1 - squared error / squared deviation from the mean; if nothing varies: 1 for exact predictions, otherwise 0

  bool operator==(const ErrorSummary&) const = default;
};

// REQUIRES: equal sizes, at least one sample, actual > 0.
[[nodiscard]] ErrorSummary error_summary(std::span<const double> actual, std::span<const double> predicted);

}  // namespace windlass::planner
