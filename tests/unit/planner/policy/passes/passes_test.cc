// Tests the passes of make_plan() one by one: what each writes, and that it leaves the rest unchanged.
#include "planner/policy/passes/passes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/policy/make_plan.h"
#include "tests/unit/planner/policy/fixtures.h"
#include "tests/unit/planner/policy/one_service.h"

namespace windlass::planner {
namespace {

using testing::a100;
using testing::chat_service;
using testing::h100;
using ::testing::HasSubstr;
using testing::kNow;
using testing::observe;
using testing::one;
using testing::ready_worker;
using testing::running_service;
using testing::with_gpus;

constexpr double kOfOne = 16;  // approximate requests/s of one worker

// The draft after all passes up to this one.
FleetDraft after(const std::string& last, const Snapshot& snapshot) {
  FleetDraft fleet = draft_of(snapshot);
  for (const Pass& pass : passes()) {
    pass.run(fleet);
    if (pass.name == last) return fleet;
  }
  ADD_FAILURE() << "no pass is called " << last;
  return fleet;
}

// Runs on a100, which is no longer allowed; it moves to h100.
Service moving_service(int workers) {
  Service service = running_service(workers, 0.9 * workers * kOfOne / 2);
  for (Worker& worker : service.workers) {
    worker.pool = "a100-1";
    worker.accelerator = "a100";
  }
  service.memory.configuration = "h100-1";
  return service;
}

Snapshot two_classes(Service service, int h100s, int a100s) {
  Snapshot snapshot = one(std::move(service), h100s);
  snapshot.accelerators.push_back(with_gpus(a100(), a100s));
  return snapshot;
}

std::vector<std::string> codes_of(const Draft& draft) {
  std::vector<std::string> codes;
  for (const Reason& reason : draft.plan.reasons) codes.push_back(reason.code);
  return codes;
}

// Given fresh and missing signals; expects a view of them, and nothing chosen yet.
TEST(Passes, DemandBelievesFreshSignals) {
  Service silent = running_service(2, 20);
  silent.demand.queued.reset();
  Snapshot snapshot = one(running_service(2, 20));
  snapshot.services.push_back(silent);
  const FleetDraft fleet = after("Demand", snapshot);
  EXPECT_TRUE(fleet.services[0].view.complete);
  EXPECT_DOUBLE_EQ(fleet.services[0].view.arrivals_per_s, 20);
  EXPECT_FALSE(fleet.services[1].view.complete);
  EXPECT_FALSE(fleet.services[0].chosen);
  EXPECT_TRUE(fleet.services[0].plan.reasons.empty());
}

// Given two running workers and one draining; expects the configuration with its reason, the two as existing, and no target
// yet.
TEST(Passes, ConfigurationChoosesAndSeesWhatRuns) {
  Service service = running_service(3, 20);
  service.workers[2].state = WorkerState::kDraining;
  const Snapshot snapshot = one(service);
  const FleetDraft fleet = after("Configuration", snapshot);
  const Draft& draft = fleet.services[0];
  ASSERT_TRUE(draft.chosen);
  EXPECT_EQ(draft.chosen->pool.name, "h100-1");
  EXPECT_EQ(draft.memory.configuration, "h100-1");
  ASSERT_EQ(draft.as_is.size(), 1u);
  EXPECT_EQ(draft.as_is[0].pool.workers, 2);
  EXPECT_THAT(codes_of(draft), ::testing::Contains("WorkerConfiguration"));
  EXPECT_EQ(draft.target.allowed, 0);
}

// Given a load for three workers and a limit of two; expects both in the target, and nothing granted yet.
TEST(Passes, TargetCountsBeforeOthersAreAsked) {
  Service service = running_service(1, 2.9 * kOfOne);
  service.scaling.max_workers = 2;
  const Snapshot snapshot = one(service);
  const FleetDraft fleet = after("Target", snapshot);
  const Target& target = fleet.services[0].target;
  EXPECT_GE(target.wanted, 3);
  EXPECT_EQ(target.allowed, 2);
  EXPECT_EQ(target.limited_by, "MaxWorkers");
  EXPECT_EQ(fleet.services[0].granted, 0);
}

// Given a service whose class changed and one in advice mode; expects the old pool to retire while holding its GPUs, and the
// other service to keep its own.
TEST(Passes, ChangeKeepsOldPoolsUntilNewOnesServe) {
  Service advised = running_service(2, 20);
  advised.id.name = "advised";
  advised.scaling.mode = Mode::kRecommend;
  Snapshot snapshot = two_classes(moving_service(2), 8, 8);
  snapshot.services.push_back(advised);
  const FleetDraft before = after("Target", snapshot), fleet = after("Change", snapshot);
  const Draft& draft = fleet.services[0];
  ASSERT_EQ(draft.retiring.size(), 1u);
  EXPECT_EQ(draft.retiring[0].pool.name, "a100-1");
  EXPECT_EQ(before.free_gpus.at("a100") - fleet.free_gpus.at("a100"), draft.retiring[0].pool.workers);
  EXPECT_THAT(codes_of(draft), ::testing::Contains("ConfigurationChange"));
  EXPECT_TRUE(fleet.services[1].retiring.empty());
  EXPECT_EQ(before.free_gpus.at("h100") - fleet.free_gpus.at("h100"), 2);
}

// Given two services that want more than the capacity; expects grants that use exactly the existing GPUs.
TEST(Passes, ArbitrationSharesWhatThereIs) {
  Service other = running_service(1, 3.5 * kOfOne);
  other.id.name = "other";
  Snapshot snapshot = one(running_service(1, 3.5 * kOfOne), 5);
  snapshot.services.push_back(other);
  const FleetDraft fleet = after("Arbitration", snapshot);
  EXPECT_EQ(fleet.services[0].granted + fleet.services[1].granted, 5);
  EXPECT_GE(std::min(fleet.services[0].granted, fleet.services[1].granted), 1);
  EXPECT_EQ(fleet.free_gpus.at("h100"), 0);
  EXPECT_TRUE(fleet.services[0].plan.pools.empty());
}

// Given a full class and a second one with room; expects workers there with the reason, and their GPUs taken.
TEST(Passes, SecondClassMakesUpForAFullOne) {
  Service service = running_service(2, 3.5 * kOfOne);
  service.scaling.strategy = Family::kAuto;
  service.accelerators.push_back({"a100", std::nullopt});
  service.memory.configuration = "h100-1";
  Snapshot snapshot = two_classes(service, 2, 8);
  snapshot.accelerators[1].spec.price_per_hour = 4;
  const FleetDraft before = after("Arbitration", snapshot), fleet = after("SecondClass", snapshot);
  EXPECT_TRUE(before.services[0].retiring.empty());
  ASSERT_EQ(fleet.services[0].retiring.size(), 1u);
  const Pool& pool = fleet.services[0].retiring[0].pool;
  EXPECT_EQ(pool.spec.accelerator, "a100");
  EXPECT_EQ(before.free_gpus.at("a100") - fleet.free_gpus.at("a100"), pool.workers * pool.spec.gpus());
  EXPECT_THAT(codes_of(fleet.services[0]), ::testing::Contains("SecondClass"));
}

// Given mode Recommend; expects what it would be granted, with no GPU taken; its pools stay, and the rest is advice.
TEST(Passes, AdviceTakesNothing) {
  Service service = running_service(1, 2.9 * kOfOne);
  service.scaling.mode = Mode::kRecommend;
  const Snapshot snapshot = one(service);
  const FleetDraft before = after("SecondClass", snapshot), advised = after("Advice", snapshot);
  EXPECT_EQ(before.services[0].granted, 0);
  EXPECT_GE(advised.services[0].granted, 3);
  EXPECT_EQ(before.free_gpus, advised.free_gpus);
  const FleetDraft written = after("Pools", snapshot);
  ASSERT_EQ(written.services[0].plan.pools.size(), 1u);
  EXPECT_EQ(written.services[0].plan.pools[0].workers, 1);
  EXPECT_EQ(written.services[0].plan.recommended_pools[0].workers, advised.services[0].granted);
}

// Given a plan; expects its pools with the granted workers, their slots in the memory, and no predictions yet.
TEST(Passes, PoolsAreWrittenWithTheirMemory) {
  const Snapshot snapshot = one(running_service(1, 2.9 * kOfOne));
  const FleetDraft fleet = after("Pools", snapshot);
  const Draft& draft = fleet.services[0];
  ASSERT_EQ(draft.plan.pools.size(), 1u);
  EXPECT_EQ(draft.plan.pools[0].workers, draft.granted);
  ASSERT_EQ(draft.plan.memory.slots.size(), 1u);
  EXPECT_EQ(draft.plan.memory.slots[0].slots, draft.plan.pools[0].each.slots);
  EXPECT_EQ(draft.plan.memory.desired, draft.granted);
  EXPECT_EQ(draft.plan.predicted.gpus, 0);
}

// Given workers that were measured; expects narrower intervals than by the data sheet, and the plan to say so.
TEST(Passes, MeasurementsNarrowThePrediction) {
  Service service = running_service(3, 2.9 * kOfOne);
  const Predicted by_sheet = after("Prediction", one(service)).services[0].plan.predicted;
  service.estimates.push_back(testing::measured(service, h100(), 1, 1, 1));
  service.estimates[0].estimate.largest_batch = kMaxBatch;
  const Predicted measured = after("Prediction", one(service)).services[0].plan.predicted;
  const auto width = [](const Predicted& of, double PredictedEnd::*end) { return of.high.*end / of.low.*end; };
  EXPECT_LT(width(measured, &PredictedEnd::tpot_s), width(by_sheet, &PredictedEnd::tpot_s));
  EXPECT_LT(width(measured, &PredictedEnd::requests_per_s), width(by_sheet, &PredictedEnd::requests_per_s));
  EXPECT_EQ(measured.from, Provenance::kMeasured);
}

// Given a plan; expects predictions with intervals for its pools, and the chosen configuration among those compared, with the
// workers it needs.
TEST(Passes, PredictionIsOfThePools) {
  const Snapshot snapshot = one(running_service(3, 2.9 * kOfOne));
  const FleetDraft fleet = after("Prediction", snapshot);
  const ServicePlan& plan = fleet.services[0].plan;
  const Pool& pool = plan.pools.at(0);
  EXPECT_EQ(plan.predicted.gpus, pool.workers);
  EXPECT_DOUBLE_EQ(plan.predicted.requests_per_s, pool.workers * pool.each.requests_per_s);
  // Within the objective: less than with full batches, and enough for the load that these workers were planned for.
  EXPECT_LT(pool.each.requests_per_s, pool.each.slots * pool.each.service_rate_per_s);
  const Predicted& of = plan.predicted;
  EXPECT_EQ(of.from, Provenance::kDataSheet);
  EXPECT_TRUE(of.low.ttft_s < of.ttft_s && of.ttft_s < of.high.ttft_s);
  EXPECT_TRUE(of.low.tpot_s < of.tpot_s && of.tpot_s < of.high.tpot_s);
  EXPECT_TRUE(of.low.requests_per_s < of.requests_per_s && of.requests_per_s < of.high.requests_per_s);
  EXPECT_GE(plan.predicted.requests_per_s, 2.9 * kOfOne);
  EXPECT_DOUBLE_EQ(plan.predicted.cost_per_hour, pool.workers * h100().price_per_hour);
  ASSERT_FALSE(plan.considered.empty());
  EXPECT_TRUE(plan.considered[0].rejected.empty());
  EXPECT_GE(plan.considered[0].workers, 3);
  EXPECT_TRUE(plan.able_to_scale.reason.empty());
}

// Given missing signals and a missed objective; expects the conditions to say so.
TEST(Passes, ConditionsSayWhatIsSeen) {
  Service missed = running_service(3, 2.9 * kOfOne);
  missed.demand.attainment = Reading{0.5, kNow};
  Service silent = running_service(2, 20);
  silent.demand.arrivals_per_s.reset();
  Snapshot snapshot = one(missed);
  snapshot.services.push_back(silent);
  const FleetDraft fleet = after("Conditions", snapshot);
  EXPECT_EQ(fleet.services[0].plan.metrics_fresh.status, Truth::kTrue);
  EXPECT_EQ(fleet.services[0].plan.slo_met.reason, "Missed");
  EXPECT_EQ(fleet.services[1].plan.metrics_fresh.status, Truth::kFalse);
  EXPECT_EQ(fleet.services[1].plan.slo_met.status, Truth::kUnknown);
}

// Given workers of which nothing, something and everything was measured, and ones whose times have just changed; expects
// TimesKnown to say so, and what would help.
TEST(Passes, TimesKnownNamesWhatWasMeasured) {
  const auto hint = [](std::optional<WorkerEstimate> known) {
    Service service = running_service(3, 2.9 * kOfOne);
    if (known) service.estimates.push_back(*known);
    return after("Conditions", one(service)).services[0].plan.times_known;
  };
  const Hint sheet = hint(std::nullopt);
  EXPECT_EQ(sheet.status, Truth::kFalse);
  EXPECT_EQ(sheet.reason, "DataSheet");
  EXPECT_THAT(sheet.message, HasSubstr("PerformanceProfile"));
  WorkerEstimate known = testing::measured(running_service(1, 1), h100(), 1, 1, 1);
  known.from_profile = true;
  known.estimate.decode_count = 0;
  EXPECT_EQ(hint(known).reason, "Profiled");
  known.estimate.decode_count = 100;
  EXPECT_EQ(hint(known).status, Truth::kTrue);
  EXPECT_EQ(hint(known).reason, "Measured");
  known.gpus_per_worker = 2;
  EXPECT_EQ(hint(known).reason, "OtherWorkers");
  known.gpus_per_worker = 1;
  known.estimate.changed_at_s = kNow - 10;
  EXPECT_EQ(hint(known).reason, "Drifted");
  EXPECT_EQ(hint(known).status, Truth::kFalse);
  known.estimate.changed_at_s = kNow - IterationEstimate::kDriftS;
  EXPECT_EQ(hint(known).reason, "Measured");
  known.from_profile = false;
  known.estimate.samples = 3;
  EXPECT_EQ(hint(known).reason, "Measuring");
}

// Given workers at the data sheet's times; expects the plan to say how many more would be needed if they are slower, and for
// how much. Given measured ones, or as many workers as that already; expects nothing.
TEST(Passes, PlansSayWhatBeingSureWouldTake) {
  const auto reasons = [](int workers, bool measured) {
    Service service = running_service(workers, 2.4 * kOfOne);
    service.scaling.min_workers = workers;
    if (measured) service.estimates.push_back(testing::measured(service, h100(), 1, 1, 1));
    return after("Prediction", one(service)).services[0].plan.reasons;
  };
  const auto unsure = [](const std::vector<Reason>& all) {
    return std::find_if(all.begin(), all.end(), [](const Reason& reason) { return reason.code == "UnsureTimes"; });
  };
  const std::vector<Reason> by_sheet = reasons(2, false);
  const auto found = unsure(by_sheet);
  ASSERT_NE(found, by_sheet.end());
  EXPECT_EQ(found->inputs.at("workers"), "3");
  EXPECT_THAT(found->message, HasSubstr("more per hour"));
  const std::vector<Reason> sure = reasons(2, true), enough = reasons(6, false);
  EXPECT_EQ(unsure(sure), sure.end());
  EXPECT_EQ(unsure(enough), enough.end());
}

// Given too few GPUs; expects the denial to name the service that holds them, and the same plan as make_plan().
TEST(Passes, DenialsNameWhoHasTheGpus) {
  Service other = running_service(2, 1.9 * kOfOne);
  other.id.name = "other";
  other.priority = 5;
  Snapshot snapshot = one(running_service(1, 2.9 * kOfOne), 3);
  snapshot.services.push_back(other);
  const FleetDraft fleet = after("Denials", snapshot);
  ASSERT_EQ(fleet.denied.size(), 1u);
  EXPECT_EQ(fleet.denied[0].code, "InsufficientCapacity");
  EXPECT_THAT(fleet.denied[0].message, HasSubstr("default/other (priority 5) holds 2"));
  EXPECT_EQ(make_plan(snapshot).denied, fleet.denied);
}

// Given a plan whose class changes; expects each reason to name the pass that decided it.
TEST(Passes, ReasonsNameTheirPass) {
  const Plan plan = make_plan(two_classes(moving_service(2), 8, 8));
  std::map<std::string, std::string> pass_of;
  for (const Reason& reason : plan.services[0].reasons) pass_of[reason.code] = reason.pass;
  EXPECT_EQ(pass_of["WorkerConfiguration"], "Configuration");
  EXPECT_EQ(pass_of["ConfigurationChange"], "Change");
  EXPECT_EQ(pass_of["Demand"], "Target");
  for (const auto& [code, pass] : pass_of) EXPECT_FALSE(pass.empty()) << code;
}

}  // namespace
}  // namespace windlass::planner
