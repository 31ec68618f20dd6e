// Tests the control loop's rules one by one: forecasts, bursts, rate limits, silent workers, corrections, troubles, rejections,
// reconfiguration.
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

// As before, but the last window needed only one worker, so only the other rules hold the rest.
Service shrinking_service(int workers, double arrivals_per_s) {
  Service service = running_service(workers, arrivals_per_s);
  service.memory.recommendations = {Recommendation{kNow - 3600, 1}};
  return service;
}

ServicePlan plan_of(const Service& service, int gpus = 64) { return make_plan(one(service, gpus)).services[0]; }

// Requests per second of a worker whose slots are all taken.
double full_rate() {
  const Pool pool = plan_of(running_service(1, 0.1)).pools.at(0);
  return pool.each.slots * pool.each.service_rate_per_s;
}

// Sets the counts of the last minute, and forecasts of this rate that have proved accurate.
void forecast_of(Service& service, double expected_per_s, double level_per_s) {
  workload::BestForecastOptions options;
  auto forecaster = workload::BestForecaster::make(options).value();
  for (double at_s = kNow - 3000; at_s <= kNow; at_s += 10) ASSERT_TRUE(forecaster.observe({at_s, expected_per_s}, 60).ok());
  service.memory.forecast = forecaster.state();
  service.memory.counted = Reading{1000, kNow};
  service.demand.arrivals_total = Reading{1000, kNow};
  for (double at_s = kNow - 50; at_s <= kNow; at_s += 10) service.memory.arrivals.push_back({at_s, level_per_s});
}

// Given a forecast above the observed rate; expects the workers it needs, and a reason with method and error. Given one below;
// expects the observed rate to decide. Given one without a record; expects no increase.
TEST(ControlLoop, AForecastRaisesAndNeverLowers) {
  const double rate = full_rate();
  Service service = running_service(2, 1.5 * rate);
  forecast_of(service, 2.7 * rate, 1.5 * rate);
  ServicePlan plan = plan_of(service);
  EXPECT_EQ(plan.desired_workers(), 3);
  EXPECT_TRUE(has_reason(plan, "Forecast"));
  ASSERT_TRUE(plan.forecast.has_value());
  EXPECT_NEAR(plan.forecast->requests_per_s, 2.7 * rate, 1e-6);
  EXPECT_EQ(plan.forecast->horizon_s, 1);

  Service falling = running_service(3, 2.7 * rate);
  forecast_of(falling, 0.5 * rate, 2.7 * rate);
  EXPECT_EQ(plan_of(falling).desired_workers(), 3);

  service.memory.forecast->given.forecasts = 0;
  EXPECT_EQ(plan_of(service).desired_workers(), 2);
}

// Given few requests, so that a rise of a half may be chance; expects it to be ignored while requests meet the objective, and
// believed once they miss it; but not because of misses from before the last worker was added.
TEST(ControlLoop, MissesMakeARiseCertain) {
  const double rate = full_rate();
  Service service = running_service(2, 0);
  service.demand.arrivals_window_s = 1;
  const double arrivals_per_s = 2.5 * rate;
  observe(service, kNow, arrivals_per_s);
  service.memory.burstiness = arrivals_per_s;  // bursty enough that the rise is within three standard deviations
  const ServicePlan passed_over = plan_of(service);
  ASSERT_EQ(passed_over.desired_workers(), 2);
  EXPECT_TRUE(has_reason(passed_over, "RiseNotSure"));
  service.demand.attainment = Reading{0.64, kNow};
  EXPECT_GT(plan_of(service).desired_workers(), 2);
  service.memory.last_change = Change{kNow - 10, Direction::kUp};
  EXPECT_EQ(plan_of(service).desired_workers(), 2);
}

// Given a rise within its noise, and waiting requests; expects it to be believed once they have waited longer than their first
// token may take, if a worker starts within seconds. If a start takes minutes, the level of the last minute is fast enough.
TEST(ControlLoop, AQueueThatLastsMakesARiseCertain) {
  const double rate = full_rate();
  Service service = running_service(2, 0);
  service.demand.arrivals_window_s = 1;
  observe(service, kNow, 2.5 * rate, 2);
  service.memory.burstiness = 2.5 * rate;
  service.starts = StartTimes{2, 3};
  service.memory.queue_since_s = kNow - 0.9 * service.slo.ttft_s;
  EXPECT_EQ(plan_of(service).desired_workers(), 2);
  service.memory.queue_since_s = kNow - 1.1 * service.slo.ttft_s;
  EXPECT_GT(plan_of(service).desired_workers(), 2);
  service.starts = StartTimes{100, 3};
  EXPECT_EQ(plan_of(service).desired_workers(), 2);
}

// Given a service that has kept its floor of one worker without load; expects its first requests not to count as a change of
// direction, since no worker starts for them. (Misses within one start of a scale-up are attributed to the time before it.)
TEST(ControlLoop, WhatTheFloorCoversIsNoChange) {
  Service service = running_service(1, 0.3 * full_rate());
  service.scaling.min_workers = 1;
  service.memory.desired = 0;
  service.last_desired = 1;
  ServicePlan plan = plan_of(service);
  EXPECT_EQ(plan.desired_workers(), 1);
  EXPECT_EQ(plan.memory.desired, 1);
  EXPECT_FALSE(plan.memory.last_change.has_value());

  observe(service, kNow, 3 * full_rate());
  plan = plan_of(service);
  EXPECT_GT(plan.desired_workers(), 1);
  ASSERT_TRUE(plan.memory.last_change.has_value());
  EXPECT_EQ(plan.memory.last_change->direction, Direction::kUp);
}

// Given a service that may shrink immediately, and a controller that has just started; expects it to hold for half a minute,
// because history lost in a restart is no reason to shrink; then it shrinks.
TEST(ControlLoop, ANewLeaderLooksBeforeItShrinksAnything) {
  Service service = shrinking_service(4, 0.5 * full_rate());
  service.scaling.scale_down_stabilization_s = 0;
  service.memory.history_since_s = kNow - 29;
  service.memory.recommendations = {Recommendation{kNow - 29, 1}};
  const ServicePlan held = plan_of(service);
  EXPECT_EQ(held.desired_workers(), 4);
  EXPECT_TRUE(has_reason(held, "HeldOnShortHistory"));
  service.memory.history_since_s = kNow - 31;
  EXPECT_EQ(plan_of(service).desired_workers(), 1);
}

// Given a scale-up that must wait a minute; expects a small rise to wait and a burst of twice the capacity not to; afterwards
// expects no scale-down until the window has passed.
TEST(ControlLoop, ABurstDoesNotWait) {
  const double rate = full_rate();
  Service service = running_service(2, 2.5 * rate);
  service.scaling.scale_up_stabilization_s = 60;
  ServicePlan plan = plan_of(service);
  EXPECT_EQ(plan.desired_workers(), 2);
  EXPECT_TRUE(has_reason(plan, "ScaleUpStabilising"));

  observe(service, kNow, 5 * rate);
  plan = plan_of(service);
  EXPECT_GE(plan.desired_workers(), 5);
  EXPECT_TRUE(has_reason(plan, "Burst"));
  EXPECT_EQ(plan.memory.panic_until_s, kNow + kPanicWindowS);

  Service after = shrinking_service(6, 0.5 * rate);
  after.memory.panic_until_s = kNow + 5;
  plan = plan_of(after);
  EXPECT_EQ(plan.desired_workers(), 6);
  EXPECT_TRUE(has_reason(plan, "HeldAfterBurst"));
  after.memory.panic_until_s = kNow;
  EXPECT_EQ(plan_of(after).desired_workers(), 1);
}

// Given limits of workers per minute; expects no more to start or stop within one minute, and further ones in the next.
TEST(ControlLoop, PaceIsKept) {
  const double rate = full_rate();
  Service up = running_service(1, 6 * rate);
  up.scaling.scale_up_max_per_minute = 2;
  ServicePlan plan = plan_of(up);
  EXPECT_EQ(plan.desired_workers(), 3);
  EXPECT_TRUE(has_reason(plan, "ScaleUpRateLimited"));
  up.memory = plan.memory;
  up.last_desired = 3;
  EXPECT_EQ(plan_of(up).desired_workers(), 3) << "two came within this minute";
  Snapshot later = one(up);
  later.now_s = kNow + 61;
  observe(later.services[0], later.now_s, 6 * rate);
  EXPECT_EQ(make_plan(later).services[0].desired_workers(), 5);

  Service down = shrinking_service(8, 0.5 * rate);
  down.scaling.scale_down_max_per_minute = 3;
  plan = plan_of(down);
  EXPECT_EQ(plan.desired_workers(), 5);
  EXPECT_TRUE(has_reason(plan, "ScaleDownRateLimited"));
}

// Given workers that were added less than one start ago; expects none to go. Given longer ago; expects them to go.
TEST(ControlLoop, NoScaleDownWithinAStartOfAScaleUp) {
  Service service = shrinking_service(5, 0.5 * full_rate());
  service.starts = StartTimes{90, 10};
  service.memory.last_change = Change{kNow - 89, Direction::kUp};
  ServicePlan plan = plan_of(service);
  EXPECT_EQ(plan.desired_workers(), 5);
  EXPECT_TRUE(has_reason(plan, "HeldAfterScaleUp"));
  service.memory.last_change->at_s = kNow - 90;
  EXPECT_EQ(plan_of(service).desired_workers(), 1);
}

// Given workers whose times changed a moment ago; expects none to go, and what that costs. Given two minutes later, or another
// number of GPUs; expects them to go.
TEST(ControlLoop, NoScaleDownWhileTimesDrift) {
  Service service = shrinking_service(5, 0.5 * full_rate());
  service.estimates.push_back(testing::measured(service, h100(), 1, 1, 1));
  service.estimates[0].estimate.changed_at_s = kNow - 20;
  ServicePlan plan = plan_of(service);
  EXPECT_EQ(plan.desired_workers(), 5);
  ASSERT_TRUE(has_reason(plan, "HeldOnDrift"));
  EXPECT_EQ(plan.times_known.reason, "Drifted");
  service.estimates[0].gpus_per_worker = 2;
  EXPECT_EQ(plan_of(service).desired_workers(), 1);
  service.estimates[0].gpus_per_worker = 1;
  service.estimates[0].estimate.changed_at_s = kNow - IterationEstimate::kDriftS;
  EXPECT_EQ(plan_of(service).desired_workers(), 1);
}

// Given a load that one worker less could only just serve; expects it to stay; without a tolerance, or with a load well below,
// expects it to go. Given that requests miss the objective now; expects more room.
TEST(ControlLoop, ScaleDownKeepsTheObjective) {
  const double rate = full_rate();
  Service service = shrinking_service(4, 2.85 * rate);
  service.memory.recommendations = {Recommendation{kNow - 3600, 3}};
  service.scaling.tolerance = 0.3;
  ServicePlan plan = plan_of(service);
  EXPECT_EQ(plan.desired_workers(), 4);
  EXPECT_TRUE(has_reason(plan, "HeldWithinTolerance"));
  service.scaling.tolerance = 0;
  EXPECT_EQ(plan_of(service).desired_workers(), 3);

  service = shrinking_service(4, 2.2 * rate);
  service.memory.recommendations = {Recommendation{kNow - 3600, 3}};
  EXPECT_EQ(plan_of(service).desired_workers(), 3);
  service.demand.attainment = Reading{0.8, kNow};
  plan = plan_of(service);
  EXPECT_EQ(plan.desired_workers(), 4);
  EXPECT_TRUE(has_reason(plan, "HeldOnMissedObjective"));
}

// Given workers that just became ready and have no readings; expects that they count neither as full nor as silent. Given that
// they stay silent for long; expects no scale-down, and a message.
TEST(ControlLoop, NewWorkersAreNotFull) {
  Service service = chat_service();
  service.memory.history_since_s = kNow - 3600;
  service.memory.recommendations = {Recommendation{kNow - 3600, 1}};
  service.starts = StartTimes{1, 10};
  for (int slot = 0; slot < 2; ++slot) {
    service.workers.push_back(ready_worker("h100-1", "h100", 1, slot, kNow));
    service.workers.back().running.reset();
    service.workers.back().waiting.reset();
    service.workers.back().ready_s = kNow - 1;
  }
  service.last_desired = 2;
  observe(service, kNow, 0.1);
  ServicePlan plan = plan_of(service);
  EXPECT_FALSE(has_reason(plan, "Occupied"));
  EXPECT_EQ(plan.desired_workers(), 1);
  EXPECT_EQ(plan.metrics_fresh.reason, "SignalsFresh");

  for (Worker& worker : service.workers) worker.ready_s = kNow - kReadingGraceS - 1;
  plan = plan_of(service);
  EXPECT_EQ(plan.desired_workers(), 2);
  EXPECT_TRUE(has_reason(plan, "HeldOnSilentWorkers"));
  EXPECT_EQ(plan.metrics_fresh.reason, "WorkersSilent");
}

// Given workers measured slower than their data sheet; expects fewer slots, more workers, the same --max-concurrent and a
// reason with both figures. Given measurements for another number of GPUs of that class; expects the same. Given another class,
// or invalid figures; expects the data sheet.
TEST(ControlLoop, MeasurementsReplaceTheDataSheet) {
  Service service = running_service(2, 1.8 * full_rate());
  const ServicePlan before = plan_of(service);
  service.estimates = {testing::measured(service, testing::h100(), 1, 1.3, 1.8)};
  const ServicePlan after = plan_of(service);
  EXPECT_TRUE(has_reason(after, "MeasuredTimes"));
  EXPECT_LT(after.pools[0].each.slots, before.pools[0].each.slots);
  EXPECT_EQ(after.pools[0].each.max_concurrency, before.pools[0].each.max_concurrency);
  EXPECT_GT(after.desired_workers(), before.desired_workers());
  EXPECT_LE(after.predicted.tpot_s, service.slo.tpot_s);

  WorkerEstimate other = service.estimates[0];
  other.gpus_per_worker = 2;
  service.estimates = {other};
  EXPECT_LT(plan_of(service).pools[0].each.slots, before.pools[0].each.slots);
  for (const auto& spoil : std::vector<std::function<void(WorkerEstimate&)>>{
           [](WorkerEstimate& one) { one.accelerator = "l4"; },
           [](WorkerEstimate& one) { one.estimate.samples = 0; },
           [](WorkerEstimate& one) { one.estimate.mean[0] = std::numeric_limits<double>::quiet_NaN(); },
           [](WorkerEstimate& one) { one.estimate.mean[1] = -1; },
           [](WorkerEstimate& one) { one.estimate.mean[2] = 1e9; },
           [](WorkerEstimate& one) { one.estimate.covariance[0] = -1; },
       }) {
    WorkerEstimate spoilt = other;
    spoil(spoilt);
    service.estimates = {spoilt};
    EXPECT_EQ(plan_of(service).pools, before.pools);
  }
}

// Given slots in use and a model whose value changes a little; expects them unchanged. Given a much lower value; expects them
// to follow.
TEST(ControlLoop, SlotsDoNotFlutter) {
  Service service = running_service(1, 1);
  service.demand.input_tokens = Reading{1500, kNow};
  service.demand.output_tokens = Reading{256, kNow};
  const int slots = plan_of(service).pools[0].each.slots;
  for (double nearly : {0.9, 0.95, 1.0, 1.02}) {
    service.memory.slots = {{"h100-1", static_cast<int>(slots * nearly)}};
    EXPECT_EQ(plan_of(service).pools[0].each.slots, static_cast<int>(slots * nearly));
  }
  for (double far : {0.5, 1.3}) {
    service.memory.slots = {{"h100-1", static_cast<int>(slots * far)}};
    EXPECT_EQ(plan_of(service).pools[0].each.slots, slots);
  }
}

// Given workers in each kind of trouble; expects AbleToScale to describe it with the first one's message, and the number to
// stay.
TEST(ControlLoop, EachTroubleHasItsOwnReason) {
  const std::pair<WorkerTrouble, const char*> troubles[] = {{WorkerTrouble::kUnschedulable, "WorkersUnschedulable"},
                                                            {WorkerTrouble::kImagePull, "ImagePullFailing"},
                                                            {WorkerTrouble::kCrashLoop, "WorkersCrashLooping"},
                                                            {WorkerTrouble::kOutOfMemory, "WorkersOutOfMemory"},
                                                            {WorkerTrouble::kNodeLost, "NodesLost"},
                                                            {WorkerTrouble::kFailed, "WorkersFailing"}};
  for (const auto& [trouble, reason] : troubles) {
    Service service = running_service(3, 2.5 * full_rate());
    service.workers[2].state = WorkerState::kStarting;
    service.workers[2].trouble = trouble;
    service.workers[2].trouble_message = "as the kubelet has it";
    const ServicePlan plan = plan_of(service);
    EXPECT_GE(plan.desired_workers(), 3);
    EXPECT_EQ(plan.able_to_scale.status, Truth::kFalse);
    EXPECT_EQ(plan.able_to_scale.reason, reason);
    EXPECT_THAT(plan.able_to_scale.message, HasSubstr("h100-1-2: as the kubelet has it"));
  }
}

// Given two equals, one of whose workers no node takes or a quota rejects, and too few GPUs for both; expects the other to get
// the rest: one service's trouble does not block others.
TEST(ControlLoop, WhatCannotStartKeepsNoGpusFromOthers) {
  Service stuck = running_service(1, 5 * full_rate());
  stuck.id = ServiceId{"default", "stuck", "uid-stuck"};
  stuck.priority = 10;
  Service other = running_service(1, 3.5 * full_rate());
  Snapshot snapshot = one(stuck, 6);
  snapshot.services.push_back(other);
  EXPECT_EQ(make_plan(snapshot).services[1].desired_workers(), 1) << "the higher priority takes what there is";

  Service& first = snapshot.services[0];
  first.workers.push_back(ready_worker("h100-1", "h100", 1, 1, kNow));
  first.workers[1].state = WorkerState::kUnschedulable;
  first.workers[1].created_s = kNow - 300;
  EXPECT_EQ(make_plan(snapshot).services[1].desired_workers(), 4);

  first.workers.pop_back();
  first.refused = CreationRefusal{"QuotaExceeded", "exceeded quota: gpus", kNow + 30};
  const Plan plan = make_plan(snapshot);
  EXPECT_EQ(plan.services[1].desired_workers(), 4);
  EXPECT_EQ(plan.services[0].able_to_scale.reason, "QuotaExceeded");
  EXPECT_THAT(plan.services[0].able_to_scale.message, HasSubstr("exceeded quota: gpus; next attempt in 30 s"));
  ASSERT_FALSE(plan.denied.empty());
  EXPECT_EQ(plan.denied.back().code, "QuotaExceeded");
  first.refused->until_s = kNow;
  EXPECT_EQ(make_plan(snapshot).services[1].desired_workers(), 1) << "a refusal that is over counts no more";
}

// Given too few GPUs; expects the denial to say who holds them.
TEST(ControlLoop, ADenialNamesWhoHasTheGpus) {
  Service low = running_service(1, 3.5 * full_rate());
  Service high = running_service(3, 2.8 * full_rate());
  high.id = ServiceId{"prod", "search", "uid-search"};
  high.priority = 100;
  Snapshot snapshot = one(low, 5);
  snapshot.accelerators[0].used_by_others = 1;
  snapshot.services.push_back(high);
  const Plan plan = make_plan(snapshot);
  ASSERT_EQ(plan.denied.size(), 1U);
  EXPECT_THAT(plan.denied[0].message, HasSubstr("1 granted: of 4 GPUs, prod/search (priority 100) holds 3"));
  EXPECT_THAT(plan.denied[0].message, HasSubstr("other pods use 1 more"));
}

// Given a cheaper configuration; expects no change right after another change, if its start costs more than it saves, or
// without a free GPU for the first new worker; otherwise expects the change.
TEST(ControlLoop, AChangeMustPayBackAndHaveRoom) {
  Service service = running_service(2, 1.5 * full_rate());
  service.workload.requests_per_s = 1.5 * full_rate();
  service.accelerators = {AllowedAccelerator{"h100", std::nullopt}, AllowedAccelerator{"other", std::nullopt}};
  service.memory.configuration = "h100-1";
  service.memory.configuration_since_s = kNow - 7200;
  Snapshot snapshot = one(service);
  AcceleratorSpec other = h100();
  other.name = "other";
  other.price_per_hour = 2;
  snapshot.accelerators.push_back(with_gpus(other, 8));
  ServicePlan plan = make_plan(snapshot).services[0];
  EXPECT_EQ(plan.pools[0].name, "other-1");
  EXPECT_EQ(plan.memory.configuration_since_s, kNow);

  snapshot.services[0].memory.configuration_since_s = kNow - 60;
  snapshot.services[0].starts = StartTimes{300, 10};
  plan = make_plan(snapshot).services[0];
  EXPECT_EQ(plan.pools[0].name, "h100-1");
  EXPECT_TRUE(has_reason(plan, "ChangeDoesNotPayBack"));
  bool listed = false;
  for (const Considered& considered : plan.considered) {
    if (considered.spec.accelerator != "other") continue;
    listed = true;
    EXPECT_EQ(considered.workers, 2);
    EXPECT_THAT(considered.rejected, HasSubstr("does not justify a change"));
  }
  EXPECT_TRUE(listed);

  snapshot.services[0].memory.configuration_since_s = kNow - 7200;
  snapshot.services[0].scaling.max_cost_per_hour = 9;
  plan = make_plan(snapshot).services[0];
  EXPECT_EQ(plan.pools[0].name, "h100-1");
  EXPECT_TRUE(has_reason(plan, "NoRoomForChange"));
}

// Given a cheaper configuration without signals; expects no change. Given signals that stop during a change; expects the old
// workers to stay although the new ones serve, until signals return or the spec no longer allows them.
TEST(ControlLoop, MissingSignalsHoldAChangeThatOnlySavesMoney) {
  Service service = running_service(2, 1.5 * full_rate());
  service.workload.requests_per_s = 1.5 * full_rate();
  service.accelerators = {AllowedAccelerator{"h100", std::nullopt}, AllowedAccelerator{"other", std::nullopt}};
  service.memory.configuration = "h100-1";
  service.memory.configuration_since_s = kNow - 7200;
  Snapshot snapshot = one(service);
  AcceleratorSpec other = h100();
  other.name = "other";
  other.price_per_hour = 2;
  snapshot.accelerators.push_back(with_gpus(other, 8));
  Service& seen = snapshot.services[0];
  const Demand fresh = seen.demand;
  seen.demand.queued.reset();
  ServicePlan plan = make_plan(snapshot).services[0];
  ASSERT_EQ(plan.pools.size(), 1U);
  EXPECT_EQ(plan.pools[0].name, "h100-1");
  EXPECT_TRUE(has_reason(plan, "HeldOnMissingSignals"));

  seen.demand = fresh;
  plan = make_plan(snapshot).services[0];
  ASSERT_EQ(plan.pools.size(), 2U);
  carry_out(plan, seen, kNow);
  seen.demand.queued.reset();
  plan = make_plan(snapshot).services[0];
  ASSERT_EQ(plan.pools.size(), 2U);
  EXPECT_EQ(plan.pools[1].name, "h100-1");
  EXPECT_EQ(plan.pools[1].workers, 2);

  const std::vector<AllowedAccelerator> both = std::exchange(seen.accelerators, {AllowedAccelerator{"other", std::nullopt}});
  EXPECT_EQ(make_plan(snapshot).services[0].pools.size(), 1U) << "a person took the accelerator away";
  seen.accelerators = both;
  seen.demand = fresh;
  EXPECT_EQ(make_plan(snapshot).services[0].pools.size(), 1U);
}

// Given an objective that the allowed accelerator cannot meet by its data sheet and another one can; expects the condition to
// name it, a reason for every configuration considered, and one worker to be measured.
TEST(ControlLoop, AnInfeasibleObjectiveNamesWhatWouldMeetIt) {
  Service service = chat_service();
  service.accelerators = {AllowedAccelerator{"l4", std::nullopt}};
  Snapshot snapshot = one(service);
  snapshot.accelerators.push_back(with_gpus(l4(), 8));
  const ServicePlan plan = make_plan(snapshot).services[0];
  EXPECT_EQ(plan.feasible.status, Truth::kUnknown);
  EXPECT_EQ(plan.feasible.reason, "NotMeasured");
  EXPECT_EQ(plan.desired_workers(), 1) << "it is measured before its data sheet is believed";
  EXPECT_THAT(plan.feasible.message, HasSubstr("x h100 would meet it, with "));
  ASSERT_FALSE(plan.considered.empty());
  EXPECT_EQ(plan.considered[0].spec.accelerator, "l4");
  EXPECT_THAT(plan.considered[0].rejected, HasSubstr("a token"));
}

// Given several feasible configurations; expects them sorted by cost for the demand, cheapest first, and only the losers
// rejected.
TEST(ControlLoop, ConsideredIsCheapestFirst) {
  Service service = running_service(2, 1.5 * full_rate());
  service.accelerators.clear();
  service.slo.tpot_s = 0.1;
  service.workload.requests_per_s = 10;
  Snapshot snapshot = one(service);
  snapshot.accelerators.push_back(with_gpus(a100(), 8));
  const ServicePlan plan = make_plan(snapshot).services[0];
  ASSERT_GE(plan.considered.size(), 2U);
  int taken = 0;
  for (std::size_t i = 0; i < plan.considered.size(); ++i) {
    taken += plan.considered[i].rejected.empty();
    if (i > 0 && plan.considered[i].workers > 0) {
      EXPECT_GE(plan.considered[i].cost_per_hour, plan.considered[i - 1].cost_per_hour);
    }
  }
  EXPECT_EQ(taken, 1);
}

// Given a worker whose node is gone; expects that it serves nobody and holds no GPU that others could use.
TEST(ControlLoop, WorkersOnALostNodeHoldNoGpus) {
  Service service = running_service(3, 2.8 * full_rate());
  service.workers[2].trouble = WorkerTrouble::kNodeLost;
  service.workers[2].state = WorkerState::kDraining;
  const ServicePlan plan = plan_of(service, 3);
  EXPECT_EQ(plan.desired_workers(), 3) << "the node's GPU is not in the count of three; it must not be taken off once more";
}

}  // namespace
}  // namespace windlass::planner
