// Tests GPUs that draining workers still hold: who will get them, and that nobody loses a worker in the meantime.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/policy/make_plan.h"
#include "planner/policy/tuning.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

using testing::a100;
using testing::chat_service;
using testing::h100;
using testing::observe;
using testing::ready_worker;
using testing::with_gpus;

constexpr double kNow = 100'000;

// A service with `workers` serving workers that wants at least `wanted`.
Service with_workers(const std::string& name, int priority, int workers, int wanted) {
  Service service = chat_service(name);
  service.priority = priority;
  service.accelerators = {AllowedAccelerator{"h100", std::nullopt}};
  service.scaling.min_workers = wanted;
  for (int slot = 0; slot < workers; ++slot) service.workers.push_back(ready_worker("h100-1", "h100", 1, slot, kNow));
  service.last_desired = wanted;
  service.memory.history_since_s = kNow - 3600;
  service.memory.desired = wanted;
  service.memory.configuration = "h100-1";
  service.memory.configuration_since_s = kNow - 3600;
  service.starts = StartTimes{1, 10};
  observe(service, kNow, 0.01);
  return service;
}

Service draining_one(Service service, bool node_leaving) {
  Worker worker = ready_worker("h100-1", "h100", 1, 7, kNow);
  worker.state = WorkerState::kDraining;
  worker.node_leaving = node_leaving;
  service.workers.push_back(worker);
  return service;
}

std::vector<int> desired(const std::vector<Service>& services, int gpus) {
  Snapshot snapshot;
  snapshot.now_s = kNow;
  snapshot.accelerators = {with_gpus(h100(), gpus), with_gpus(a100(), 20)};
  snapshot.services = services;
  std::vector<int> workers;
  for (const ServicePlan& plan : make_plan(snapshot).services) workers.push_back(plan.desired_workers());
  return workers;
}

// Given three GPUs, two with workers of low priority and one with a draining worker, and a service of high priority that wants
// one (the draining worker is its own); expects it to wait for that GPU. With seed 3435 the simulation lost a serving worker
// here at each step.
TEST(ComingGpus, AHigherPriorityWaitsForThem) {
  EXPECT_EQ(desired({draining_one(with_workers("gold", 9, 0, 1), false), with_workers("lead", 0, 2, 2)}, 3),
            (std::vector<int>{0, 2}));
  EXPECT_EQ(desired({with_workers("gold", 9, 0, 1), with_workers("lead", 0, 2, 2)}, 3), (std::vector<int>{1, 2}));
}

// Given the same, but the draining worker's node is being emptied, so that its GPU will not become available; expects the high
// priority to take one of the others immediately.
TEST(ComingGpus, GpusOfANodeThatIsEmptiedDoNotBecomeFree) {
  EXPECT_EQ(desired({draining_one(with_workers("gold", 9, 0, 1), true), with_workers("lead", 0, 2, 2)}, 2),
            (std::vector<int>{1, 1}));
}

// Given a service whose next GPU is being drained, and another class with room; expects no worker there while it waits.
TEST(ComingGpus, NoSecondClassMeanwhile) {
  Service service = draining_one(with_workers("chat", 0, 1, 2), false);
  service.accelerators.push_back(AllowedAccelerator{"a100", std::nullopt});
  EXPECT_EQ(desired({service}, 2), (std::vector<int>{1}));
  service.workers.back().node_leaving = true;
  EXPECT_GT(desired({service}, 1)[0], 1) << "where nothing comes, the other class makes up for it";
}

}  // namespace
}  // namespace windlass::planner
