// Tests of the rate at which a percentile meets TPOT: against the serving simulator, and in which direction it moves.
#include "planner/sizing/tpot_tail.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "planner/perf/linear_model.h"

namespace windlass::planner {
namespace {

// Llama 3 70B on four H100s, rounded.
LinearModel model() {
  LinearCoefficients c;
  c.k1 = 8.276e-5;
  c.c1 = 0.0178;
  c.k2 = 3.057e-8;
  c.c2 = 8.276e-5;
  c.c3 = 0.0178;
  c.kv_capacity_tokens = 300'000;
  return LinearModel(c);
}

// Given Azure's conversations and code at 75 ms per token for 99 %; expects to be within 5 % of the highest rates at which the
// simulator's workers meet the objective: 1.02 times 5.32/s and 0.52 times 3.86/s.
TEST(TpotTail, AgreesWithTheSimulator) {
  const Objective objective{2, 0.075, 99};
  EXPECT_NEAR(rate_within_tpot(model(), objective, {1155, 211}, 76), 1.02 * 5.32, 0.05 * 5.4);
  EXPECT_NEAR(rate_within_tpot(model(), objective, {2048, 28}, 7), 0.52 * 3.86, 0.05 * 2.0);
}

// Given a lower percentile, a looser TPOT or shorter prompts; expects a higher rate. Given fewer slots; expects no more than
// they hold.
TEST(TpotTail, MovesWithTheObjective) {
  const double strict = rate_within_tpot(model(), {2, 0.075, 99}, {2048, 28}, 256);
  EXPECT_GT(rate_within_tpot(model(), {2, 0.075, 90}, {2048, 28}, 256), strict);
  EXPECT_GT(rate_within_tpot(model(), {2, 0.1, 99}, {2048, 28}, 256), strict);
  EXPECT_GT(rate_within_tpot(model(), {2, 0.075, 99}, {1024, 28}, 256), strict);
  const double few = rate_within_tpot(model(), {2, 0.075, 99}, {1155, 211}, 10);
  EXPECT_LT(few, rate_within_tpot(model(), {2, 0.075, 99}, {1155, 211}, 76));
  EXPECT_GT(few, 0);
}

// Given an objective below one decode iteration; expects 0. Given answers of one token; expects what prefills leave room for.
TEST(TpotTail, HandlesTheExtremes) {
  EXPECT_EQ(rate_within_tpot(model(), {2, 0.01, 99}, {1155, 211}, 76), 0);
  EXPECT_NEAR(rate_within_tpot(model(), {2, 0.01, 99}, {1000, 1}, 256), 0.95 / 0.08276, 1e-6);
}

// Given means and limits around the switch from the sum to the approximation, and tails from nearly certain to one in a
// million; expects the full sum within 2e-5, always falling with the limit.
TEST(TpotTail, PoissonAgreesWithTheExactSum) {
  for (const double limit : {0.0, 3.5, 60.0, 499.0, 500.0, 501.0, 700.0, 5000.0}) {
    double last = -1;
    for (double deviations = -5; deviations <= 5; deviations += 0.25) {
      const double mean = std::max(0.01, limit + deviations * std::sqrt(limit));
      double exact = 0;
      for (double i = std::floor(limit) + 1; i <= limit + 20 * std::sqrt(limit) + 50; ++i) {
        exact += std::exp(i * std::log(mean) - mean - std::lgamma(i + 1));
      }
      const double given = poisson_above(mean, limit);
      EXPECT_NEAR(given, exact, 2e-5) << mean << " against " << limit;
      EXPECT_GE(given, last);
      last = given;
    }
  }
  EXPECT_EQ(poisson_above(5, -1), 1);
  EXPECT_EQ(poisson_above(0, 0), 0);
}

// Given a worker with a single slot, and prompts longer than the objective leaves room for; expects the full rate of the slot,
// because no other prompt comes in while one decodes.
TEST(TpotTail, ASingleSlotIsStalledByNobody) {
  const Lengths lengths{2048, 28};
  const double prompt_s = model().prefill_s(2048) - model().prefill_s(0);
  const double rate = rate_within_tpot(model(), {20, 0.02, 99}, lengths, 1);
  EXPECT_NEAR(rate, (1 - rate * prompt_s) / (28 * model().decode_s(1, 2048 + 14)), 0.01);
}

// Given prompts of one token and answers so long that a hundred million prompts fit into one; expects a fast answer, and the
// rate that fills the slots, because that many stalls even out.
TEST(TpotTail, TinyPromptsAverageOut) {
  LinearCoefficients c;
  c.k1 = 1e-8;
  c.c1 = 0.01;
  c.k2 = 0;
  c.c2 = 1e-4;
  c.c3 = 0.01;
  c.kv_capacity_tokens = 1e9;
  const LinearModel tiny(c);
  constexpr int kSlots = 50;
  const Lengths lengths{1, 100'000};
  const double full_per_s = kSlots / (lengths.output_tokens * tiny.decode_s(kSlots, 50'000));
  EXPECT_NEAR(rate_within_tpot(tiny, {2, 0.05, 99}, lengths, kSlots), full_per_s, 0.01 * full_per_s);
}

}  // namespace
}  // namespace windlass::planner
