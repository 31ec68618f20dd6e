// What runs on a class that cannot be read, and what is weighed beside what is chosen.
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

// Three workers on a100, which the spec allows beside h100; the leader is new and remembers nothing.
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

// Given a snapshot without the class that the workers run on, one whose workers name no class, and a spec that allows every
// class; nothing moves, nothing is started elsewhere, and the plan says why.
TEST(RunningClass, AClassThatCannotBeReadMovesNobody) {
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

// Given slots that had settled below what the workers may hold, and a class that cannot be read at the moment; expect the slots
// to stay, in the plan and in what it remembers.
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

// Given the same workers when the class can be read, and when the spec no longer allows it; the service is planned for again,
// and in the second case on what is allowed.
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

// Given a new service of long prompts and short answers, whose workers are as many as keep the tail of timePerOutputToken; what
// is said of the chosen configuration among those that were considered is what is planned.
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
