// Tests the policy's rules one by one: what scales, what holds, what is denied, and the messages.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/policy/configuration.h"
#include "planner/policy/make_plan.h"
#include "planner/policy/tuning.h"
#include "tests/unit/planner/policy/one_service.h"

namespace windlass::planner {
namespace {

using testing::a100;
using testing::carry_out;
using testing::chat_service;
using testing::h100;
using testing::has_reason;
using ::testing::HasSubstr;
using testing::kNow;
using testing::l4;
using testing::observe;
using testing::one;
using testing::ready_worker;
using testing::running_service;
using testing::with_gpus;

// Rate of one worker among many of the chat service, at the utilisation that the sizing allows.
double one_workers_rate() {
  const ServicePlan plan = make_plan(one(running_service(1, 0.1))).services[0];
  return kMaxUtilisationOfMany * plan.pools.at(0).each.slots * plan.pools[0].each.service_rate_per_s;
}

// Given a new service without any signal; expects its minimum; with an assumed load, what that load needs; and in both cases a
// pool with a configuration, a prediction and reasons.
TEST(Plan, NewServiceStartsWithWhatIsAssumed) {
  ServicePlan plan = make_plan(one(chat_service())).services[0];
  EXPECT_EQ(plan.desired_workers(), 1);
  ASSERT_EQ(plan.pools.size(), 1U);
  EXPECT_EQ(plan.pools[0].name, "h100-1");
  EXPECT_GT(plan.pools[0].each.max_concurrency, 1);
  EXPECT_GT(plan.pools[0].each.service_rate_per_s, 0);
  EXPECT_EQ(plan.feasible.status, Truth::kTrue);
  EXPECT_EQ(plan.metrics_fresh.status, Truth::kFalse);
  EXPECT_TRUE(has_reason(plan, "WorkerConfiguration"));

  Service service = chat_service();
  service.workload.requests_per_s = 2.5 * one_workers_rate();
  plan = make_plan(one(service)).services[0];
  EXPECT_EQ(plan.desired_workers(), 3);
  EXPECT_TRUE(has_reason(plan, "AssumedWorkload"));
  EXPECT_NEAR(plan.predicted.utilisation, 2.5 * one_workers_rate() / plan.predicted.requests_per_s, 1e-9);
  EXPECT_GT(plan.predicted.utilisation, 2.0 / 3);
  EXPECT_LE(plan.predicted.utilisation, 1) << "of what they serve within the objective";
}

// Given arrivals for three workers; expects three immediately, and a prediction that meets the objective.
TEST(Plan, ScaleUpIsImmediate) {
  const ServicePlan plan = make_plan(one(running_service(1, 2.9 * one_workers_rate()))).services[0];
  EXPECT_EQ(plan.desired_workers(), 3);
  EXPECT_TRUE(has_reason(plan, "ScaleUp"));
  EXPECT_LE(plan.predicted.ttft_s, 1.0);
  EXPECT_LE(plan.predicted.tpot_s, 0.05);
  EXPECT_LE(plan.predicted.utilisation, 1);
  EXPECT_EQ(plan.predicted.gpus, 3);
  EXPECT_DOUBLE_EQ(plan.predicted.cost_per_hour, 12);
}

// Given few arrivals but a long queue; expects workers for the queue, because waiting requests are demand. Given that the queue
// is gone before a worker could start; expects none for it. Given that it is still there after that time; expects workers
// again.
TEST(Plan, WhatWaitsIsDemand) {
  const double one_per_s = one_workers_rate() / kMaxUtilisationOfMany;
  Service service = running_service(1, 0.01, 75 * one_per_s);
  service.starts = StartTimes{25, 3};
  EXPECT_EQ(make_plan(one(service)).services[0].desired_workers(), 3) << "50 s of work are left after 25 s, to be done in 25 s";
  EXPECT_TRUE(has_reason(make_plan(one(service)).services[0], "Backlog"));
  service.starts->p90_s = 80;
  EXPECT_EQ(make_plan(one(service)).services[0].desired_workers(), 1);
  service.memory.queue_since_s = kNow - 80;
  EXPECT_EQ(make_plan(one(service)).services[0].desired_workers(), 2) << "75 s of work, to be done in 40 s";
}

// Given arrivals far above capacity and workers that take long to start; expects workers also for the queue that builds up
// until then. Given that enough are starting already; expects no more for it.
TEST(Plan, TheQueueThatBuildsUpIsDemand) {
  Service service = running_service(1, 3 * one_workers_rate(), 20);
  service.starts = StartTimes{100, 3};
  const ServicePlan plan = make_plan(one(service)).services[0];
  EXPECT_TRUE(has_reason(plan, "Backlog"));
  EXPECT_GE(plan.desired_workers(), 5) << "three for what comes, two for 200 s of work within a start";
  for (int slot = 1; slot < 4; ++slot) {
    service.workers.push_back(ready_worker("h100-1", "h100", 1, slot, kNow));
    service.workers.back().state = WorkerState::kStarting;
    service.workers.back().created_s = kNow - 99;
  }
  EXPECT_FALSE(has_reason(make_plan(one(service)).services[0], "Backlog"));
}

// Given a rise within the noise of its count; expects no change. Given the same rate counted for longer; expects the worker it
// needs.
TEST(Plan, NoiseIsNoRise) {
  Service service = running_service(1, 1.15 * one_workers_rate());
  service.demand.arrivals_window_s = 1;
  EXPECT_EQ(make_plan(one(service)).services[0].desired_workers(), 1);
  service.demand.arrivals_window_s = 600;
  EXPECT_EQ(make_plan(one(service)).services[0].desired_workers(), 2);
}

// Given a load that fell; expects the old number until the window has passed, then the largest recommendation within it.
TEST(Plan, ScaleDownWaitsForTheWindow) {
  const double rate = one_workers_rate();
  Snapshot snapshot = one(running_service(5, 4.5 * rate));
  auto tick = [&](double at_s, double arrivals_per_s) {
    snapshot.now_s = at_s;
    Service& service = snapshot.services[0];
    observe(service, at_s, arrivals_per_s);
    for (Worker& worker : service.workers) {
      worker.running = Reading{0, at_s};
      worker.waiting = Reading{0, at_s};
    }
    const ServicePlan plan = make_plan(snapshot).services[0];
    carry_out(plan, service, at_s);
    return plan;
  };
  EXPECT_EQ(tick(kNow, 4.5 * rate).desired_workers(), 5);
  EXPECT_EQ(tick(kNow + 10, 2.5 * rate).desired_workers(), 5);
  EXPECT_EQ(tick(kNow + 100, 0.5 * rate).desired_workers(), 5);
  ServicePlan plan = tick(kNow + 300, 0.5 * rate);
  EXPECT_EQ(plan.desired_workers(), 5);
  EXPECT_TRUE(has_reason(plan, "ScaleDownStabilising"));
  plan = tick(kNow + 311, 0.5 * rate);
  EXPECT_EQ(plan.desired_workers(), 3) << "3 were needed until 100 s, which is within the last 300 s";
  EXPECT_TRUE(has_reason(plan, "ScaleDown"));
  EXPECT_EQ(tick(kNow + 401, 0.5 * rate).desired_workers(), 1);
}

// Given a class with room for two of the five workers that a load needs; expects a shortage while the load lasts and none
// afterwards, although five are still held for the window.
TEST(Plan, AnIdleServiceLacksNothing) {
  const double rate = one_workers_rate();
  Snapshot snapshot = one(running_service(2, 4.5 * rate), 2);
  Service& service = snapshot.services[0];
  Plan plan = make_plan(snapshot);
  EXPECT_EQ(plan.services[0].able_to_scale.reason, "InsufficientCapacity");
  EXPECT_FALSE(plan.denied.empty());

  carry_out(plan.services[0], service, kNow);
  snapshot.now_s = kNow + 60;
  observe(service, snapshot.now_s, 0);
  for (Worker& worker : service.workers) worker.running = worker.waiting = Reading{0, snapshot.now_s};
  plan = make_plan(snapshot);
  EXPECT_EQ(plan.services[0].desired_workers(), 2);
  EXPECT_EQ(plan.services[0].able_to_scale.reason, "AsNeeded") << plan.services[0].able_to_scale.message;
  EXPECT_TRUE(plan.denied.empty());
}

// Given a restart (no memory) with five workers and no load; expects five until a whole window has been observed, then one.
TEST(Plan, ShortHistoryHolds) {
  Service service = running_service(5, 0.01);
  service.memory = PolicyMemory{};
  Snapshot snapshot = one(service);
  ServicePlan plan = make_plan(snapshot).services[0];
  EXPECT_EQ(plan.desired_workers(), 5);
  EXPECT_TRUE(has_reason(plan, "HeldOnShortHistory"));
  carry_out(plan, snapshot.services[0], kNow);
  snapshot.now_s = kNow + 301;
  observe(snapshot.services[0], snapshot.now_s, 0.01);
  for (Worker& worker : snapshot.services[0].workers) worker.running = worker.waiting = Reading{0, snapshot.now_s};
  EXPECT_EQ(make_plan(snapshot).services[0].desired_workers(), 1);
}

// Given a memory with times in the future (another clock's); expects it to be ignored, and the workers to be held.
TEST(Plan, MemoryFromTheFutureCountsAsNone) {
  Service service = running_service(5, 0.01);
  service.memory.history_since_s = kNow + 5;
  EXPECT_EQ(make_plan(one(service)).services[0].desired_workers(), 5);
}

// Given signals that are missing, stale, NaN, infinite, negative or from the future; expects the workers to be held and a
// condition that names the signal.
TEST(Plan, BadSignalsHold) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::pair<std::optional<Reading>, const char*> bad[] = {
      {std::nullopt, "the arrival rate is missing"},     {Reading{0, kNow - 31}, "the arrival rate is 31 s old"},
      {Reading{nan, kNow}, "the arrival rate is nan"},   {Reading{INFINITY, kNow}, "the arrival rate is inf"},
      {Reading{-1, kNow}, "the arrival rate is -1"},     {Reading{0, kNow + 100}, "the arrival rate is -100 s old"},
      {Reading{0, nan}, "the arrival rate is nan s old"}};
  for (const auto& [reading, message] : bad) {
    Service service = running_service(4, 0);
    service.demand.arrivals_per_s = reading;
    const ServicePlan plan = make_plan(one(service)).services[0];
    EXPECT_EQ(plan.desired_workers(), 4) << message;
    EXPECT_EQ(plan.metrics_fresh.status, Truth::kFalse);
    EXPECT_THAT(plan.metrics_fresh.message, HasSubstr(message));
    EXPECT_TRUE(has_reason(plan, "HeldOnMissingSignals"));
  }
  Service service = running_service(4, 0);
  service.demand.queued.reset();
  EXPECT_EQ(make_plan(one(service)).services[0].desired_workers(), 4);
}

// Given signals that were missing for longer than the window and came back low; expects the held number to count as
// recommended, so there is no sudden drop.
TEST(Plan, TimeWithoutSignalsIsNoHistory) {
  Snapshot snapshot = one(running_service(4, 0));
  snapshot.services[0].memory.recommendations = {Recommendation{kNow - 3600, 1}};
  for (double at_s = kNow; at_s <= kNow + 400; at_s += 50) {
    snapshot.now_s = at_s;
    snapshot.services[0].demand = Demand{};
    carry_out(make_plan(snapshot).services[0], snapshot.services[0], at_s);
  }
  snapshot.now_s = kNow + 410;
  observe(snapshot.services[0], snapshot.now_s, 0.01);
  for (Worker& worker : snapshot.services[0].workers) worker.running = worker.waiting = Reading{0, snapshot.now_s};
  EXPECT_EQ(make_plan(snapshot).services[0].desired_workers(), 4);
}

// Given a readable queue without readable arrivals; expects a scale-up for the queue anyway.
TEST(Plan, PartOfTheSignalsMayScaleUp) {
  Service service = running_service(1, 0, 1e4);
  service.demand.arrivals_per_s.reset();
  EXPECT_GT(make_plan(one(service)).services[0].desired_workers(), 1);
}

// Given few arrivals but workers full of requests; expects the busy workers to stay. Given ready workers without metrics;
// expects them to count as full.
TEST(Plan, BusyWorkersStay) {
  Service service = running_service(4, 0.01);
  service.memory.recommendations = {Recommendation{kNow - 3600, 1}};
  EXPECT_EQ(make_plan(one(service)).services[0].desired_workers(), 1);
  for (Worker& worker : service.workers) worker.running = Reading{200, kNow};
  ServicePlan plan = make_plan(one(service)).services[0];
  EXPECT_EQ(plan.desired_workers(), 4);
  EXPECT_TRUE(has_reason(plan, "Occupied"));
  for (Worker& worker : service.workers) worker.running.reset();
  plan = make_plan(one(service)).services[0];
  EXPECT_EQ(plan.desired_workers(), 4);
  EXPECT_EQ(plan.metrics_fresh.reason, "WorkersSilent");
}

// Given limits of workers, cost and GPUs; expects the tightest one, named in the plan and among the denials.
TEST(Plan, LimitsHoldAndAreNamed) {
  const double rate = 5.5 * one_workers_rate();
  Service service = running_service(1, rate);
  service.scaling.max_workers = 4;
  Plan plan = make_plan(one(service));
  EXPECT_EQ(plan.services[0].desired_workers(), 4);
  ASSERT_EQ(plan.denied.size(), 1U);
  EXPECT_EQ(plan.denied[0].code, "MaxWorkers");
  EXPECT_EQ(plan.denied[0].wanted_workers, 6);
  EXPECT_EQ(plan.denied[0].granted_workers, 4);
  EXPECT_EQ(plan.services[0].able_to_scale.reason, "MaxWorkers");

  service.scaling.max_cost_per_hour = 13;
  plan = make_plan(one(service));
  EXPECT_EQ(plan.services[0].desired_workers(), 3);
  EXPECT_EQ(plan.denied[0].code, "MaxCost");

  service.accelerators[0].max_gpus = 2;
  plan = make_plan(one(service));
  EXPECT_EQ(plan.services[0].desired_workers(), 2);
  EXPECT_EQ(plan.denied[0].code, "MaxGpus");

  plan = make_plan(one(service, 1));
  EXPECT_EQ(plan.services[0].desired_workers(), 1);
  EXPECT_EQ(plan.denied.back().code, "InsufficientCapacity");
  EXPECT_EQ(plan.services[0].able_to_scale.reason, "InsufficientCapacity");
}

// Given minWorkers 3 and maxGPUs 2 with hardly any load; expects the denial to state 3.
TEST(Plan, ADenialStatesTheNumberBeforeLimits) {
  Service service = running_service(2, 0.01);
  service.scaling.min_workers = 3;
  service.accelerators[0].max_gpus = 2;
  const Plan plan = make_plan(one(service));
  ASSERT_EQ(plan.denied.size(), 1U);
  EXPECT_EQ(plan.denied[0].code, "MaxGpus");
  EXPECT_EQ(plan.denied[0].wanted_workers, 3);
  EXPECT_EQ(plan.denied[0].granted_workers, 2);
}

// Given 4 GPUs, all used by a service with minimum 6, and a newcomer of equal priority and minimum listed first; expects no
// worker to go. Given a higher priority; expects the newcomer to get them.
TEST(Plan, ANewcomerTakesNoFloorFromAnEqual) {
  Snapshot snapshot = one(running_service(4, 0.01), 4);
  snapshot.services[0].scaling.min_workers = 6;
  Service newcomer = chat_service("a-newcomer");
  newcomer.scaling.min_workers = 6;
  snapshot.services.insert(snapshot.services.begin(), newcomer);
  Plan plan = make_plan(snapshot);
  EXPECT_EQ(plan.services[0].desired_workers(), 0);
  EXPECT_EQ(plan.services[1].desired_workers(), 4);
  snapshot.services[0].priority = 1;
  plan = make_plan(snapshot);
  EXPECT_EQ(plan.services[0].desired_workers(), 4);
  EXPECT_EQ(plan.services[1].desired_workers(), 0);
}

// Given a minimum above what the load needs; expects the minimum. Given a budget below the minimum; expects the budget.
TEST(Plan, MinimumHoldsUnlessABudgetForbids) {
  Service service = running_service(1, 0.01);
  service.scaling.min_workers = 3;
  EXPECT_EQ(make_plan(one(service)).services[0].desired_workers(), 3);
  service.scaling.max_cost_per_hour = 8;
  const Plan plan = make_plan(one(service));
  EXPECT_EQ(plan.services[0].desired_workers(), 2);
  EXPECT_EQ(plan.denied[0].code, "MaxCost");
}

// Given draining workers; expects that their GPUs are not given away. Given an elastic class; expects that workers may be
// pending up to its maximum.
TEST(Plan, DrainingGpusAreTakenAndElasticClassesGrow) {
  Service service = running_service(1, 3.5 * one_workers_rate());
  for (int slot = 1; slot < 3; ++slot) {
    service.workers.push_back(ready_worker("h100-1", "h100", 1, slot, kNow));
    service.workers.back().state = WorkerState::kDraining;
  }
  EXPECT_EQ(make_plan(one(service, 4)).services[0].desired_workers(), 2);
  Snapshot snapshot = one(service, 4);
  snapshot.accelerators[0].mode = CapacityMode::kElastic;
  snapshot.accelerators[0].max_gpus = 5;
  EXPECT_EQ(make_plan(snapshot).services[0].desired_workers(), 3);
  snapshot.accelerators[0].used_by_others = 1;
  EXPECT_EQ(make_plan(snapshot).services[0].desired_workers(), 2);
}

// Given nodes whose count drops to zero while workers run on them; expects the running workers to stay planned.
TEST(Plan, ADipInTheNodeCountTakesNobodysGpu) {
  EXPECT_EQ(make_plan(one(running_service(3, 2.9 * one_workers_rate()), 0)).services[0].desired_workers(), 3);
}

// Given two services and too few GPUs; expects floors first, then the higher priority, and a denial with its reason.
TEST(Plan, PriorityDecidesWhenGpusAreFew) {
  const double rate = one_workers_rate();
  Service low = running_service(1, 3.5 * rate);
  Service high = running_service(1, 3.5 * rate);
  low.id = ServiceId{"default", "low", "uid-low"};
  high.id = ServiceId{"default", "high", "uid-high"};
  high.priority = 10;
  Snapshot snapshot = one(low, 6);
  snapshot.services.push_back(high);
  const Plan plan = make_plan(snapshot);
  EXPECT_EQ(plan.services[0].desired_workers(), 2);
  EXPECT_EQ(plan.services[1].desired_workers(), 4);
  ASSERT_EQ(plan.denied.size(), 1U);
  EXPECT_EQ(plan.denied[0].id.name, "low");
  EXPECT_THAT(plan.denied[0].message, HasSubstr("4 workers of 1 x h100 needed, 2 granted"));
}

// Given a service that may idle to zero; expects one worker until the idle time has passed while the controller watched, then
// none, then one again when a request waits or arrives.
TEST(Plan, IdlesToZeroAndBack) {
  Service service = running_service(2, 0);
  service.scaling.min_workers = 0;
  service.scaling.idle_to_zero_after_s = 600;
  service.demand.last_arrival_at_s = kNow - 500;
  service.memory.recommendations = {Recommendation{kNow - 3600, 0}};
  ServicePlan plan = make_plan(one(service)).services[0];
  EXPECT_EQ(plan.desired_workers(), 1);
  EXPECT_TRUE(has_reason(plan, "NotIdleLongEnough"));

  service.demand.last_arrival_at_s = kNow - 601;
  plan = make_plan(one(service)).services[0];
  EXPECT_EQ(plan.desired_workers(), 0);
  EXPECT_TRUE(has_reason(plan, "IdleToZero"));

  service.memory.history_since_s = kNow - 599;
  EXPECT_EQ(make_plan(one(service)).services[0].desired_workers(), 1) << "a restart loses the sight of the idle time";

  Snapshot snapshot = one(service);
  carry_out(plan, snapshot.services[0], kNow);
  EXPECT_EQ(make_plan(snapshot).services[0].desired_workers(), 0);
  observe(snapshot.services[0], kNow, 0, 1);
  plan = make_plan(snapshot).services[0];
  EXPECT_EQ(plan.desired_workers(), 1);
  EXPECT_TRUE(has_reason(plan, "ScaleFromZero"));
  observe(snapshot.services[0], kNow, 0.05, 0);
  EXPECT_EQ(make_plan(snapshot).services[0].desired_workers(), 1);
}

// Given zero workers and no signals; expects zero to be held.
TEST(Plan, ZeroIsHeldWithoutSignals) {
  Service service = running_service(0, 0);
  service.scaling.min_workers = 0;
  service.demand = Demand{};
  EXPECT_EQ(make_plan(one(service)).services[0].desired_workers(), 0);
}

// Given an objective that no configuration meets even if its data sheet is far off; expects Feasible=False with the smallest
// objective that could be met, nothing started, and running workers unchanged.
TEST(Plan, InfeasibleObjectiveSaysWhatWouldMeetIt) {
  Service service = chat_service();
  service.slo.tpot_s = 0.0002;
  ServicePlan plan = make_plan(one(service)).services[0];
  EXPECT_EQ(plan.feasible.status, Truth::kFalse);
  EXPECT_EQ(plan.feasible.reason, "TpotTooTight");
  EXPECT_THAT(plan.feasible.message, HasSubstr("timePerOutputToken is 0.2 ms, but the fastest worker takes"));
  EXPECT_THAT(plan.feasible.message, HasSubstr("(8 x h100)"));
  EXPECT_EQ(plan.desired_workers(), 0);

  service = running_service(3, 1);
  service.slo.tpot_s = 0.0002;
  plan = make_plan(one(service)).services[0];
  EXPECT_EQ(plan.desired_workers(), 3);
  EXPECT_TRUE(has_reason(plan, "HeldAsIs"));

  service = chat_service();
  service.slo.ttft_s = 0.0004;
  EXPECT_EQ(make_plan(one(service)).services[0].feasible.reason, "TtftTooTight");

  service = chat_service();
  service.shape = model_shape_by_name("llama3-70b").value();
  service.accelerators[0].max_gpus = 1;
  plan = make_plan(one(service)).services[0];
  EXPECT_EQ(plan.feasible.reason, "DoesNotFit");
  EXPECT_THAT(plan.feasible.message, HasSubstr("131 GiB do not fit into the 80 GiB of 1 x h100"));
}

// Given a model of unknown shape, a strategy that the engine cannot run or a class that does not exist; expects nothing
// started, and the reason.
TEST(Plan, UnknownsAreNamed) {
  Service service = chat_service();
  service.shape.reset();
  service.shape_unknown_reason = "spec.model gives neither architecture nor config";
  ServicePlan plan = make_plan(one(service)).services[0];
  EXPECT_EQ(plan.feasible.status, Truth::kUnknown);
  EXPECT_EQ(plan.feasible.reason, "ModelShapeUnknown");
  EXPECT_EQ(plan.desired_workers(), 0);

  service = chat_service();
  service.scaling.strategy = Family::kChained;
  service.engine = EngineType::kVLLM;
  EXPECT_EQ(make_plan(one(service)).services[0].feasible.reason, "StrategyNotAvailable");

  service = chat_service();
  service.accelerators = {AllowedAccelerator{"tpu", std::nullopt}};
  plan = make_plan(one(service)).services[0];
  EXPECT_EQ(plan.feasible.reason, "NoAccelerator");
  EXPECT_THAT(plan.reasons[0].message, HasSubstr("(got tpu); known: h100"));
}

// Given mode Recommend or Paused; expects the workers unchanged, and next to them what would be done.
TEST(Plan, RecommendAndPausedTouchNothing) {
  for (Mode mode : {Mode::kRecommend, Mode::kPaused}) {
    Service service = running_service(2, 3.9 * one_workers_rate());
    service.scaling.mode = mode;
    service.workers[1].state = WorkerState::kFailed;
    const ServicePlan plan = make_plan(one(service)).services[0];
    ASSERT_EQ(plan.pools.size(), 1U);
    EXPECT_EQ(plan.pools[0].workers, 2);
    ASSERT_EQ(plan.recommended_pools.size(), 1U);
    EXPECT_EQ(plan.recommended_pools[0].workers, 4);
    EXPECT_EQ(plan.able_to_scale.reason, to_string(mode));
  }
}

// Given longer requests than assumed; expects the same worker flags, fewer slots and more workers.
TEST(Plan, ObservedLengthsChangeSlotsButNoFlags) {
  const double rate = 0.9 * one_workers_rate();
  const ServicePlan before = make_plan(one(running_service(1, rate))).services[0];
  Service service = running_service(1, rate);
  service.demand.input_tokens = Reading{4000, kNow};
  service.demand.output_tokens = Reading{256, kNow};
  const ServicePlan after = make_plan(one(service)).services[0];
  EXPECT_EQ(after.pools[0].each.max_concurrency, before.pools[0].each.max_concurrency);
  EXPECT_LT(after.pools[0].each.slots, before.pools[0].each.slots);
  EXPECT_GT(after.desired_workers(), before.desired_workers());
  service.demand.input_tokens->at_s = kNow - 100;
  EXPECT_EQ(make_plan(one(service)).services[0].pools, before.pools) << "stale lengths count as none";
}

// Given workers on a more expensive accelerator and an equal one that is only slightly cheaper; expects them to stay. Given one
// that is much cheaper; expects a change in which old workers stay until new ones are ready, and then go.
TEST(Plan, ConfigurationIsStickyAndChangesMakeBeforeBreak) {
  Service service = running_service(2, 1.5 * one_workers_rate());
  service.accelerators = {AllowedAccelerator{"h100", std::nullopt}, AllowedAccelerator{"other", std::nullopt}};
  service.workload.requests_per_s = 1.5 * one_workers_rate();
  Snapshot snapshot = one(service);
  AcceleratorSpec other = h100();
  other.name = "other";
  other.price_per_hour = 3.5;
  snapshot.accelerators.push_back(with_gpus(other, 8));
  ServicePlan plan = make_plan(snapshot).services[0];
  ASSERT_EQ(plan.pools.size(), 1U);
  EXPECT_EQ(plan.pools[0].name, "h100-1");
  EXPECT_TRUE(has_reason(plan, "KeptConfiguration"));

  snapshot.accelerators[1].spec.price_per_hour = 1;
  plan = make_plan(snapshot).services[0];
  ASSERT_EQ(plan.pools.size(), 2U);
  EXPECT_EQ(plan.pools[0].name, "other-1");
  EXPECT_EQ(plan.pools[0].workers, 2);
  EXPECT_EQ(plan.pools[1].name, "h100-1");
  EXPECT_EQ(plan.pools[1].workers, 2);
  EXPECT_EQ(plan.memory.desired, 2) << "the workers that go are not counted as wanted";

  carry_out(plan, snapshot.services[0], kNow);
  snapshot.services[0].workers[1].state = WorkerState::kStarting;  // one of the new ones is ready
  plan = make_plan(snapshot).services[0];
  ASSERT_EQ(plan.pools.size(), 2U);
  EXPECT_EQ(plan.pools[0].workers, 2);
  EXPECT_EQ(plan.pools[1].workers, 1);

  snapshot.services[0].workers[1].state = WorkerState::kReady;
  plan = make_plan(snapshot).services[0];
  ASSERT_EQ(plan.pools.size(), 1U);
  EXPECT_EQ(plan.pools[0].name, "other-1");
}

// Given a change without room next to the old workers; expects room to be made for one new worker at a time.
TEST(Plan, ConfigurationChangeWithoutRoomStillMoves) {
  Service service = running_service(4, 0.5 * one_workers_rate());
  service.scaling.min_workers = 2;
  service.shape = model_shape_by_name("llama3-70b").value();  // edited: one GPU per worker is no longer enough
  const ServicePlan plan = make_plan(one(service, 4)).services[0];
  ASSERT_EQ(plan.pools.size(), 1U + (plan.pools.size() > 1 ? 1U : 0U));
  EXPECT_GT(plan.pools[0].spec.gpus(), 1);
  EXPECT_GE(plan.pools[0].workers, 1);
  EXPECT_LE(plan.predicted.gpus, 4);
}

// Given a spec that now allows another class only, whose GPUs are all with others; expects every old worker to stay, because
// none holds what the first new one lacks.
TEST(Plan, NoWorkerGoesForGpusThatOthersHold) {
  Service service = running_service(2, 0.5 * one_workers_rate());
  service.accelerators = {{"a100", {}}};
  Snapshot snapshot = one(service, 2);
  snapshot.accelerators.push_back(with_gpus(a100(), 8));
  snapshot.accelerators.back().used_by_others = 8;
  const ServicePlan plan = make_plan(snapshot).services[0];
  const auto old = std::find_if(plan.pools.begin(), plan.pools.end(), [](const Pool& pool) { return pool.name == "h100-1"; });
  ASSERT_NE(old, plan.pools.end());
  EXPECT_GE(old->workers, 1);
}

// Given a model that needs several GPUs and an engine that can split it over fewer than a node has; expects workers of at most
// that size, also replacing larger ones. Given an engine that cannot split it over enough; expects a message that says so.
TEST(Plan, WorkersHaveNoMoreGpusThanTheirEngineCanUse) {
  Service service = chat_service();
  service.shape = model_shape_by_name("llama3-70b").value();
  service.max_context_tokens = 8192;
  service.slo.tpot_s = 0.03;
  service.workload.requests_per_s = 1;
  const int free_choice = make_plan(one(service)).services[0].pools.at(0).spec.gpus();
  ASSERT_GT(free_choice, 2);
  service.max_gpus_per_worker = free_choice / 2;
  service.slo.tpot_s = 0.1;
  service.workers = {ready_worker("h100-8", "h100", 8, 0, kNow)};
  service.memory.configuration = "h100-8";
  const ServicePlan plan = make_plan(one(service)).services[0];
  ASSERT_FALSE(plan.pools.empty());
  EXPECT_EQ(plan.feasible.status, Truth::kTrue) << plan.feasible.message;
  EXPECT_EQ(plan.pools[0].spec.gpus(), free_choice / 2);
  for (const Considered& considered : plan.considered) EXPECT_LE(considered.spec.gpus(), free_choice / 2);

  service.workers.clear();
  service.max_gpus_per_worker = 1;
  const ServicePlan none = make_plan(one(service)).services[0];
  EXPECT_EQ(none.feasible.reason, "DoesNotFit") << none.feasible.message;
}

// Given several accelerators; expects the cheapest for the assumed load, and a reason for each other one.
TEST(Plan, LosersHaveReasons) {
  Service service = chat_service();
  service.accelerators.clear();
  service.slo.tpot_s = 0.1;
  service.workload.requests_per_s = 0.5;
  Snapshot snapshot = one(service);
  snapshot.accelerators.push_back(with_gpus(a100(), 8));
  snapshot.accelerators.push_back(with_gpus(l4(), 0));
  const ServicePlan plan = make_plan(snapshot).services[0];
  EXPECT_EQ(plan.pools[0].spec.accelerator, "a100");
  bool h100_lost = false;
  bool l4_lost = false;
  for (const Reason& reason : plan.reasons) {
    h100_lost = h100_lost || (reason.code == "NotChosen" && reason.inputs.at("accelerator") == "h100");
    l4_lost = l4_lost || (reason.code == "NoRoom" && reason.inputs.at("accelerator") == "l4");
  }
  EXPECT_TRUE(h100_lost);
  EXPECT_TRUE(l4_lost);
}

// Given attainment above, below and unknown; expects SLOMet True, False and Unknown.
TEST(Plan, SloMet) {
  Service service = running_service(1, 1);
  EXPECT_EQ(make_plan(one(service)).services[0].slo_met.status, Truth::kUnknown);
  service.demand.attainment = Reading{0.95, kNow};
  EXPECT_EQ(make_plan(one(service)).services[0].slo_met.status, Truth::kTrue);
  service.demand.attainment = Reading{0.949, kNow};
  EXPECT_EQ(make_plan(one(service)).services[0].slo_met.status, Truth::kFalse);
}

// Given workers that no node takes or that failed; expects the condition to say so, and the number to stay.
TEST(Plan, TroubledWorkersAreNamed) {
  Service service = running_service(3, 2.9 * one_workers_rate());
  service.workers[2].state = WorkerState::kUnschedulable;
  ServicePlan plan = make_plan(one(service)).services[0];
  EXPECT_EQ(plan.desired_workers(), 3);
  EXPECT_EQ(plan.able_to_scale.reason, "WorkersUnschedulable");
  service.workers[2].state = WorkerState::kFailed;
  EXPECT_EQ(make_plan(one(service)).services[0].able_to_scale.reason, "WorkersFailing");
}

}  // namespace
}  // namespace windlass::planner
