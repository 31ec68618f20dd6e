// Tests measured times against the data sheet: slots, the number of workers, configurations, and the messages.
#include <cmath>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/policy/make_plan.h"
#include "planner/policy/tuning.h"
#include "planner/sizing/worker_config.h"
#include "tests/unit/planner/policy/one_service.h"

namespace windlass::planner {
namespace {

using testing::chat_service;
using testing::h100;
using ::testing::HasSubstr;
using testing::kNow;
using testing::measured;
using testing::one;
using testing::running_service;

ServicePlan plan_of(const Service& service, double now_s = kNow) {
  Snapshot snapshot = one(service);
  snapshot.now_s = now_s;
  return make_plan(snapshot).services[0];
}

const Reason* reason_of(const ServicePlan& plan, const std::string& code) {
  for (const Reason& reason : plan.reasons) {
    if (reason.code == code) return &reason;
  }
  return nullptr;
}

// A service whose workers were measured at `times` their data sheet at small batches, with uncertainty beyond.
Service measured_service(double times, double spread, double queued) {
  Service service = running_service(2, 10, queued);
  service.slo.tpot_s = 0.02;
  service.estimates = {measured(service, h100(), 1, times, times)};
  IterationEstimate& estimate = service.estimates[0].estimate;
  for (double& one : estimate.covariance) one *= spread * spread;
  return service;
}

// Given the same mean times with low and high uncertainty; expects fewer slots with high uncertainty, but at least one.
TEST(MeasuredTimes, SlotsKeepTheUpperBoundInside) {
  const int sure = plan_of(measured_service(2, 1, 0)).pools[0].each.slots;
  const int unsure = plan_of(measured_service(2, 10, 0)).pools[0].each.slots;
  const int hardly = plan_of(measured_service(2, 100, 0)).pools[0].each.slots;
  EXPECT_GT(sure, unsure);
  EXPECT_GT(unsure, hardly);
  EXPECT_GE(hardly, 1);
}

// Given workers whose slots are in use, waiting requests, and uncertain times for larger batches; expects one more slot every
// five seconds as long as the mean meets the objective. Without waiting requests; expects the explored slots to stay. With a
// tighter objective; expects fewer slots immediately.
TEST(MeasuredTimes, SlotsAreExploredWhileRequestsWait) {
  Service service = measured_service(2, 30, 50);
  ServicePlan plan = plan_of(service);
  const int first = plan.pools[0].each.slots;
  const int mean = plan_of(measured_service(2, 0.01, 0)).pools[0].each.slots;
  ASSERT_LT(first + 5, mean);
  double now_s = kNow;
  for (int step = 1; step <= 5; ++step) {
    service.memory = plan.memory;
    service.estimates[0].estimate.largest_batch = plan.pools[0].each.slots;
    now_s += 2;
    testing::observe(service, now_s, 10, 50);
    EXPECT_EQ(plan_of(service, now_s).pools[0].each.slots, plan.pools[0].each.slots) << "not measured there yet";
    now_s += 3;
    testing::observe(service, now_s, 10, 50);
    plan = plan_of(service, now_s);
    EXPECT_EQ(plan.pools[0].each.slots, first + step);
  }
  service.memory = plan.memory;
  service.estimates[0].estimate.largest_batch = 1;
  testing::observe(service, now_s + 10, 10, 50);
  EXPECT_EQ(plan_of(service, now_s + 10).pools[0].each.slots, first + 5) << "the present ones were not in use";
  testing::observe(service, now_s + 10, 10, 0);
  EXPECT_EQ(plan_of(service, now_s + 10).pools[0].each.slots, first + 5);
  service.memory.slots[0].slots = first + 20;
  service.slo.tpot_s = 0.0168;
  EXPECT_LT(plan_of(service, now_s + 10).pools[0].each.slots, first + 10);
}

// A steady service: nothing waits, no worker was added, and there are enough workers by the model.
Service steady(int workers, double attainment, double judged, double in_each) {
  Service service = running_service(workers, 5);
  for (Worker& worker : service.workers) {
    worker.running = Reading{in_each, kNow};
    worker.waiting = Reading{0, kNow};
  }
  service.demand.attainment = Reading{attainment, kNow};
  service.demand.recent_attainment = Reading{attainment, kNow};
  service.demand.recently_judged = judged;
  return service;
}

// Given requests that miss the objective while everything else is in order; expects more workers by the share that missed, with
// a reason; as many for such demand for an hour and no longer, and fewer for less demand.
TEST(MeasuredTimes, MissesAddWorkersWhateverTheModelSays) {
  Service service = steady(4, 0.5, 300, 10);
  ASSERT_EQ(plan_of(steady(4, 0.97, 300, 10)).desired_workers(), 4);
  ServicePlan plan = plan_of(service);
  EXPECT_EQ(plan.desired_workers(), 6);
  ASSERT_NE(reason_of(plan, "Shortfall"), nullptr);
  EXPECT_THAT(reason_of(plan, "Shortfall")->message, HasSubstr("with fewer than 6 workers, requests missed the objective"));
  const auto later = [&](double after_s, double arrivals_per_s) {
    Service again = running_service(6, arrivals_per_s);
    again.memory.shortfall = plan.memory.shortfall;
    again.memory.recommendations = {Recommendation{kNow - 3600, 1}};
    again.memory.history_since_s = kNow - 3600;
    Snapshot snapshot = one(again);
    testing::observe(snapshot.services[0], kNow + after_s, arrivals_per_s, 0);
    for (Worker& worker : snapshot.services[0].workers) worker.running = worker.waiting = Reading{0, kNow + after_s};
    snapshot.now_s = kNow + after_s;
    const ServicePlan decided = make_plan(snapshot).services[0];
    const Reason* reason = reason_of(decided, "Shortfall");
    return reason == nullptr ? 0 : std::stoi(reason->inputs.at("workers"));
  };
  EXPECT_EQ(later(1800, 5), 6);
  EXPECT_EQ(later(1800, 2.5), 3);
  EXPECT_EQ(later(kShortfallMemoryS + 1, 5), 0);
}

// Given misses that chance explains, misses while requests wait, misses right after workers were added (also if one was removed
// since), and misses with as many workers as requests; expects no additional worker.
TEST(MeasuredTimes, OtherMissesAddNoWorkers) {
  EXPECT_EQ(plan_of(steady(4, 0.9, 10, 10)).desired_workers(), 4);
  Service waiting = steady(4, 0.5, 300, 10);
  waiting.memory.queue_until_s = kNow - 60;
  EXPECT_EQ(plan_of(waiting).desired_workers(), 4);
  Service added = steady(4, 0.5, 300, 10);
  added.memory.last_change = Change{kNow - 60, Direction::kUp};
  EXPECT_EQ(plan_of(added).desired_workers(), 4);
  added.memory.last_change = Change{kNow - 5, Direction::kDown};
  added.memory.earlier_up_s = kNow - 60;
  EXPECT_EQ(plan_of(added).desired_workers(), 4);
  const ServicePlan alone = plan_of(steady(4, 0.5, 300, 1));
  EXPECT_EQ(alone.desired_workers(), 4);
  EXPECT_NE(reason_of(alone, "MissedAlone"), nullptr);
}

// Given workers that have served for seconds without measurements, and a burst; expects at most four times as many until they
// are measured.
TEST(MeasuredTimes, SecondsOfMeasurementAreCheaperThanWorkers) {
  Service service = running_service(2, 200, 500);
  for (Worker& worker : service.workers) worker.ready_s = kNow - 10;
  const ServicePlan plan = plan_of(service);
  EXPECT_EQ(plan.desired_workers(), 8);
  EXPECT_NE(reason_of(plan, "NotMeasuredYet"), nullptr);
  service.estimates = {measured(service, h100(), 1, 1, 1)};
  EXPECT_GT(plan_of(service).desired_workers(), 8);
  service.estimates.clear();
  for (Worker& worker : service.workers) worker.ready_s = kNow - 60;
  EXPECT_GT(plan_of(service).desired_workers(), 8) << "it is not waited for for ever";
}

// Given workers at twice and at a fifth of their data sheet's times; expects both figures, and the data-sheet values that would
// fit. Given a difference within a third; expects no message.
TEST(MeasuredTimes, SuggestsDataSheetValues) {
  for (const double times : {2.0, 0.2}) {
    Service service = running_service(2, 10);
    service.estimates = {measured(service, h100(), 1, times, times)};
    service.estimates[0].estimate.seen_batch = 12;
    service.estimates[0].estimate.decode_count = 212;
    const ServicePlan plan = plan_of(service);
    ASSERT_NE(reason_of(plan, "MeasuredTimes"), nullptr);
    EXPECT_THAT(reason_of(plan, "MeasuredTimes")->message, HasSubstr("at batch 12 (measured, 212 iterations), "));
    const Reason* off = reason_of(plan, "DataSheetOff");
    ASSERT_NE(off, nullptr) << times;
    EXPECT_NEAR(std::stod(off->inputs.at("memoryBandwidthBytesPerS")), 3.35e12 / times, 0.05 * 3.35e12 / times);
    EXPECT_NEAR(std::stod(off->inputs.at("peakFlopsPerS")), 989e12 / times, 0.05 * 989e12 / times);
  }
  Service service = running_service(2, 10);
  service.estimates = {measured(service, h100(), 1, 1.2, 0.8)};
  EXPECT_EQ(reason_of(plan_of(service), "DataSheetOff"), nullptr);
}

// Given an engine that reserves room for the longest context of each request; expects --max-concurrent from that, otherwise
// from the assumed lengths, whatever was measured.
TEST(MeasuredTimes, TheBatchLimitDependsOnMemoryOnly) {
  Service service = chat_service();
  service.max_context_tokens = 8192;
  service.max_gpus_per_worker = 1;
  const int by_length = plan_of(service).pools[0].each.max_concurrency;
  EXPECT_EQ(by_length, kMaxBatch);
  service.reserves_context = true;
  const ServicePlan plan = plan_of(service);
  EXPECT_EQ(plan.pools[0].each.max_concurrency, static_cast<int>(plan.pools[0].each.kv_cache_tokens / 8192));
  service.estimates = {measured(service, h100(), 1, 3, 3)};
  EXPECT_EQ(plan_of(service).pools[0].each.max_concurrency, plan.pools[0].each.max_concurrency);
}

// Given an objective that cannot be met according to the data sheet only, and then measurements of the one worker that was
// started; expects it to be kept and to serve a few requests at a time, and the condition to say so.
TEST(MeasuredTimes, WhatCannotBeMetIsMeasuredFirst) {
  Service service = chat_service();
  service.slo.tpot_s = 0.004;
  service.max_gpus_per_worker = 1;
  const ServicePlan first = plan_of(service);
  EXPECT_EQ(first.feasible.reason, "NotMeasured");
  EXPECT_EQ(first.desired_workers(), 1);
  Service running = running_service(1, 1);
  running.slo.tpot_s = 0.004;
  running.max_gpus_per_worker = 1;
  running.estimates = {measured(running, h100(), 1, 1.5, 1.5)};
  const ServicePlan measured_too = plan_of(running);
  EXPECT_EQ(measured_too.feasible.status, Truth::kFalse);
  EXPECT_EQ(measured_too.feasible.reason, "TpotTooTight");
  ASSERT_EQ(measured_too.pools.size(), 1U);
  EXPECT_GE(measured_too.pools[0].workers, 1);
  running.estimates = {measured(running, h100(), 1, 0.3, 0.3)};
  EXPECT_EQ(plan_of(running).feasible.status, Truth::kTrue);
}

}  // namespace
}  // namespace windlass::planner
