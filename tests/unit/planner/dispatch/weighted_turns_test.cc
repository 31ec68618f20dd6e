// Tests of turns in proportion to weights.
#include "planner/dispatch/weighted_turns.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"

namespace windlass::dispatch {
namespace {

const auto kAll = [](std::size_t) { return true; };

// Given whole weights; expects exact shares over each round, and the heaviest place's turns spread among the others'.
TEST(WeightedTurns, SharesAndSpreads) {
  WeightedTurns turns({5, 1, 1});
  std::vector<std::size_t> order;
  for (int i = 0; i < 14; ++i) order.push_back(*turns.next(kAll));
  const std::vector<std::size_t> expected = {0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0};  // as documented by nginx
  EXPECT_EQ(order, expected);
}

// Given random weights; expects every place within two turns of its share at any time, so no bursts.
TEST(WeightedTurns, StaysNearTheShares) {
  Rng rng(1, "weights");
  for (int instance = 0; instance < 200; ++instance) {
    std::vector<double> weights;
    double together = 0;
    for (std::int64_t i = rng.integer(1, 8); i > 0; --i) {
      weights.push_back(0.05 + rng.uniform());
      together += weights.back();
    }
    WeightedTurns turns(weights);
    std::vector<double> taken(weights.size(), 0);
    for (int turn = 1; turn <= 300; ++turn) {
      ++taken[*turns.next(kAll)];
      for (std::size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(taken[i], turn * weights[i] / together, 2);
    }
  }
}

// Given other weights for the same places after every other turn, each time on another scale; expects the shares of their mean
// at any time, because earned turns carry over.
TEST(WeightedTurns, ContinueWithOtherWeights) {
  WeightedTurns turns({0.5, 0.3, 0.2});
  std::vector<double> taken(3, 0);
  for (int turn = 1; turn <= 600; ++turn) {
    ++taken[*turns.next(kAll)];
    const double more = turn % 4 < 2 ? 0.1 : -0.1;
    const double scale = turn % 8 < 4 ? 1 : 0.01;
    if (turn % 2 == 0) {
      turns = WeightedTurns({scale * (0.5 + more), scale * (0.3 - more), scale * 0.2}, turns.earned());
    }
    ASSERT_NEAR(taken[0], 0.5 * turn, 3) << turn;
    ASSERT_NEAR(taken[2], 0.2 * turn, 3) << turn;
  }
  EXPECT_NEAR(taken[0], 300, 3);
  EXPECT_NEAR(taken[1], 180, 3);
  EXPECT_NEAR(taken[2], 120, 3);
}

// Given a closed place; expects the others to share its turns. Given only closed places; expects none.
TEST(WeightedTurns, SkipClosedPlaces) {
  WeightedTurns turns({1, 1, 2});
  std::vector<int> taken(3, 0);
  for (int i = 0; i < 40; ++i) ++taken[*turns.next([](std::size_t place) { return place != 2; })];
  EXPECT_EQ(taken, (std::vector<int>{20, 20, 0}));
  EXPECT_FALSE(turns.next([](std::size_t) { return false; }).has_value());
}

}  // namespace
}  // namespace windlass::dispatch
