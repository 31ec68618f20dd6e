// The rate at which TPOT holds for a percentile: against what the serving simulator gives, and how it moves.
#include "planner/search/tpot_tail.h"

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

// Given: Azure's conversations and code at 75 ms a token for 99 %. Expected: within 5 % of the rates up to which the
// simulator's workers attain: 1.02 times 5.32/s and 0.52 times 3.86/s.
TEST(TpotTail, IsWhereTheSimulatorAttains) {
  const Objective objective{2, 0.075, 99};
  EXPECT_NEAR(rate_within_tpot(model(), objective, {1155, 211}, 76), 1.02 * 5.32, 0.05 * 5.4);
  EXPECT_NEAR(rate_within_tpot(model(), objective, {2048, 28}, 7), 0.52 * 3.86, 0.05 * 2.0);
}

// Given: a lower percentile, a looser TPOT, shorter prompts. Expected: more; with fewer slots no more than they hold.
TEST(TpotTail, MovesWithTheObjective) {
  const double strict = rate_within_tpot(model(), {2, 0.075, 99}, {2048, 28}, 256);
  EXPECT_GT(rate_within_tpot(model(), {2, 0.075, 90}, {2048, 28}, 256), strict);
  EXPECT_GT(rate_within_tpot(model(), {2, 0.1, 99}, {2048, 28}, 256), strict);
  EXPECT_GT(rate_within_tpot(model(), {2, 0.075, 99}, {1024, 28}, 256), strict);
  const double few = rate_within_tpot(model(), {2, 0.075, 99}, {1155, 211}, 10);
  EXPECT_LT(few, rate_within_tpot(model(), {2, 0.075, 99}, {1155, 211}, 76));
  EXPECT_GT(few, 0);
}

// Given: an objective below one decode iteration, and answers of one token. Expected: nothing; and what prefills leave room
// for.
TEST(TpotTail, HasItsEnds) {
  EXPECT_EQ(rate_within_tpot(model(), {2, 0.01, 99}, {1155, 211}, 76), 0);
  EXPECT_NEAR(rate_within_tpot(model(), {2, 0.01, 99}, {1000, 1}, 256), 0.95 / 0.08276, 1e-6);
}

}  // namespace
}  // namespace windlass::planner
