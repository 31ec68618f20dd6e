// RobustMedian: what repeated runs of one thing took, on a machine that now and then does something else meanwhile.
//
// Runs further than four robust standard deviations from the median (1.4826 times the median absolute deviation, Hampel's
// identifier) are outliers and left out; so few as four runs have none, since they cannot show what is usual. Pure.
#pragma once

#include <cstddef>
#include <vector>

namespace windlass::planner {

struct RobustMedian {
  double value = 0;           // of the runs that were kept
  double low = 0, high = 0;   // of these
  double spread = 0;          // their robust standard deviation
  double standard_error = 0;  // of `value`; infinite for one run, which shows none
  std::size_t kept = 0, outliers = 0;
};

// REQUIRES: at least one value, all finite.
[[nodiscard]] RobustMedian robust_median(std::vector<double> values);

// Of the median of `n` normal values of this standard deviation.
[[nodiscard]] double standard_error(double spread, std::size_t values);

// Of the middle two where their number is even. REQUIRES: at least one value.
[[nodiscard]] double median_of(std::vector<double> values);

}  // namespace windlass::planner
