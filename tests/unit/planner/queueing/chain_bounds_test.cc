// Tests the bounds of Theorem 3.7 against sums in long double, and the exact two-chain value against the solved Markov chain.
#include "planner/queueing/chain_bounds.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <Eigen/Dense>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/queueing/erlang.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

std::vector<ChainRate> random_chains(Rng& rng, int max_chains, int max_capacity) {
  std::vector<ChainRate> chains(static_cast<std::size_t>(rng.integer(1, max_chains)));
  for (ChainRate& chain : chains) chain = ChainRate{rng.uniform(0.05, 2), rng.integer(1, max_capacity)};
  std::sort(chains.begin(), chains.end(),
            [](const auto& a, const auto& b) { return a.service_rate_per_s > b.service_rate_per_s; });
  return chains;
}

// Eq. 30-31 as written, for a total capacity at which the products fit a long double.
double as_written_s(const std::vector<ChainRate>& filling_order, double lambda) {
  std::vector<long double> rates{0};
  for (const ChainRate& chain : filling_order) {
    for (long i = 0; i < chain.capacity; ++i) rates.push_back(rates.back() + chain.service_rate_per_s);
  }
  const auto capacity = rates.size() - 1;
  const long double nu = rates.back(), rho = lambda / nu;
  std::vector<long double> product{1};
  for (std::size_t n = 1; n <= capacity; ++n) product.push_back(product.back() * lambda / rates[n]);
  long double norm = 1, mean = 0;
  for (std::size_t n = 1; n < capacity; ++n) norm += product[n];
  norm += product[capacity] * nu / (nu - lambda);
  for (std::size_t n = 0; n < capacity; ++n) mean += n * product[n];
  mean += product[capacity] * (rho / ((1 - rho) * (1 - rho)) + capacity / (1 - rho));
  return static_cast<double>(mean / norm / lambda);
}

// Given random sets of chains at loads up to 99 %; expects the values of the formulas, and lower <= upper.
TEST(ChainBounds, AgreeWithTheFormulas) {
  Rng rng(6, "bounds");
  for (int round = 0; round < effort(300, 3000); ++round) {
    auto chains = random_chains(rng, 6, 20);
    const double lambda = rng.uniform(0.01, 0.99) * total_rate_per_s(chains);
    const double lower = mean_response_lower_s(chains, lambda).value(), upper = mean_response_upper_s(chains, lambda).value();
    ASSERT_NEAR(lower, as_written_s(chains, lambda), 1e-12 * lower) << "round " << round;
    ASSERT_LE(lower, upper * (1 + 1e-12));
    std::reverse(chains.begin(), chains.end());
    ASSERT_NEAR(upper, as_written_s(chains, lambda), 1e-12 * upper) << "round " << round;
  }
}

// Given equal slots; expects both bounds to be the mean response of the M/M/c queue.
TEST(ChainBounds, EqualErlangsQueueForEqualSlots) {
  const std::vector<ChainRate> chains{{0.5, 7}, {0.5, 13}};
  for (const double load : {0.1, 0.6, 0.9, 0.99}) {
    const MmcQueue queue{20, load * 10, 2};
    const double expected = queue.mean_wait_s() + 2;
    EXPECT_NEAR(mean_response_lower_s(chains, load * 10).value(), expected, 1e-12 * expected);
    EXPECT_NEAR(mean_response_upper_s(chains, load * 10).value(), expected, 1e-12 * expected);
  }
}

// Given a total capacity of 100,000 with one speed and with two, at loads from 1 % to 99.999 %; expects no overflow and lower
// <= upper. With one speed expects Erlang's value; with two, a value between the service times, or more because of the wait.
TEST(ChainBounds, HoldForACapacityOfAHundredThousand) {
  const std::vector<ChainRate> equal{{0.1, 100'000}}, mixed{{0.2, 40'000}, {0.05, 60'000}};
  for (const double load : {0.01, 0.5, 0.9, 0.999, 0.99999}) {
    const MmcQueue queue{100'000, load * 10'000, 10};
    const double expected = queue.mean_wait_s() + 10;
    EXPECT_NEAR(mean_response_lower_s(equal, load * 10'000).value(), expected, 1e-9 * expected) << load;
    EXPECT_NEAR(mean_response_upper_s(equal, load * 10'000).value(), expected, 1e-9 * expected) << load;
    const double lambda = load * total_rate_per_s(mixed);
    const double lower = mean_response_lower_s(mixed, lambda).value(), upper = mean_response_upper_s(mixed, lambda).value();
    EXPECT_TRUE(std::isfinite(lower) && std::isfinite(upper)) << load;
    EXPECT_LE(5 * (1 - 1e-12), lower);
    EXPECT_LE(lower, upper);
  }
  // With fewer requests than fast slots, the lower bound is the fast service time and the upper the slow one (fluid limit).
  EXPECT_NEAR(mean_response_lower_s(mixed, 2'000).value(), 5, 1e-9);
  EXPECT_NEAR(mean_response_upper_s(mixed, 2'000).value(), 20, 1e-9);
}

// Given an arrival rate at or above the total rate, and no chains; expects no bound.
TEST(ChainBounds, HaveNoneWhenUnstable) {
  const std::vector<ChainRate> chains{{1, 2}};
  EXPECT_FALSE(mean_response_lower_s(chains, 2).has_value());
  EXPECT_FALSE(mean_response_upper_s(chains, 2.5).has_value());
  EXPECT_FALSE(mean_response_lower_s({}, 1).has_value());
  EXPECT_FALSE(mean_response_two_chains_s({1, 1}, {1, 1}, 2).has_value());
}

// The mean response of two chains under JFFC from the generator of its Markov chain, with the queue cut off where its
// probability is negligible.
double solved_s(ChainRate fast, ChainRate slow, double lambda, int queue) {
  const int c1 = static_cast<int>(fast.capacity), c2 = static_cast<int>(slow.capacity);
  const int grid = (c1 + 1) * (c2 + 1), states = grid + queue;
  const auto at = [&](int z1, int z2) { return z1 * (c2 + 1) + z2; };
  Eigen::MatrixXd balance = Eigen::MatrixXd::Zero(states, states);  // column: from, row: to
  const auto flow = [&](int from, int to, double rate) {
    balance(to, from) += rate;
    balance(from, from) -= rate;
  };
  for (int z1 = 0; z1 <= c1; ++z1) {
    for (int z2 = 0; z2 <= c2; ++z2) {
      if (z1 < c1)
        flow(at(z1, z2), at(z1 + 1, z2), lambda);
      else if (z2 < c2)
        flow(at(z1, z2), at(z1, z2 + 1), lambda);
      else
        flow(at(z1, z2), grid, lambda);
      if (z1 > 0) flow(at(z1, z2), at(z1 - 1, z2), z1 * fast.service_rate_per_s);
      if (z2 > 0) flow(at(z1, z2), at(z1, z2 - 1), z2 * slow.service_rate_per_s);
    }
  }
  const double nu = c1 * fast.service_rate_per_s + c2 * slow.service_rate_per_s;
  for (int n = 0; n < queue; ++n) {
    flow(grid + n, n == 0 ? at(c1, c2) : grid + n - 1, nu);
    if (n + 1 < queue) flow(grid + n, grid + n + 1, lambda);
  }
  balance.row(0).setOnes();
  Eigen::VectorXd right = Eigen::VectorXd::Zero(states);
  right(0) = 1;
  const Eigen::VectorXd pi = balance.partialPivLu().solve(right);
  double mean = 0;
  for (int z1 = 0; z1 <= c1; ++z1) {
    for (int z2 = 0; z2 <= c2; ++z2) mean += pi(at(z1, z2)) * (z1 + z2);
  }
  for (int n = 0; n < queue; ++n) mean += pi(grid + n) * (c1 + c2 + n + 1);
  return mean / lambda;
}

// Given 300 random pairs of chains at loads up to 80 %; expects the value of the solved Markov chain, between the bounds.
TEST(ChainBounds, ExactValueOfTwoChains) {
  Rng rng(7, "two-chains");
  for (int round = 0; round < effort(40, 300); ++round) {
    ChainRate fast{rng.uniform(0.5, 2), rng.integer(1, 6)}, slow{rng.uniform(0.05, 0.5), rng.integer(1, 6)};
    const std::vector<ChainRate> chains{fast, slow};
    const double lambda = rng.uniform(0.05, 0.8) * total_rate_per_s(chains);
    const double exact = mean_response_two_chains_s(fast, slow, lambda).value();
    ASSERT_NEAR(exact, solved_s(fast, slow, lambda, 130), 1e-8 * exact) << "round " << round;
    ASSERT_LE(mean_response_lower_s(chains, lambda).value(), exact * (1 + 1e-12));
    ASSERT_GE(mean_response_upper_s(chains, lambda).value(), exact * (1 - 1e-12));
  }
}

// Given two chains with one speed, and capacities far too large for the paper's recursion; expects Erlang's value.
TEST(ChainBounds, ExactValueIsStable) {
  for (const long capacity : {50L, 400L, 1500L}) {
    for (const double load : {0.05, 0.5, 0.95}) {
      const double lambda = load * 0.2 * static_cast<double>(2 * capacity);
      const MmcQueue queue{2 * capacity, lambda, 5};
      EXPECT_NEAR(mean_response_two_chains_s({0.2, capacity}, {0.2, capacity}, lambda).value(), queue.mean_wait_s() + 5, 1e-8)
          << capacity << " at " << load;
    }
  }
}

}  // namespace
}  // namespace windlass::planner
