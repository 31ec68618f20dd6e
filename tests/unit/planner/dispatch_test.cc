// JFFC and JSQ: their choices, and both in a small event loop with a central queue and queues at the chains.
#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/dispatch/jffc.h"
#include "planner/dispatch/jsq.h"
#include "planner/queueing/erlang.h"

namespace windlass::dispatch {
namespace {

// Given chains of different speed, expect the fastest with a free slot; the first of equals; none when all are full or drain.
TEST(Jffc, TakesTheFastestFree) {
  const Jffc jffc;
  std::vector<ChainState> chains = {{1, 2, 0, false}, {3, 1, 0, false}, {3, 4, 0, false}, {9, 8, 0, true}};
  EXPECT_EQ(jffc.choose(chains), 1U);
  chains[1].in_flight = 1;
  EXPECT_EQ(jffc.choose(chains), 2U);
  chains[2].in_flight = 5;
  EXPECT_EQ(jffc.choose(chains), 0U) << "more in flight than a lowered capacity is not free";
  chains[0].in_flight = 2;
  EXPECT_EQ(jffc.choose(chains), std::nullopt);
  EXPECT_EQ(jffc.choose({}), std::nullopt);
}

// Given 5,000 random states, expect what the definition says when spelled out: a free chain with no faster free chain and none
// earlier as fast.
TEST(Jffc, FollowsItsDefinition) {
  Rng rng(51, "states");
  for (int i = 0; i < 5000; ++i) {
    std::vector<ChainState> chains(static_cast<std::size_t>(rng.integer(0, 6)));
    for (ChainState& chain : chains) {
      chain = {static_cast<double>(rng.integer(1, 3)), static_cast<int>(rng.integer(0, 3)), static_cast<int>(rng.integer(0, 4)),
               rng.integer(0, 3) == 0};
    }
    const auto chosen = Jffc().choose(chains);
    const bool any_free = std::any_of(chains.begin(), chains.end(), [](const ChainState& c) { return c.has_free_slot(); });
    ASSERT_EQ(chosen.has_value(), any_free);
    if (!chosen) continue;
    ASSERT_TRUE(chains[*chosen].has_free_slot());
    for (std::size_t k = 0; k < chains.size(); ++k) {
      if (!chains[k].has_free_slot()) continue;
      ASSERT_LE(chains[k].service_rate_per_s, chains[*chosen].service_rate_per_s);
      if (k < *chosen) {
        ASSERT_LT(chains[k].service_rate_per_s, chains[*chosen].service_rate_per_s);
      }
    }
  }
}

// Given chains with slots, expect the least loaded for its size, the first of equals, never a draining one, and none when all
// drain.
TEST(Jsq, TakesTheShortest) {
  const Jsq jsq;
  std::vector<ChainState> chains = {{1, 4, 2, false}, {1, 2, 1, false}, {1, 4, 1, false}, {1, 4, 0, true}};
  EXPECT_EQ(jsq.choose(chains), 2U);
  chains[2].in_flight = 2;
  EXPECT_EQ(jsq.choose(chains), 0U);
  for (ChainState& chain : chains) chain.draining = true;
  EXPECT_EQ(jsq.choose(chains), std::nullopt);
}

// Mean response time of `requests` Poisson arrivals with exponential work. A chain serves `capacity` requests at a time; what a
// policy sends beyond that waits at the chain, what it refuses waits centrally, first come first served.
double mean_response_s(const DispatchPolicy& policy, std::vector<ChainState> chains, double arrival_rate_per_s, int requests) {
  using Completion = std::tuple<double, int, std::size_t>;  // time, insertion, chain
  Rng arrivals(52, "arrivals");
  Rng work(52, "work");
  std::priority_queue<Completion, std::vector<Completion>, std::greater<>> completions;
  std::deque<double> central;
  std::vector<std::deque<double>> local(chains.size());
  std::vector<int> serving(chains.size(), 0);
  double sum_s = 0;
  int inserted = 0;
  auto start = [&](std::size_t k, double arrived_s, double now_s) {
    ++serving[k];
    const double end_s = now_s + work.exponential(chains[k].service_rate_per_s);
    sum_s += end_s - arrived_s;
    completions.emplace(end_s, inserted++, k);
  };
  auto send = [&](std::size_t k, double arrived_s, double now_s) {
    ++chains[k].in_flight;
    if (serving[k] < chains[k].capacity) {
      start(k, arrived_s, now_s);
    } else {
      local[k].push_back(arrived_s);
    }
  };
  double next_arrival_s = arrivals.exponential(arrival_rate_per_s);
  for (int arrived = 0; arrived < requests || !completions.empty();) {
    if (arrived < requests && (completions.empty() || next_arrival_s <= std::get<0>(completions.top()))) {
      const double now_s = next_arrival_s;
      ++arrived;
      next_arrival_s += arrivals.exponential(arrival_rate_per_s);
      if (const auto k = policy.choose(chains); k && central.empty()) {
        send(*k, now_s, now_s);
      } else {
        central.push_back(now_s);
      }
      continue;
    }
    const auto [now_s, order, k] = completions.top();
    completions.pop();
    --serving[k];
    --chains[k].in_flight;
    if (!local[k].empty()) {
      start(k, local[k].front(), now_s);
      local[k].pop_front();
    }
    while (!central.empty()) {
      const auto next = policy.choose(chains);
      if (!next) break;
      send(*next, central.front(), now_s);
      central.pop_front();
    }
  }
  return sum_s / requests;
}

// Given equal chains, expect JFFC to be an M/M/c queue: the simulated mean response is service and Erlang C's wait, within 2 %.
TEST(Jffc, OnEqualChainsIsErlangsQueue) {
  const std::vector<ChainState> chains(3, ChainState{0.5, 4, 0, false});
  const planner::MmcQueue queue{12, 5, 2};
  const double expected_s = 2 + queue.mean_wait_s();
  EXPECT_NEAR(mean_response_s(Jffc(), chains, 5, 200'000), expected_s, 0.02 * expected_s);
}

// Given chains of three speeds at 40, 70 and 90 % load, expect a lower mean response time from JFFC than from JSQ.
TEST(Jffc, BeatsJsqOnUnequalChains) {
  const std::vector<ChainState> chains = {{0.2, 4, 0, false}, {0.5, 4, 0, false}, {1.0, 4, 0, false}};
  const double capacity_per_s = 4 * (0.2 + 0.5 + 1.0);
  for (double load : {0.4, 0.7, 0.9}) {
    const double jffc_s = mean_response_s(Jffc(), chains, load * capacity_per_s, 60'000);
    const double jsq_s = mean_response_s(Jsq(), chains, load * capacity_per_s, 60'000);
    EXPECT_LT(jffc_s, 0.97 * jsq_s) << "load " << load;
  }
}

}  // namespace
}  // namespace windlass::dispatch
