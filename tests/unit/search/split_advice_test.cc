// What the strategies for split phases say of a service, all of them together.
#include "planner/search/split_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/policy/make_plan.h"
#include "tests/unit/planner/fixtures.h"

namespace windlass::search {
namespace {

using planner::testing::a100;
using planner::testing::chat_service;
using planner::testing::h100;
using planner::testing::with_gpus;
using ::testing::HasSubstr;

planner::Service service() {
  planner::Service out = chat_service();
  out.scaling.strategy = planner::Strategy::kDisaggregated;
  out.workload.requests_per_s = 8;
  out.accelerators = {{"h100", std::nullopt}, {"a100", std::nullopt}};
  return out;
}

const std::vector<planner::AcceleratorState>& classes() {
  static const std::vector<planner::AcceleratorState> kClasses = {with_gpus(h100(), 8), with_gpus(a100(), 8)};
  return kClasses;
}

// Given a service, expect an answer that holds, the same each time, with a rate for a worker of each side; and a plan of the
// policy with it that serves the assumed load.
TEST(SplitAdvice, SaysWhatAWorkerOfEachPhaseServes) {
  const auto advice = split_advice(service(), classes(), Effort{});
  ASSERT_TRUE(advice.ok()) << advice.error().message;
  ASSERT_TRUE(advice->holds) << advice->why;
  EXPECT_GT(advice->prefill.requests_per_s, 1);
  EXPECT_GT(advice->decode.requests_per_s, 1);
  for (const char* name : {"distserve", "splitwise", "tetriinfer"}) EXPECT_THAT(advice->why, HasSubstr(name));
  EXPECT_EQ(*split_advice(service(), classes(), Effort{}), *advice);

  planner::Snapshot snapshot;
  snapshot.now_s = 1000;
  snapshot.accelerators = classes();
  snapshot.services = {service()};
  snapshot.services[0].split = *advice;
  const auto plan = planner::make_plan(snapshot).services[0];
  EXPECT_EQ(plan.feasible.status, planner::Truth::kTrue) << plan.feasible.message;
  EXPECT_EQ(plan.pools.size(), 2U);
  EXPECT_GE(plan.predicted.requests_per_s, 8);
}

// Given strategy Auto, expect what the split and the cheapest whole workers cost, both simulated for the same load.
TEST(SplitAdvice, AutoComparesWithWholeWorkers) {
  planner::Service either = service();
  either.scaling.strategy = planner::Strategy::kAuto;
  const auto advice = split_advice(either, classes(), Effort{});
  ASSERT_TRUE(advice.ok()) << advice.error().message;
  ASSERT_TRUE(advice->holds) << advice->why;
  EXPECT_GT(advice->cost_per_hour, 0);
  ASSERT_TRUE(advice->whole_cost_per_hour);
  EXPECT_GT(*advice->whole_cost_per_hour, 0);
  EXPECT_THAT(advice->why, HasSubstr("whole workers"));
  EXPECT_FALSE(split_advice(service(), classes(), Effort{})->whole_cost_per_hour) << "nobody asked";
}

// Given an objective that nothing holds, expect what each strategy came to; given no class with GPUs, a shape that is not known
// or no assumed load, expect words or an answer, and no error; given a caller that ends, Cancelled.
TEST(SplitAdvice, WhatCannotBePlanned) {
  planner::Service hopeless = service();
  hopeless.slo.tpot_s = 1e-5;
  const auto none = split_advice(hopeless, classes(), Effort{});
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->holds);
  EXPECT_THAT(none->why, HasSubstr("distserve"));

  const auto nowhere = split_advice(service(), {}, Effort{});
  ASSERT_TRUE(nowhere.ok());
  EXPECT_FALSE(nowhere->holds);
  EXPECT_THAT(nowhere->why, HasSubstr("no class"));

  planner::Service shapeless = service();
  shapeless.shape.reset();
  EXPECT_FALSE(split_advice(shapeless, classes(), Effort{})->holds);

  Effort stopped;
  stopped.stop = [] { return true; };
  const auto cancelled = split_advice(service(), classes(), stopped);
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
}

// Given a class that the spec allows and that has no GPU, expect an answer without it; given no assumed load, an answer.
TEST(SplitAdvice, PlansWithTheClassesThatAreThere) {
  planner::Service idle = service();
  idle.workload.requests_per_s = 0;
  const std::vector<planner::AcceleratorState> one = {classes()[1]};
  const auto advice = split_advice(idle, one, Effort{});
  ASSERT_TRUE(advice.ok());
  ASSERT_TRUE(advice->holds) << advice->why;
  EXPECT_EQ(advice->prefill.accelerator, "a100");
  EXPECT_EQ(advice->decode.accelerator, "a100");
}

}  // namespace
}  // namespace windlass::search
