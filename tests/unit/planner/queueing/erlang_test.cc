// Tests Erlang's formulas against textbook values, an independent sum, and a simulated queue.
#include "planner/queueing/erlang.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"

namespace windlass::planner {
namespace {

// Given loads small enough for paper; expects B(1, a) = a / (1 + a), B(2, 1) = 1/5, C(1, a) = a, C(2, 1) = 1/3; and C(10, 8)
// from tables.
TEST(Erlang, TextbookValues) {
  EXPECT_DOUBLE_EQ(erlang_b(1, 0.5), 0.5 / 1.5);
  EXPECT_DOUBLE_EQ(erlang_b(2, 1), 0.2);
  EXPECT_DOUBLE_EQ(erlang_b(0, 3), 1);
  EXPECT_DOUBLE_EQ(erlang_b(3, 0), 0);
  EXPECT_DOUBLE_EQ(erlang_c(1, 0.7), 0.7);
  EXPECT_NEAR(erlang_c(2, 1), 1.0 / 3, 1e-15);
  EXPECT_NEAR(erlang_c(10, 8), 0.4092, 5e-5);
  EXPECT_DOUBLE_EQ(erlang_c(4, 4), 1);
  EXPECT_DOUBLE_EQ(erlang_c(4, 9), 1);
}

// Given up to 60 servers at many loads; expects the defining sum (a^c / c!) / sum (a^k / k!), computed with logarithms.
TEST(Erlang, AgreesWithTheDefiningSum) {
  for (int c = 1; c <= 60; ++c) {
    for (double a : {0.1, 0.5 * c, 0.9 * c, 0.99 * c}) {
      double sum = 0;
      const double last = c * std::log(a) - std::lgamma(c + 1.0);
      for (int k = 0; k <= c; ++k) sum += std::exp(k * std::log(a) - std::lgamma(k + 1.0) - last);
      EXPECT_NEAR(erlang_b(c, a), 1 / sum, 1e-12 / sum + 1e-15) << c << " servers, load " << a;
    }
  }
}

// Given a hundred thousand servers; expects finite answers that fall with more servers.
TEST(Erlang, IsStableForManyServers) {
  EXPECT_DOUBLE_EQ(erlang_c(100'000, 50'000), 0);
  const double near = erlang_c(100'000, 99'800);
  EXPECT_GT(near, 0.2);
  EXPECT_LT(near, 0.6);
  EXPECT_LT(erlang_c(100'500, 99'800), near);
}

// Given any number of servers; expects the value of the recursion 1/B(c) = 1 + c / (a B(c - 1)) from about 50 sqrt(a) terms;
// and for a load well below the servers, from hundreds or thousands of terms for any number of servers.
TEST(Erlang, TakesFewTermsForAnyNumberOfServers) {
  for (double a : {0.3, 7.0, 1e3, 1e5, 1e7, 1e10}) {
    for (double deviations : {-5.0, 0.5, 2.0, 8.0, 36.0, 45.0}) {
      const auto c = static_cast<std::int64_t>(std::ceil(std::max(1.0, a + deviations * std::sqrt(a))));
      const ErlangB got = erlang_b_counted(c, a);
      EXPECT_LE(static_cast<double>(got.terms), 50 * std::sqrt(a) + 50) << c << " servers, load " << a;
      if (c > 2'000'000) continue;
      double inverse = 1;
      for (std::int64_t k = 1; k <= c; ++k) inverse = 1 + inverse * (static_cast<double>(k) / a);
      if (std::isfinite(inverse)) {
        EXPECT_NEAR(got.blocked * inverse, 1, 1e-9) << c << " servers, load " << a;
      }
    }
    for (double utilisation : {0.1, 0.8, 0.97}) {
      const std::int64_t terms = erlang_b_counted(static_cast<std::int64_t>(std::ceil(a / utilisation)), a).terms;
      EXPECT_LE(static_cast<double>(terms), 1420 / std::log(1 / utilisation) + 50) << utilisation << " busy, load " << a;
    }
  }
}

// Given a queue that cannot keep up; expects an infinite wait. Given no arrivals; expects none.
TEST(Erlang, Extremes) {
  const MmcQueue overloaded{4, 5, 1};
  EXPECT_FALSE(overloaded.stable());
  EXPECT_EQ(overloaded.wait_quantile_s(0.95), std::numeric_limits<double>::infinity());
  EXPECT_EQ(overloaded.mean_wait_s(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(overloaded.wait_exceeds(10), 1);
  const MmcQueue idle{4, 0, 1};
  EXPECT_EQ(idle.wait_quantile_s(0.95), 0);
  EXPECT_EQ(idle.wait_exceeds(0), 0);
}

// Given the wait at a share; expects that the rest waits longer, so the two functions are inverse.
TEST(Erlang, QuantileInvertsTheTail) {
  const MmcQueue queue{10, 9, 1};
  const double wait_s = queue.wait_quantile_s(0.95);
  EXPECT_GT(wait_s, 0);
  EXPECT_NEAR(queue.wait_exceeds(wait_s), 0.05, 1e-12);
  EXPECT_EQ(queue.wait_quantile_s(0.1), 0) << "more than a tenth does not wait at all";
}

// Given 400,000 simulated requests to 5 servers at 80 %; expects the share of waiting requests, the mean wait and the share
// beyond 2 s of the formulas.
TEST(Erlang, AgreesWithASimulatedQueue) {
  const MmcQueue queue{5, 4, 1};
  Rng arrivals(11, "arrivals");
  Rng services(11, "services");
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (std::int64_t i = 0; i < queue.servers; ++i) free_at.push(0);
  constexpr int kRequests = 400'000;
  double now_s = 0;
  double sum_s = 0;
  int waited = 0;
  int long_waits = 0;
  for (int i = 0; i < kRequests; ++i) {
    now_s += arrivals.exponential(queue.arrival_rate_per_s);
    const double start_s = std::max(now_s, free_at.top());
    free_at.pop();
    free_at.push(start_s + services.exponential(1 / queue.service_time_s));
    sum_s += start_s - now_s;
    waited += start_s > now_s;
    long_waits += start_s - now_s > 2;
  }
  EXPECT_NEAR(static_cast<double>(waited) / kRequests, erlang_c(5, 4), 0.015);
  EXPECT_NEAR(sum_s / kRequests, queue.mean_wait_s(), 0.03);
  EXPECT_NEAR(static_cast<double>(long_waits) / kRequests, queue.wait_exceeds(2), 0.006);
}

}  // namespace
}  // namespace windlass::planner
