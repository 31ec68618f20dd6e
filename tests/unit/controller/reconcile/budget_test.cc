// Tests how many pods of a service voluntary disruptions must leave.
#include <vector>

#include <gtest/gtest.h>

#include "controller/reconcile/apply/step.h"

namespace windlass::controller {
namespace {

Worker worker(bool ready) {
  Worker one;
  one.ready = ready;
  return one;
}

Worker chain(int servers, int ready_servers) {
  Worker one = worker(ready_servers == servers);
  one.stages = servers;
  one.ready_servers = ready_servers;
  return one;
}

Worker draining(Worker one) {
  one.draining_since_s = 1;
  return one;
}

int least(const std::vector<Worker>& workers, int desired) {
  const api::ModelService service;
  planner::ServicePlan plan;
  plan.pools.resize(1);
  plan.pools[0].workers = desired;
  ServiceMemory memory;
  const planner::Service observed;
  return disruption_budget(ServiceStep{service, plan, workers, memory, observed}).min_available;
}

// Given whole workers; expects as many as the plan wants to stay, but one may always go if two are ready.
TEST(DisruptionBudget, OfWholeWorkers) {
  EXPECT_EQ(least({}, 2), 0);
  EXPECT_EQ(least({worker(true)}, 1), 1);
  EXPECT_EQ(least({worker(true), worker(true)}, 2), 1);
  EXPECT_EQ(least({worker(true), worker(true), worker(true)}, 1), 1);
  EXPECT_EQ(least({worker(true), worker(false)}, 2), 1);
  EXPECT_EQ(least({worker(true), draining(worker(true))}, 1), 2);
}

// Given chains of four servers, each a pod; expects a pod for each whole chain that may go, since an eviction breaks a chain,
// and none while only one chain is complete.
TEST(DisruptionBudget, OfChains) {
  EXPECT_EQ(least({chain(4, 4)}, 1), 4);
  EXPECT_EQ(least({chain(4, 4), chain(4, 3)}, 1), 7) << "the second one starts";
  EXPECT_EQ(least({chain(4, 4), chain(4, 4)}, 2), 7);
  EXPECT_EQ(least({chain(4, 4), chain(4, 4), chain(4, 4)}, 1), 10);
  EXPECT_EQ(least({chain(4, 4), draining(chain(4, 4))}, 1), 8);
  EXPECT_EQ(least({chain(4, 0)}, 1), 1);
}

}  // namespace
}  // namespace windlass::controller
