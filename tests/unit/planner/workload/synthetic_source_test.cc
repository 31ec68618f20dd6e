// Tests of synthetic arrivals: rate, coefficient of variation and sizes, and that a seed determines them.
#include "planner/workload/synthetic_source.h"

#include <cmath>

#include <gtest/gtest.h>

namespace windlass::workload {
namespace {

// Given rates and coefficients of variation; expects 200,000 gaps to have them within about five standard errors, and sizes to
// be exponential with mean 1.
TEST(SyntheticSource, HasItsMoments) {
  constexpr int kRequests = 200'000;
  for (const double cv : {0.0, 0.5, 1.0, 2.0, 4.0}) {
    SCOPED_TRACE(cv);
    SyntheticSource source({2.5, cv, 7});
    double last_s = 0;
    double sum = 0, squares = 0, sizes = 0, size_squares = 0;
    for (int i = 0; i < kRequests; ++i) {
      const Request request = source.next().value();
      const double gap_s = request.arrival_s - last_s;
      ASSERT_GE(gap_s, 0);
      last_s = request.arrival_s;
      sum += gap_s;
      squares += gap_s * gap_s;
      sizes += request.size;
      size_squares += request.size * request.size;
      EXPECT_EQ(request.input_tokens, 0);
    }
    const double mean_s = sum / kRequests;
    EXPECT_NEAR(mean_s, 0.4, 5 * 0.4 * cv / std::sqrt(kRequests) + 1e-9);
    EXPECT_NEAR(std::sqrt(std::max(0.0, squares / kRequests - mean_s * mean_s)) / mean_s, cv, 0.03 * cv + 1e-5);
    EXPECT_NEAR(sizes / kRequests, 1, 5 / std::sqrt(kRequests));
    EXPECT_NEAR(size_squares / kRequests, 2, 0.05);
  }
}

// Given one seed; expects the same requests. At another rate; expects the same sizes with scaled arrivals. Given another seed;
// expects others.
TEST(SyntheticSource, IsFixedByItsSeed) {
  for (const double cv : {1.0, 3.0}) {
    SyntheticSource one({1, cv, 5}), same({1, cv, 5}), twice({2, cv, 5}), other({1, cv, 6});
    for (int i = 0; i < 100; ++i) {
      const Request request = one.next().value();
      const Request repeated = same.next().value();
      const Request faster = twice.next().value();
      EXPECT_EQ(request.arrival_s, repeated.arrival_s);
      EXPECT_EQ(request.size, repeated.size);
      EXPECT_EQ(request.size, faster.size);
      EXPECT_NEAR(request.arrival_s, 2 * faster.arrival_s, 1e-9 * request.arrival_s);
      EXPECT_NE(request.size, other.next().value().size);
    }
  }
}

}  // namespace
}  // namespace windlass::workload
