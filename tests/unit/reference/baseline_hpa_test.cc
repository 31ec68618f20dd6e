// Tests of the HorizontalPodAutoscaler's and KEDA's formulas by hand, and of their orders.
#include "tests/reference/autoscalers/baseline_hpa.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/reference/autoscalers/baseline_keda.h"
#include "tests/reference/autoscalers/baseline_schedule.h"
#include "tests/unit/reference/baseline_fixture.h"

namespace windlass::sim {
namespace {

HpaOptions target(double value) {
  HpaOptions options;
  options.target = value;
  return options;
}

// Given 4 replicas and a target of 10 requests each; expects ceil(metric / 10), but 4 while the ratio is within 10 %.
TEST(HpaRule, AppliesTheFormulaWithItsTolerance) {
  const auto next = [](double metric) {
    HpaRule rule(target(10));
    (void)rule.decide(0, 4, 40);
    return rule.decide(1000, 4, metric);
  };
  EXPECT_EQ(next(40), 4);
  EXPECT_EQ(next(44), 4);  // 1.1 times
  EXPECT_EQ(next(45), 5);
  EXPECT_EQ(next(61), 7);
  EXPECT_EQ(next(36), 4);  // 0.9 times
  EXPECT_EQ(next(30), 3);
}

// Given a target of more than two or four times the present replicas; expects at most the larger of 4 and 100 % more within 15
// s, and the same in the next 15 s.
TEST(HpaRule, GrowsByItsPolicies) {
  HpaRule rule(target(1));
  EXPECT_EQ(rule.decide(0, 1, 100), 5);
  EXPECT_EQ(rule.decide(5, 5, 100), 5);  // still within the same 15 s
  EXPECT_EQ(rule.decide(15, 5, 100), 10);
  EXPECT_EQ(rule.decide(30, 10, 100), 20);
  EXPECT_EQ(rule.decide(45, 20, 100), 40);
}

// Given a first reading without requests; expects the present replicas to stay for the window.
TEST(HpaRule, KeepsTheFirstReplicasForTheWindow) {
  HpaRule rule(target(10));
  EXPECT_EQ(rule.decide(0, 8, 0), 8);
  EXPECT_EQ(rule.decide(299, 8, 0), 8);
  EXPECT_EQ(rule.decide(300, 8, 0), 1);
}

// Given a metric that falls and then stays; expects the largest desired number of the last 300 s to hold.
TEST(HpaRule, HonoursTheScaleDownWindow) {
  HpaRule rule(target(10));
  EXPECT_EQ(rule.decide(0, 8, 80), 8);
  EXPECT_EQ(rule.decide(15, 8, 20), 8);
  EXPECT_EQ(rule.decide(30, 8, 50), 8);
  EXPECT_EQ(rule.decide(299, 8, 20), 8);
  EXPECT_EQ(rule.decide(300, 8, 20), 5);  // the number for 50 at 30 s
  EXPECT_EQ(rule.decide(330, 5, 20), 2);
}

// Given a window for scaling up as well; expects the smallest desired number within it.
TEST(HpaRule, HonoursAScaleUpWindow) {
  HpaOptions options = target(10);
  options.scale_up_window_s = 60;
  HpaRule rule(options);
  EXPECT_EQ(rule.decide(0, 2, 20), 2);
  EXPECT_EQ(rule.decide(30, 2, 60), 2);
  EXPECT_EQ(rule.decide(59, 2, 50), 2);
  EXPECT_EQ(rule.decide(60, 2, 50), 5);
}

// Given limits; expects never fewer or more.
TEST(HpaRule, KeepsItsLimits) {
  HpaOptions options = target(1);
  options.min_replicas = 2;
  options.max_replicas = 6;
  HpaRule rule(options);
  EXPECT_EQ(rule.decide(0, 3, 100), 6);
  EXPECT_EQ(rule.decide(1000, 6, 0), 2);
}

// Given requests waiting at the gateway and in workers, and running requests; expects each metric to count its own. Starting
// workers count as replicas, draining ones do not, and the gateway's slots are set once.
TEST(BaselineHpa, StartsTheMissingReplicas) {
  const auto seen =
      observed(0, {ready_worker(0, 5, 2), worker_in(WorkerPhase::kStarting, 1), worker_in(WorkerPhase::kDraining, 2)}, 10);
  EXPECT_EQ(value_of(HpaMetric::kWaiting, seen.services.front()), 12);
  EXPECT_EQ(value_of(HpaMetric::kInFlight, seen.services.front()), 17);
  BaselineHpa hpa(plain_deployment(7), HpaMetric::kWaiting, target(3));
  const ClusterOrders first = hpa.decide(seen);
  EXPECT_EQ(started(first), 2);  // ceil(12 / 3) less 2
  EXPECT_TRUE(first.drain.empty());
  ASSERT_EQ(first.slots.size(), 1u);
  EXPECT_EQ(first.slots.front().slots, 7);
  EXPECT_TRUE(hpa.decide(observed(15, {ready_worker(0)}, 3)).slots.empty());
}

// Given too many workers; expects the starting ones to go first, then the emptiest, then the latest.
TEST(BaselineDeployment, DrainsTheLeastUsefulFirst) {
  BaselineDeployment deployment = plain_deployment();
  const auto seen =
      observed(0, {ready_worker(0, 4), ready_worker(1, 1), ready_worker(2, 1), worker_in(WorkerPhase::kStarting, 3)});
  EXPECT_EQ(deployment.scale_to(seen.services.front(), 1).drain, (std::vector<int>{3, 2, 1}));
  EXPECT_TRUE(deployment.scale_to(seen.services.front(), 4).drain.empty());
}

// Given no requests, and minReplicaCount 0; expects the last replica to stay for the cooldown and then to go. The next request
// starts one at the next poll, not before.
TEST(BaselineKeda, GoesToZeroAndBack) {
  KedaOptions options;
  options.hpa = target(8);
  options.hpa.min_replicas = 0;
  BaselineKeda keda(plain_deployment(), options);
  EXPECT_TRUE(keda.decide(observed(0, {ready_worker(0, 1)})).drain.empty());
  EXPECT_TRUE(keda.decide(observed(285, {ready_worker(0)})).drain.empty());
  EXPECT_EQ(keda.decide(observed(315, {ready_worker(0)})).drain.size(), 1u);
  EXPECT_EQ(started(keda.decide(observed(330, {}, 5))), 0);
  EXPECT_EQ(started(keda.decide(observed(345, {}, 5))), 1);
}

// Given minReplicaCount 1, 20 requests in flight and a target of 8 per replica; expects three replicas; without requests, one.
TEST(BaselineKeda, ActsAsAnHpaFromOneReplica) {
  KedaOptions options;
  options.hpa = target(8);
  BaselineKeda keda(plain_deployment(), options);
  EXPECT_EQ(started(keda.decide(observed(0, {ready_worker(0, 10)}, 10))), 2);
  const ClusterOrders later = keda.decide(observed(1000, {ready_worker(0), ready_worker(1), ready_worker(2)}));
  EXPECT_EQ(later.drain.size(), 2u);
}

// Given a schedule, and a start-up time of 60 s; expects workers to start 60 s before they must be ready, and a worker that
// would be needed again within that time to stay.
TEST(BaselineSchedule, StartsInTime) {
  BaselineSchedule schedule(plain_deployment(), {{0, 1}, {100, 3}, {200, 1}, {240, 2}, {400, 1}});
  EXPECT_EQ(started(schedule.decide(observed(39, {ready_worker(0)}))), 0);
  EXPECT_EQ(started(schedule.decide(observed(40, {ready_worker(0)}))), 2);
  const std::vector<ObservedWorker> three = {ready_worker(0), ready_worker(1), ready_worker(2)};
  EXPECT_TRUE(schedule.decide(observed(199, three)).drain.empty());
  EXPECT_EQ(schedule.decide(observed(200, three)).drain.size(), 1u);  // two are wanted at 240 s
  EXPECT_EQ(schedule.decide(observed(400, {ready_worker(0), ready_worker(1)})).drain.size(), 1u);
}

}  // namespace
}  // namespace windlass::sim
