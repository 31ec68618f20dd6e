// Tests that waiting which grows through a run is distinguished from waiting which does not, by the rule itself and in
// simulated queues.
#include <algorithm>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/dispatch/policies.h"
#include "planner/sim/chain_simulation.h"
#include "planner/workload/synthetic_source.h"
#include "tests/effort.h"

namespace windlass::sim {
namespace {

// Given twenty waits in any order; expects the mean of each two consecutive ones; none for a tenth without a request.
TEST(WaitingTrend, MeansByTenth) {
  WaitingTrend trend(20), half(20);
  for (const std::int64_t at : {19, 3, 0, 7, 1, 2, 18, 4, 5, 6, 8, 9, 17, 10, 11, 12, 13, 14, 15, 16}) {
    trend.observe(at, static_cast<double>(at));
    if (at < 10) half.observe(at, static_cast<double>(at));
  }
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(trend.tenths()[i], 2.0 * static_cast<double>(i) + 0.5);
    EXPECT_EQ(half.tenths()[i].has_value(), i < 5);
  }
  const std::vector<WaitingByTenth> both = {trend.tenths(), half.tenths()};
  EXPECT_EQ(mean_by_tenth(both)[4], 8.5);
  EXPECT_FALSE(mean_by_tenth(both)[5]);
  EXPECT_FALSE(waiting_grows(half.tenths(), 0));
}

// Given rising means; expects growth once the last is above a service time, also with five pairs out of order, but not with
// six.
TEST(WaitingTrend, FortyPairsRise) {
  WaitingByTenth tenths;
  for (std::size_t i = 0; i < 10; ++i) tenths[i] = static_cast<double>(i);
  EXPECT_TRUE(waiting_grows(tenths, 8.9));
  EXPECT_FALSE(waiting_grows(tenths, 9));
  std::rotate(tenths.begin(), tenths.begin() + 5, tenths.begin() + 6);  // 5 0 1 2 3 4 6 ...
  EXPECT_TRUE(waiting_grows(tenths, 8));
  std::swap(tenths[6], tenths[7]);
  EXPECT_FALSE(waiting_grows(tenths, 8));
}

// Given queues at loads of 50 % to 90 % and of 120 %, with and without a warm-up; expects growth only in the latter.
TEST(WaitingTrend, TellsOverloadFromLoad) {
  const std::vector<SimulatedChain> chains = {{1, 2, {}}};
  int growing = 0;
  for (std::uint64_t seed = 1; seed <= effort(4U, 30U); ++seed) {
    for (const std::int64_t warm_up : {0, 5000, 20000}) {
      for (const double load : {0.5, 0.8, 0.9, 1.2}) {
        workload::SyntheticSource source({2 * load, 1, seed});
        const auto policy = dispatch::make_policy(dispatch::policy_from_string("jffc").value(), Rng(seed, "policy"));
        ChainSimulationOptions options;
        options.max_requests = 20000 + warm_up;
        options.warm_up_requests = warm_up;
        const auto result = simulate_chains(chains, source, *policy, options);
        const bool grows = waiting_grows(result.waiting_by_tenth, result.service.mean_s);
        if (load > 1) {
          EXPECT_TRUE(grows) << seed << " after " << warm_up;
        } else {
          growing += grows;
        }
      }
    }
  }
  EXPECT_LE(growing, 1);
}

}  // namespace
}  // namespace windlass::sim
