// Tests of the number of workers: cases by hand, a linear scan against the bisection, and a simulated queue.
#include "planner/sizing/worker_count.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

// Given one slot per worker, 1 s of service and no limit on waiting; expects the utilisation to decide: 8 requests/s need 10
// workers at 80 %.
TEST(WorkerCount, UtilisationDecidesWhenWaitingIsFree) {
  const SizingInput input{8, 1, 1, 1e9, 95, 0.8};
  EXPECT_EQ(workers_needed(input, 1000), 10);
  EXPECT_TRUE(workers_suffice(input, 10));
  EXPECT_FALSE(workers_suffice(input, 9));
}

// Given one server, where C(1, a) = a; expects a load of 0.05 if 5 % may wait.
TEST(WorkerCount, WaitingDecidesWhenTheBudgetIsZero) {
  EXPECT_TRUE(workers_suffice(SizingInput{0.05, 1, 1, 0, 95, 0.8}, 1));
  EXPECT_FALSE(workers_suffice(SizingInput{0.051, 1, 1, 0, 95, 0.8}, 1));
}

// Given no demand; expects no workers. Given more than the limit can serve; expects the limit.
TEST(WorkerCount, Extremes) {
  EXPECT_EQ(workers_needed(SizingInput{0, 1, 8, 1, 95, 0.8}, 10), 0);
  EXPECT_EQ(workers_needed(SizingInput{1000, 1, 8, 1, 95, 0.8}, 10), 10);
  EXPECT_EQ(workers_needed(SizingInput{1, 1, 8, 1, 95, 0.8}, 0), 0);
  EXPECT_TRUE(std::isinf(predicted_wait_s(SizingInput{100, 1, 1, 1, 95, 0.8}, 10)));
}

// Given random demands; expects the first sufficient number of a linear scan.
TEST(WorkerCount, IsTheFirstThatSuffices) {
  Rng rng(21, "sizing");
  for (int i = 0; i < effort(300, 3000); ++i) {
    SizingInput input;
    input.arrival_rate_per_s = rng.uniform(0, 20);
    input.service_time_s = rng.uniform(0.05, 10);
    input.slots_per_worker = static_cast<int>(rng.integer(1, 16));
    input.wait_budget_s = rng.uniform(-0.5, 2);
    input.percentile = rng.uniform(50, 99.9);
    input.max_utilisation = rng.uniform(0.5, 0.95);
    constexpr std::int64_t kLimit = 40;
    std::int64_t expected = 1;
    while (expected < kLimit && !workers_suffice(input, expected)) ++expected;
    ASSERT_EQ(workers_needed(input, kLimit), expected) << "instance " << i;
  }
}

// Given 30 random demands and their numbers of workers; expects that of 60,000 simulated requests at most the promised share,
// plus a little for chance, waits beyond the budget.
TEST(WorkerCount, KeepsItsPromiseInASimulation) {
  Rng rng(22, "instances");
  for (int i = 0; i < 30; ++i) {
    SizingInput input;
    input.arrival_rate_per_s = rng.uniform(1, 20);
    input.service_time_s = rng.uniform(0.5, 4);
    input.slots_per_worker = static_cast<int>(rng.integer(1, 8));
    input.wait_budget_s = rng.uniform(0, 1);
    input.percentile = 95;
    const std::int64_t slots = workers_needed(input, 1000) * input.slots_per_worker;
    Rng draws(static_cast<std::uint64_t>(i), "requests");
    std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
    for (std::int64_t s = 0; s < slots; ++s) free_at.push(0);
    constexpr int kRequests = 60'000;
    double now_s = 0;
    int late = 0;
    for (int r = 0; r < kRequests; ++r) {
      now_s += draws.exponential(input.arrival_rate_per_s);
      const double start_s = std::max(now_s, free_at.top());
      free_at.pop();
      free_at.push(start_s + draws.exponential(1 / input.service_time_s));
      late += start_s - now_s > input.wait_budget_s;
    }
    EXPECT_LE(static_cast<double>(late) / kRequests, 0.05 + 0.015) << "instance " << i;
  }
}

}  // namespace
}  // namespace windlass::planner
