// RobustMedian summarises repeated measurements on a machine that is occasionally busy with something else.
//
// Runs more than four robust standard deviations from the median (1.4826 times the median absolute deviation, Hampel's
// identifier) are outliers and ignored. With four runs or fewer there are no outliers, because they cannot show what is usual.
// Pure.
#pragma once

#include <cstddef>
#include <vector>

namespace windlass::planner {

struct RobustMedian {
  double value = 0;           // of the runs kept
  double low = 0, high = 0;   // of the runs kept
  double spread = 0;          // their robust standard deviation
  double standard_error = 0;  // of `value`; infinite for a single run
  std::size_t kept = 0, outliers = 0;
};

// REQUIRES: at least one value, all finite.
[[nodiscard]] RobustMedian robust_median(std::vector<double> values);

// Of the median of `n` normal values with this standard deviation.
[[nodiscard]] double standard_error(double spread, std::size_t values);

// The mean of the middle two if their number is even. REQUIRES: at least one value.
[[nodiscard]] double median_of(std::vector<double> values);

}  // namespace windlass::planner
