// Tests the walk along the frontier of feasible counts against brute force over the grid.
#include "planner/strategies/core/phase_counts.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::search {
namespace {

constexpr int kMost = 24;

// By number of decode workers, the fewest feasible prefill workers; decreasing. kMost + 1: none.
std::vector<int> random_frontier(Rng& rng) {
  std::vector<int> least(kMost + 1, kMost + 1);
  for (int decode = 1; decode <= kMost; ++decode)
    least[static_cast<std::size_t>(decode)] = static_cast<int>(rng.integer(1, kMost + 6));
  std::sort(least.begin() + 1, least.end(), std::greater<>());
  return least;
}

// Given random frontiers, prices, rooms, starts and worths to beat; expects the walk's worth to be the grid's minimum, with far
// fewer queries than the grid has pairs.
TEST(CountWalk, FindsTheCheapestOfTheGrid) {
  Rng rng(7, "frontiers");
  std::int64_t asked = 0, grid = 0;
  for (int round = 0; round < effort(300, 3000); ++round) {
    const std::vector<int> least = random_frontier(rng);
    const double prefill_worth = rng.uniform(0.5, 4), decode_worth = rng.uniform(0.5, 4);
    const double room = rng.uniform(4, 5 * kMost);
    const double below = rng.uniform() < 0.3 ? rng.uniform(1, 4 * kMost) : std::numeric_limits<double>::infinity();
    const auto worth = [&](const PhaseCounts& c) { return c.prefill * prefill_worth + c.decode * decode_worth; };
    const auto fits = [&](const PhaseCounts& c) { return c.prefill <= kMost && c.decode <= kMost && worth(c) <= room; };
    const auto holds = [&](const PhaseCounts& c) { return c.prefill >= least[static_cast<std::size_t>(c.decode)]; };
    CountQuestions questions;
    questions.prefill_worth = prefill_worth;
    questions.decode_worth = decode_worth;
    questions.fits = fits;
    questions.hold = [&](std::span<const PhaseCounts> counts) -> Result<std::vector<char>> {
      std::vector<char> answers;
      for (const PhaseCounts& each : counts) {
        EXPECT_TRUE(fits(each)) << each.prefill << " " << each.decode;
        answers.push_back(holds(each) ? 1 : 0);
      }
      return answers;
    };
    CountWalk walk(questions);
    const PhaseCounts guess{static_cast<int>(rng.integer(1, kMost)), static_cast<int>(rng.integer(1, kMost))};
    ASSERT_TRUE(walk.run(guess, below).ok());
    double best = below;
    for (int prefill = 1; prefill <= kMost; ++prefill) {
      for (int decode = 1; decode <= kMost; ++decode) {
        const PhaseCounts counts{prefill, decode};
        if (fits(counts) && holds(counts)) best = std::min(best, worth(counts));
      }
    }
    ASSERT_EQ(walk.best().has_value(), best < below) << "round " << round;
    if (walk.best()) {
      ASSERT_TRUE(holds(*walk.best()));
      ASSERT_NEAR(worth(*walk.best()), best, 1e-9 * best) << "round " << round;
    }
    asked += walk.asked();
    grid += kMost * kMost;
  }
  EXPECT_LT(asked * 15, grid);
}

// Given unified workers of which nine suffice; expects nine after few queries. Given that a hundred do not suffice; expects no
// result.
TEST(CountWalk, CountsUnifiedWorkers) {
  for (const int needed : {1, 9, 1000}) {
    CountQuestions questions;
    questions.unified = true;
    questions.decode_worth = 0;
    questions.max_workers = 100;
    questions.fits = [](const PhaseCounts&) { return true; };
    questions.hold = [&](std::span<const PhaseCounts> counts) -> Result<std::vector<char>> {
      std::vector<char> answers;
      for (const PhaseCounts& each : counts) answers.push_back(each.prefill >= needed ? 1 : 0);
      return answers;
    };
    CountWalk walk(questions);
    ASSERT_TRUE(walk.run({4, 0}, std::numeric_limits<double>::infinity()).ok());
    EXPECT_LE(walk.asked(), 20);
    ASSERT_EQ(walk.best().has_value(), needed <= 100);
    if (walk.best()) {
      EXPECT_EQ(*walk.best(), (PhaseCounts{needed, 0}));
    }
  }
}

// Given queries that fail after something was found; expects the error, and the result so far to be kept.
TEST(CountWalk, KeepsWhatItHasWhenStopped) {
  CountQuestions questions;
  int left = 3;
  questions.fits = [](const PhaseCounts&) { return true; };
  questions.hold = [&](std::span<const PhaseCounts> counts) -> Result<std::vector<char>> {
    if (left-- == 0) return Error{ErrorCode::kCancelled, "stopped"};
    return std::vector<char>(counts.size(), 1);
  };
  CountWalk walk(questions);
  const auto ran = walk.run({50, 50}, std::numeric_limits<double>::infinity());
  ASSERT_FALSE(ran.ok());
  EXPECT_EQ(ran.error().code, ErrorCode::kCancelled);
  ASSERT_TRUE(walk.best().has_value());
  EXPECT_LT(walk.best()->prefill, 50);
}

// Given a threshold; expects the largest number below it, 0 if there is none, and no query above `most`.
TEST(CountWalk, LargestGood) {
  for (const int most : {0, 1, 2, 7, 8, 1000}) {
    for (const int threshold : {0, 1, 2, 3, 7, 8, 9, 999, 5000}) {
      const auto good = [&](int count) {
        EXPECT_LE(count, most);
        return count <= threshold;
      };
      EXPECT_EQ(largest_good(most, good), std::min(most, threshold));
    }
  }
}

}  // namespace
}  // namespace windlass::search
