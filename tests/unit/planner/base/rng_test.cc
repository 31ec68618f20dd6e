// Tests that random streams are the same on every platform and follow their distributions.
#include "planner/base/rng.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace windlass {
namespace {

// Given a fixed seed and name; expects the same numbers as on every platform.
TEST(Rng, DrawsTheSameEverywhere) {
  Rng rng(1, "arrivals");
  const std::vector<std::uint64_t> first = {rng.bits(), rng.bits(), rng.bits()};
  EXPECT_EQ(first, (std::vector<std::uint64_t>{7232479601932914702ULL, 5194243865129371613ULL, 1738460931711307923ULL}));
}

// Given two names or two seeds; expects different streams. Given the same ones; expects the same stream.
TEST(Rng, StreamsAreIndependent) {
  EXPECT_EQ(Rng(7, "a").bits(), Rng(7, "a").bits());
  EXPECT_NE(Rng(7, "a").bits(), Rng(7, "b").bits());
  EXPECT_NE(Rng(7, "a").bits(), Rng(8, "a").bits());
}

// Given 200,000 draws; expects the mean and variance of each distribution within five standard errors.
TEST(Rng, HasTheMomentsOfItsDistributions) {
  constexpr int kDraws = 200'000;
  auto check = [&](double mean, double variance, auto draw) {
    double sum = 0;
    double squares = 0;
    for (int i = 0; i < kDraws; ++i) {
      const auto x = static_cast<double>(draw());
      sum += x;
      squares += x * x;
    }
    const double found = sum / kDraws;
    EXPECT_NEAR(found, mean, 5 * std::sqrt(variance / kDraws));
    EXPECT_NEAR(squares / kDraws - found * found, variance, 0.05 * variance);
  };
  Rng rng(3, "moments");
  check(0.5, 1.0 / 12, [&] { return rng.uniform(); });
  check(2, 4, [&] { return rng.exponential(0.5); });
  check(6, 6, [&] { return rng.poisson(6); });
  check(3, 2, [&] { return rng.integer(1, 5); });
  check(0, 1, [&] { return rng.normal(); });
  check(6, 12, [&] { return rng.gamma(3, 2); });
  check(2, 4, [&] { return rng.gamma(1, 2); });
  check(1.5, 7.5, [&] { return rng.gamma(0.3, 5); });
}

// Given shapes with a known closed form; expects the share of draws below several points. Gamma of shape 1 is exponential, of
// shape 2 the sum of two exponentials, of shape 1/2 half the square of a normal.
TEST(Rng, GammaHasItsDistribution) {
  constexpr int kDraws = 200'000;
  const std::vector<std::pair<double, double (*)(double)>> cases = {
      {1, [](double x) { return 1 - std::exp(-x); }},
      {2, [](double x) { return 1 - std::exp(-x) * (1 + x); }},
      {0.5, [](double x) { return std::erf(std::sqrt(x)); }},
  };
  Rng rng(8, "gamma");
  for (const auto& [shape, below] : cases) {
    std::vector<double> draws(kDraws);
    for (double& draw : draws) draw = rng.gamma(shape, 1);
    for (const double x : {0.01, 0.1, 0.5, 1.0, 2.0, 5.0}) {
      const auto count = std::count_if(draws.begin(), draws.end(), [x = x](double draw) { return draw <= x; });
      EXPECT_NEAR(static_cast<double>(count) / kDraws, below(x), 0.005) << "shape " << shape << " at " << x;
    }
  }
  EXPECT_GE(rng.gamma(0.001, 1), 0) << "most such draws are below the smallest double";
}

// Given bounds; expects every integer between them and none outside, also at the extremes.
TEST(Rng, IntegersCoverTheirRange) {
  Rng rng(4, "integers");
  std::vector<int> seen(3, 0);
  for (int i = 0; i < 1000; ++i) ++seen.at(static_cast<std::size_t>(rng.integer(-1, 1) + 1));
  for (int count : seen) EXPECT_GT(count, 250);
  EXPECT_EQ(rng.integer(5, 5), 5);
  EXPECT_LE(rng.integer(INT64_MIN, INT64_MAX), INT64_MAX);
}

// Given a mean of zero; expects no events.
TEST(Rng, PoissonWithMeanZeroIsZero) { EXPECT_EQ(Rng(5, "zero").poisson(0), 0); }

}  // namespace
}  // namespace windlass
