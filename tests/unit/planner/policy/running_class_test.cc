// Tests workers on a class that cannot be read, and the configurations listed next to the chosen one.
#include <gtest/gtest.h>

#include "planner/policy/make_plan.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

using testing::a100;
using testing::chat_service;
using testing::h100;
using testing::observe;
using testing::ready_worker;
using testing::with_gpus;

constexpr double kNow = 10'000;

// Three workers on a100, which the spec allows in addition to h100; the leader is new and has no memory.
Snapshot on_a100() {
  Snapshot snapshot;
  snapshot.now_s = kNow;
  snapshot.accelerators = {with_gpus(h100(), 64)};
  Service service = chat_service();
  service.accelerators = {{"h100", std::nullopt}, {"a100", std::nullopt}};
  for (int slot = 0; slot < 3; ++slot) service.workers.push_back(ready_worker("a100-1", "a100", 1, slot, kNow));
  observe(service, kNow, 10);
  snapshot.services = {service};
  return snapshot;
}

// Given a snapshot without the running workers' class, workers without a named class, and a spec that allows every class;
// expects no change, nothing started elsewhere, and a reason.
TEST(RunningClass, AnUnreadableClassMovesNoWorker) {
  Snapshot listed = on_a100();
  Snapshot unnamed = on_a100();
  for (Worker& worker : unnamed.services[0].workers) worker.accelerator.clear();
  Snapshot any = on_a100();
  any.services[0].accelerators.clear();
  for (const Snapshot& snapshot : {listed, unnamed, any}) {
    const ServicePlan plan = make_plan(snapshot).services[0];
    ASSERT_EQ(plan.pools.size(), 1U);
    EXPECT_EQ(plan.pools[0].name, "a100-1");
    EXPECT_EQ(plan.pools[0].workers, 3);
    EXPECT_EQ(plan.feasible.reason, "RunningClassUnknown");
    EXPECT_EQ(plan.feasible.status, Truth::kUnknown);
  }
}

// Given slots that settled below the workers' maximum, and a class that cannot be read now; expects the slots to stay, in the
// plan and in its memory.
TEST(RunningClass, SlotsOutliveAClassThatCannotBeRead) {
  Snapshot snapshot = on_a100();
  Service& service = snapshot.services[0];
  for (Worker& worker : service.workers) worker.max_concurrency = 64;
  service.memory.configuration = "a100-1";
  service.memory.slots = {{"a100-1", 20}};
  const ServicePlan plan = make_plan(snapshot).services[0];
  ASSERT_EQ(plan.pools.size(), 1U);
  EXPECT_EQ(plan.pools[0].each.slots, 20);
  ASSERT_EQ(plan.memory.slots.size(), 1U);
  EXPECT_EQ(plan.memory.slots[0].slots, 20);
}

// Given the same workers once the class can be read, or once the spec no longer allows it; expects the service to be planned
// again, in the second case on an allowed class.
TEST(RunningClass, WhatCanBeReadOrIsNotAllowedIsPlanned) {
  Snapshot readable = on_a100();
  readable.accelerators.push_back(with_gpus(a100(), 8));
  EXPECT_EQ(make_plan(readable).services[0].feasible.reason, "ObjectiveCanBeMet");
  Snapshot forbidden = on_a100();
  forbidden.services[0].accelerators = {{"h100", std::nullopt}};
  const ServicePlan plan = make_plan(forbidden).services[0];
  EXPECT_EQ(plan.feasible.reason, "ObjectiveCanBeMet");
  EXPECT_EQ(plan.pools[0].spec.accelerator, "h100");
}

// Given a new service of long prompts and short answers, with as many workers as the tail of timePerOutputToken needs; expects
// the entry of the chosen configuration among those considered to match the plan.
TEST(RunningClass, ConsideredKeepsTheTailToo) {
  Snapshot snapshot;
  snapshot.now_s = kNow;
  snapshot.accelerators = {with_gpus(h100(), 2048)};
  Service service = chat_service("code");
  service.shape = model_shape_by_name("llama3-70b").value();
  service.slo = Slo{2, 0.075, 99, 300};
  service.workload = AssumedWorkload{41, 2048, 28};
  snapshot.services = {service};
  const ServicePlan plan = make_plan(snapshot).services[0];
  ASSERT_EQ(plan.pools.size(), 1U);
  bool found = false;
  for (const Considered& considered : plan.considered) {
    if (considered.spec.gpus() != plan.pools[0].spec.gpus()) continue;
    found = true;
    EXPECT_EQ(considered.workers, plan.pools[0].workers);
  }
  EXPECT_TRUE(found);
  EXPECT_GT(plan.pools[0].workers, 1);
}

}  // namespace
}  // namespace windlass::planner
