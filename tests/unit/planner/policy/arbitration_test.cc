// Tests arbitration: floors first, then priority, then existing workers, then growth in turn; never more than the capacity.
#include "planner/policy/arbitration.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

// Given room for all; expects that everyone gets what they want.
TEST(Arbitration, EnoughForAll) {
  EXPECT_EQ(arbitrate({{0, "a", 2, 1, 1, 3}, {9, "a", 1, 0, 0, 2}}, {{"a", 8}}), (std::vector<int>{3, 2}));
}

// Given too little room; expects the low priority's floor before the high priority's growth, and that growth before anything
// else.
TEST(Arbitration, FloorsThenPriority) {
  EXPECT_EQ(arbitrate({{0, "a", 1, 1, 0, 4}, {9, "a", 1, 1, 0, 4}}, {{"a", 4}}), (std::vector<int>{1, 3}));
}

// Given equals of which one already runs; expects it to keep its workers, and growth one by one in turn.
TEST(Arbitration, EqualsKeepWhatTheyHave) {
  EXPECT_EQ(arbitrate({{0, "a", 1, 1, 0, 9}, {0, "a", 1, 1, 4, 5}}, {{"a", 6}}), (std::vector<int>{2, 4}));
  EXPECT_EQ(arbitrate({{0, "a", 1, 0, 0, 9}, {0, "a", 1, 0, 0, 9}}, {{"a", 5}}), (std::vector<int>{3, 2}));
}

// Given equals whose floors do not all fit; expects running workers to stay, wherever they are listed, and the rest to be
// shared. Given a higher priority; expects its floor first.
TEST(Arbitration, FloorsOfEqualsKeepWhatRuns) {
  EXPECT_EQ(arbitrate({{0, "a", 1, 6, 0, 6}, {0, "a", 1, 6, 4, 6}}, {{"a", 4}}), (std::vector<int>{0, 4}));
  EXPECT_EQ(arbitrate({{0, "a", 1, 6, 0, 6}, {0, "a", 1, 6, 4, 6}}, {{"a", 5}}), (std::vector<int>{1, 4}));
  EXPECT_EQ(arbitrate({{1, "a", 1, 6, 0, 6}, {0, "a", 1, 6, 4, 6}}, {{"a", 4}}), (std::vector<int>{4, 0}));
}

// Given sixteen claims that together want sixteen times the capacity, each a hundred or a hundred thousand workers; expects the
// class full and every share as its loss requires, to within a step; and the same amount of work in both cases.
TEST(Arbitration, WorkDoesNotGrowWithWhatIsWanted) {
  for (const int wanted : {100, 100'000}) {
    int weighed = 0;
    std::vector<Claim> claims;
    for (int i = 0; i < 16; ++i) {
      claims.push_back({0, "a", 1, 0, 0, wanted, false, [&weighed, wanted](int workers) {
                          ++weighed;
                          const double missing = 1 - static_cast<double>(workers) / wanted;
                          return missing * missing;
                        }});
    }
    const std::vector<int> granted = arbitrate(claims, {{"a", wanted}});
    EXPECT_EQ(std::accumulate(granted.begin(), granted.end(), 0), wanted);
    for (const int one : granted) EXPECT_NEAR(one, wanted / 16.0, wanted / 100.0);
    EXPECT_LE(weighed, 400) << wanted;
  }
}

// Given a large worker that does not fit; expects the small one to get the rest. Given an unknown class or negative capacity;
// expects nothing.
TEST(Arbitration, NoRoom) {
  EXPECT_EQ(arbitrate({{9, "a", 4, 1, 0, 2}, {0, "a", 1, 1, 0, 9}}, {{"a", 6}}), (std::vector<int>{1, 2}));
  EXPECT_EQ(arbitrate({{0, "b", 1, 1, 0, 2}}, {{"a", 6}}), (std::vector<int>{0}));
  EXPECT_EQ(arbitrate({{0, "a", 1, 1, 0, 2}}, {{"a", -3}}), (std::vector<int>{0}));
}

// The workers that may start today with `free` GPUs and `coming` being drained.
std::vector<int> startable_of(const std::vector<Claim>& claims, int free, int coming) {
  return startable(claims, arbitrate(claims, {{"a", free + coming}}), {{"a", free}});
}

// Given four GPUs, one being drained, and a first claim whose worker has just ended and is to be replaced; expects it to wait
// for that GPU and to take none of the running workers, also when two of theirs drain for any reason. Given that it wants two
// and one is being drained; expects one running worker to go for it.
TEST(Arbitration, GpusBeingDrainedCostNobodyAWorker) {
  const std::vector<Claim> claims = {{9, "a", 1, 0, 0, 1}, {0, "a", 1, 0, 1, 1}, {0, "a", 1, 0, 2, 2}};
  EXPECT_EQ(startable_of(claims, 3, 1), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(startable_of({{9, "a", 1, 0, 0, 1}, {0, "a", 1, 0, 0, 1}, {0, "a", 1, 0, 1, 2}}, 1, 3),
            (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(startable_of({{9, "a", 1, 0, 0, 2}, {0, "a", 1, 0, 1, 1}, {0, "a", 1, 0, 2, 2}}, 3, 1),
            (std::vector<int>{1, 1, 1}));
}

// Given random claims with some GPUs being drained; expects that claims keep as many of their workers as if those GPUs were
// free now, and that growth stays within what is free now.
TEST(Arbitration, GrowthWaitsForWhatIsComingFree) {
  Rng rng(62, "claims");
  for (int i = 0; i < effort(1000, 5000); ++i) {
    std::vector<Claim> claims(static_cast<std::size_t>(rng.integer(1, 6)));
    int live = 0;
    for (Claim& claim : claims) {
      claim.priority = static_cast<int>(rng.integer(0, 2));
      claim.accelerator = "a";
      claim.split = static_cast<int>(rng.integer(1, 3));
      claim.wanted = static_cast<int>(rng.integer(0, 6));
      claim.floor = static_cast<int>(rng.integer(0, claim.wanted));
      claim.keep = static_cast<int>(rng.integer(0, claim.wanted));
      claim.yields = rng.integer(0, 4) == 0;
      live += claim.keep * claim.gpus_per_worker();
    }
    const int free = live + static_cast<int>(rng.integer(0, 5)), coming = static_cast<int>(rng.integer(0, 6));
    const std::vector<int> granted = startable_of(claims, free, coming);
    const std::vector<int> by_then = arbitrate(claims, {{"a", free + coming}});
    int used = 0;
    for (std::size_t k = 0; k < claims.size(); ++k) {
      used += granted[k] * claims[k].gpus_per_worker();
      EXPECT_GE(granted[k], std::min(claims[k].keep, by_then[k])) << "case " << i;
      EXPECT_LE(granted[k], by_then[k]) << "case " << i;
    }
    EXPECT_LE(used, free) << "case " << i;
  }
}

// Given random claims; expects that no class is exceeded, nobody gets more than they want, no GPU that someone could use is
// idle, and no lower priority grows while a higher one's worker of the same size on the same class is denied.
TEST(Arbitration, HoldsItsRules) {
  Rng rng(61, "claims");
  for (int i = 0; i < effort(1000, 5000); ++i) {
    std::map<std::string, int> free = {{"a", static_cast<int>(rng.integer(0, 20))},
                                       {"b", static_cast<int>(rng.integer(0, 20))}};
    std::vector<Claim> claims(static_cast<std::size_t>(rng.integer(1, 6)));
    for (Claim& claim : claims) {
      claim.priority = static_cast<int>(rng.integer(0, 2));
      claim.accelerator = rng.integer(0, 1) == 0 ? "a" : "b";
      claim.split = static_cast<int>(rng.integer(1, 4));
      claim.wanted = static_cast<int>(rng.integer(0, 6));
      claim.floor = static_cast<int>(rng.integer(0, claim.wanted));
      claim.keep = static_cast<int>(rng.integer(0, claim.wanted));
    }
    const std::vector<int> granted = arbitrate(claims, free);
    std::map<std::string, int> left = free;
    for (std::size_t k = 0; k < claims.size(); ++k) {
      ASSERT_GE(granted[k], 0);
      ASSERT_LE(granted[k], claims[k].wanted);
      left[claims[k].accelerator] -= granted[k] * claims[k].gpus_per_worker();
    }
    for (const auto& [name, gpus] : left) ASSERT_GE(gpus, 0);
    for (std::size_t k = 0; k < claims.size(); ++k) {
      if (granted[k] < claims[k].wanted) {
        ASSERT_LT(left[claims[k].accelerator], claims[k].gpus_per_worker());
      }
      for (std::size_t other = 0; other < claims.size(); ++other) {
        const bool same_kind = claims[k].accelerator == claims[other].accelerator &&
                               claims[k].gpus_per_worker() == claims[other].gpus_per_worker();
        if (same_kind && claims[k].priority > claims[other].priority && granted[k] < claims[k].wanted) {
          ASSERT_LE(granted[other], claims[other].floor);
        }
      }
    }
  }
}

}  // namespace
}  // namespace windlass::planner
