// Tests steady load with Poisson noise over hours, during which the plan must not oscillate, and a burst, which it must follow.
#include <algorithm>
#include <deque>
#include <numeric>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/policy/make_plan.h"
#include "tests/effort.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

using testing::carry_out;
using testing::chat_service;
using testing::h100;
using testing::with_gpus;

// A service with Poisson arrivals whose plan is applied instantly. Time advances in ticks of 5 s.
class Loop {
 public:
  Loop(double window_s, double output_tokens, std::uint64_t seed)
      : window_s_(window_s), arrivals_(seed, "arrivals"), occupancy_(seed, "occupancy") {
    snapshot_.accelerators = {with_gpus(h100(), 64)};
    snapshot_.services = {chat_service()};
    snapshot_.services[0].workload.output_tokens = output_tokens;
  }

  // Returns the number of workers after the tick.
  int tick(double rate_per_s) {
    constexpr double kTick = 5;
    snapshot_.now_s += kTick;
    counts_.push_back(static_cast<double>(arrivals_.poisson(rate_per_s * kTick)));
    while (static_cast<double>(counts_.size()) * kTick > window_s_) counts_.pop_front();
    Service& service = snapshot_.services[0];
    const double sum = std::accumulate(counts_.begin(), counts_.end(), 0.0);
    testing::observe(service, snapshot_.now_s, sum / (static_cast<double>(counts_.size()) * kTick));
    service.demand.arrivals_window_s = window_s_;
    for (Worker& worker : service.workers) {
      const double busy = rate_per_s / static_cast<double>(service.workers.size()) * service_s_;
      worker.running = Reading{static_cast<double>(occupancy_.poisson(std::min(busy, 200.0))), snapshot_.now_s};
      worker.waiting = Reading{0, snapshot_.now_s};
    }
    const ServicePlan plan = make_plan(snapshot_).services[0];
    if (!plan.pools.empty()) service_s_ = 1 / plan.pools[0].each.service_rate_per_s;
    per_worker_ = plan.pools[0].each.slots * plan.pools[0].each.service_rate_per_s;
    carry_out(plan, service, snapshot_.now_s);
    return plan.desired_workers();
  }

  [[nodiscard]] double per_worker() const { return per_worker_; }

 private:
  double window_s_;
  Rng arrivals_;
  Rng occupancy_;
  Snapshot snapshot_;
  std::deque<double> counts_;
  double service_s_ = 0;
  double per_worker_ = 1;
};

// Given two hours of steady Poisson arrivals at 6 loads, including those at the edge between two worker counts, with short
// answers (many requests) and long ones (few, and so noisy counts), counted over 10 s and over 60 s; expects at most one change
// per hour after the first quarter of an hour.
TEST(SteadyLoad, DoesNotOscillate) {
  const std::vector<double> loads = {0.3, 0.76, 0.8, 0.84, 2.4, 4.0};
  std::size_t kind = 0;
  for (double output_tokens : {256.0, 4000.0}) {
    for (double window_s : {10.0, 60.0}) {
      for (double load : effort_share(loads, kind++, 4)) {
        Loop loop(window_s, output_tokens, 71);
        loop.tick(0.1);
        const double rate = loop.per_worker() * load;  // the sizing allows 0.8 per worker: multiples of it are edges
        int workers = 0;
        for (int i = 0; i < 180; ++i) workers = loop.tick(rate);
        int changes = 0;
        for (int i = 0; i < 2 * 720; ++i) {
          const int now = loop.tick(rate);
          changes += now != workers;
          workers = now;
        }
        EXPECT_LE(changes, 2) << output_tokens << " tokens, window " << window_s << " s, load " << load;
        EXPECT_GE(workers * loop.per_worker(), rate) << "and it must still serve the load";
      }
    }
  }
}

// Given a burst to the load of three and a half workers, and its end; expects one worker, then at least four within a window,
// then one again after stabilization.
TEST(SteadyLoad, FollowsABurst) {
  Loop loop(10, 256, 99);
  loop.tick(0.1);
  const double small = 0.2 * loop.per_worker();
  int workers = 0;
  for (int i = 0; i < 100; ++i) workers = loop.tick(small);
  EXPECT_EQ(workers, 1);
  for (int i = 0; i < 3; ++i) workers = loop.tick(3 * loop.per_worker());
  EXPECT_GE(workers, 4);
  for (int i = 0; i < 50; ++i) workers = loop.tick(small);
  EXPECT_GE(workers, 4) << "inside the stabilisation window";
  for (int i = 0; i < 20; ++i) workers = loop.tick(small);
  EXPECT_EQ(workers, 1);
}

}  // namespace
}  // namespace windlass::planner
