// Tests Markov-modulated arrivals against closed forms, and against a chain simulated in small time steps.
#include "planner/workload/markov_modulated.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/unit/planner/workload/statistics.h"

namespace windlass::workload {
namespace {

// Index of dispersion of a two-state process over a time t (Heffes and Lucantoni 1986, Eq. 3): 1 + 2 p q (a - b)^2 / (m s) * (1
// - (1 - exp(-s t)) / (s t)), with shares p and q, rates a and b, mean rate m, and s the sum of the rates of leaving.
double dispersion(const MarkovModulatedArrivals& spec, double t) {
  const auto& [a, b] = std::pair(spec.states[0], spec.states[1]);
  const double p = a.mean_dwell_s / (a.mean_dwell_s + b.mean_dwell_s);
  const double s = 1 / a.mean_dwell_s + 1 / b.mean_dwell_s;
  const double step = a.rate_per_s - b.rate_per_s;
  return 1 + 2 * p * (1 - p) * step * step / (mean_rate_per_s(spec) * s) * (1 + std::expm1(-s * t) / (s * t));
}

// Given two states, one of them silent in one case; expects counts in short, medium and long windows with the mean and the
// index of dispersion of theory.
TEST(MarkovModulated, HasItsIndexOfDispersion) {
  for (const auto& spec : {MarkovModulatedArrivals{{{2, 30}, {20, 10}}}, MarkovModulatedArrivals{{{0, 5}, {8, 5}}}}) {
    constexpr double kEnd_s = 2e6;
    const auto times_s = arrivals_before(spec, kEnd_s, 17);
    const double mean_per_s = mean_rate_per_s(spec);
    EXPECT_NEAR(static_cast<double>(times_s.size()), mean_per_s * kEnd_s,
                4 * std::sqrt(mean_per_s * kEnd_s * dispersion(spec, kEnd_s)));
    for (const double window_s : {0.5, 5.0, 50.0, 500.0}) {
      SCOPED_TRACE(window_s);
      const auto windows = static_cast<std::size_t>(kEnd_s / window_s);
      const auto [mean, variance] = moments(counts(times_s, window_s, windows));
      const double theory = dispersion(spec, window_s);
      // Windows depend on their neighbours within about one dwell time, so fewer of them are independent.
      const double independent = static_cast<double>(windows) / (1 + 30 / window_s);
      EXPECT_NEAR(variance / mean, theory, 5 * theory * std::sqrt(2 / independent));
    }
  }
}

// Given three states; expects the mean and the dispersion of a chain simulated in steps of 2 ms, over many short runs from time
// 0, so also that the first second is like any other.
TEST(MarkovModulated, AgreesWithSmallSteps) {
  const MarkovModulatedArrivals spec{{{1, 0.5}, {10, 0.2}, {0, 0.3}}};
  constexpr int kRuns = 20'000;
  constexpr double kStep_s = 0.002;
  Rng rng(23, "steps");
  std::vector<double> stepped, drawn;
  for (int run = 0; run < kRuns; ++run) {
    const double share = rng.uniform();  // shares of time of the states, in order: 0.5, 0.2, 0.3
    std::size_t state = share < 0.5 ? 0 : share < 0.7 ? 1 : 2;
    double arrived = 0;
    for (int step = 0; step < 500; ++step) {
      if (rng.uniform() < spec.states[state].rate_per_s * kStep_s) ++arrived;
      if (rng.uniform() < kStep_s / spec.states[state].mean_dwell_s) {
        state = (state + static_cast<std::size_t>(rng.integer(1, 2))) % 3;
      }
    }
    stepped.push_back(arrived);
    drawn.push_back(static_cast<double>(arrivals_before(spec, 1, static_cast<std::uint64_t>(run)).size()));
  }
  const auto by_steps = moments(stepped);
  const auto by_draws = moments(drawn);
  const double error = std::sqrt(by_steps.variance / kRuns);
  EXPECT_NEAR(by_draws.mean, mean_rate_per_s(spec), 4 * error);
  EXPECT_NEAR(by_draws.mean, by_steps.mean, 6 * error);
  EXPECT_NEAR(by_draws.variance / by_steps.variance, 1, 0.06);
  EXPECT_GT(by_draws.variance, 1.5 * by_draws.mean);
}

// Given one state; expects exactly Poisson arrivals, bit for bit.
TEST(MarkovModulated, OneStateIsPoisson) {
  EXPECT_EQ(arrivals_before(MarkovModulatedArrivals{{{3, 1}}}, 500, 4), arrivals_before(PoissonArrivals{3}, 500, 4));
}

}  // namespace
}  // namespace windlass::workload
