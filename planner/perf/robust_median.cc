// Summarises repeated measurements without outliers; see robust_median.h.
#include "planner/perf/robust_median.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace windlass::planner {
namespace {

constexpr std::size_t kFewestToJudge = 5;
constexpr double kOutlierDeviations = 4;
constexpr double kDeviationsPerMad = 1.4826;         // of a normal distribution
constexpr double kErrorOfMedian = 1.2533;            // standard error of the median relative to that of the mean
constexpr double kDeviationsPerRangeOfTwo = 0.8862;  // two normal values differ by 1.128 deviations on average

double deviation_of(const std::vector<double>& values, double median) {
  if (values.size() == 2) return std::abs(values[0] - values[1]) * kDeviationsPerRangeOfTwo;
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double value : values) distances.push_back(std::abs(value - median));
  return kDeviationsPerMad * median_of(std::move(distances));
}

}  // namespace

double median_of(std::vector<double> values) {
  assert(!values.empty());
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double standard_error(double spread, std::size_t values) {
  return kErrorOfMedian * spread / std::sqrt(static_cast<double>(values));
}

RobustMedian robust_median(std::vector<double> values) {
  const std::size_t all = values.size();
  const double median = median_of(values);
  const double deviation = deviation_of(values, median);
  if (all >= kFewestToJudge && deviation > 0) {
    std::erase_if(values, [&](double value) { return std::abs(value - median) > kOutlierDeviations * deviation; });
  }
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  RobustMedian result{median_of(values), *low, *high};
  result.spread = deviation_of(values, result.value);
  result.kept = values.size();
  result.outliers = all - values.size();
  result.standard_error =
      values.size() == 1 ? std::numeric_limits<double>::infinity() : standard_error(result.spread, values.size());
  return result;
}

}  // namespace windlass::planner
