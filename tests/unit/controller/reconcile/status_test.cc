// The content of a status, and when it is worth writing.
#include "controller/reconcile/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/policy/json.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::controller {
namespace {

using testing::HasSubstr;

Worker worker(const std::string& name, bool ready, bool draining = false) {
  Worker w;
  w.name = name;
  w.gpus = 2;
  w.ready = ready;
  if (draining) w.draining_since_s = 1;
  return w;
}

planner::ServicePlan plan(int workers) {
  planner::ServicePlan p;
  planner::Pool pool;
  pool.name = "h100-2";
  pool.workers = workers;
  p.pools = {pool};
  return p;
}

// Given: one ready, one starting and one draining worker, three wanted. Expected: separate counts, and Ready shows the
// progress.
TEST(Status, CountsWorkersByState) {
  api::ModelService service;
  const auto status = status_of(service, {}, {worker("a", true), worker("b", false), worker("c", true, true)}, plan(3), nullptr,
                                "2026-05-01T10:00:00Z");
  EXPECT_EQ(status.workers.desired, 3);
  EXPECT_EQ(status.workers.current, 3);
  EXPECT_EQ(status.workers.ready, 1);
  EXPECT_EQ(status.workers.starting, 1);
  EXPECT_EQ(status.workers.draining, 1);
  EXPECT_EQ(status.gpus, 6);
  const api::Condition* ready = api::find_condition(status.conditions, api::kReady);
  ASSERT_NE(ready, nullptr);
  EXPECT_EQ(ready->status, api::ConditionStatus::kTrue);
  EXPECT_THAT(ready->message, HasSubstr("1 of 3"));
}

// Given: a plan with the strategies' answers and the offer that runs. Expected: both in the status, the offer as a text from
// which the next leader reads the same offer; neither if there is none.
TEST(Status, HoldsTheOfferForTheNextLeader) {
  planner::ServicePlan offered = plan(3);
  offered.strategies = {{"vidur", "3 x h100-2", 24, "none is cheaper"}, {"mix", "", 0, "no time left"}};
  offered.memory.offer = planner::testing::whole_offer({{"h100", 2, 16.25, 3, 1.5, 0.7}, {"a100", 1, 8, 2, 1, 0.3}});
  const auto status = status_of({}, {}, {}, offered, nullptr, "2026-05-01T10:00:00Z");
  ASSERT_EQ(status.plan.strategies.size(), 2U);
  EXPECT_EQ(status.plan.strategies[0], (api::StrategyStatus{"vidur", "3 x h100-2", 24, "none is cheaper"}));
  EXPECT_EQ(status.plan.strategies[1], (api::StrategyStatus{"mix", "", std::nullopt, "no time left"}));
  const auto read = planner::offer_from_json(status.plan.offer);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, *offered.memory.offer);
  EXPECT_EQ(status_of({}, {}, {}, plan(3), nullptr, "2026-05-01T10:00:00Z").plan.offer, "");
}

// Given: a quota that refused a worker. Expected: AbleToScale is False with its reason and the server's message.
TEST(Status, AQuotasRefusalIsACondition) {
  ServiceMemory memory;
  memory.create_backoff = Backoff{10, 1, "QuotaExceeded", "exceeded quota: gpus"};
  const auto status = status_of({}, {}, {}, plan(1), &memory, "2026-05-01T10:00:00Z");
  const api::Condition* able = api::find_condition(status.conditions, api::kAbleToScale);
  ASSERT_NE(able, nullptr);
  EXPECT_EQ(able->status, api::ConditionStatus::kFalse);
  EXPECT_EQ(able->reason, "QuotaExceeded");
  EXPECT_THAT(able->message, HasSubstr("exceeded quota: gpus"));
}

// Given: one ready worker, two in a crash loop and one whose image cannot be pulled. Expected: Ready stays True and counts the
// troubles; without the ready worker it is False with the trouble's name as its reason.
TEST(Status, ReadyCountsTheTroubles) {
  std::vector<Worker> workers = {worker("a", true), worker("b", false), worker("c", false), worker("d", false)};
  workers[1].trouble = workers[2].trouble = planner::WorkerTrouble::kCrashLoop;
  workers[1].message = "CrashLoopBackOff: exit code 1";
  workers[3].trouble = planner::WorkerTrouble::kImagePull;
  const auto ready = [&] {
    const auto status = status_of({}, {}, workers, plan(4), nullptr, "2026-05-01T10:00:00Z");
    return *api::find_condition(status.conditions, api::kReady);
  };
  EXPECT_EQ(ready().status, api::ConditionStatus::kTrue);
  EXPECT_EQ(ready().message, "1 of 4 workers ready; 2 CrashLoop, 1 ImagePull: b: CrashLoopBackOff: exit code 1");
  workers.erase(workers.begin());
  EXPECT_EQ(ready().status, api::ConditionStatus::kFalse);
  EXPECT_EQ(ready().reason, "CrashLoop");
  workers = {worker("e", false)};
  workers[0].gated = true;
  workers[0].message = "SchedulingGated";
  EXPECT_EQ(ready().status, api::ConditionStatus::kFalse);
  EXPECT_EQ(ready().reason, "SchedulingGated");
  workers.clear();
  EXPECT_EQ(ready().reason, "WorkersStarting");
}

// Given: a service that wants no worker and has none. Expected: Ready, so that `kubectl wait` and Flux end: the next request
// starts a worker.
TEST(Status, ScaledToZeroIsReady) {
  const auto status = status_of({}, {}, {}, plan(0), nullptr, "2026-05-01T10:00:00Z");
  const api::Condition* ready = api::find_condition(status.conditions, api::kReady);
  ASSERT_NE(ready, nullptr);
  EXPECT_EQ(ready->status, api::ConditionStatus::kTrue);
  EXPECT_EQ(ready->reason, "ScaledToZero");
}

// Given: a condition that says an object cannot be read, and that object now readable. Expected: the condition is corrected,
// with its time; if there was none, none is added.
TEST(Status, AReadableObjectsConditionIsCorrected) {
  const api::Condition broken = unreadable_condition(
      {"AcceleratorClass", "", "h100", "u", 3, "spec.memory: must be a string (got 5)"}, "2026-05-01T10:00:00Z");
  EXPECT_THAT(broken.message, HasSubstr("spec.memory"));
  std::vector<api::Condition> conditions = {broken};
  mark_readable(conditions, 4, "2026-05-01T11:00:00Z");
  EXPECT_EQ(conditions[0].status, api::ConditionStatus::kTrue);
  EXPECT_EQ(conditions[0].last_transition_time, "2026-05-01T11:00:00Z");
  EXPECT_EQ(conditions[0].observed_generation, 4);
  conditions.clear();
  mark_readable(conditions, 4, "2026-05-01T11:00:00Z");
  EXPECT_TRUE(conditions.empty());
}

// Given: statuses that differ only in load and messages, and one that differs in workers. Expected: only the latter counts.
TEST(Status, LoadAloneIsNotAMeaningfulChange) {
  api::ModelServiceStatus a;
  a.workers.desired = 2;
  api::ModelServiceStatus b = a;
  b.load.requests_per_s = 7;
  b.slo.attainment = 0.5;
  EXPECT_FALSE(meaningfully_different(a, b));
  b.workers.desired = 3;
  EXPECT_TRUE(meaningfully_different(a, b));
}

// Given: a service whose name an older one holds. Expected: Ready=False/NameTaken with both names.
TEST(Status, NameTakenNamesTheHolder) {
  api::ModelService service;
  service.metadata.name = "copy";
  service.spec.model.served_name = "chat";
  const auto status = name_taken_status(service, "team/original", "2026-05-01T10:00:00Z");
  const api::Condition* ready = api::find_condition(status.conditions, api::kReady);
  ASSERT_NE(ready, nullptr);
  EXPECT_EQ(ready->reason, "NameTaken");
  EXPECT_THAT(ready->message, testing::AllOf(HasSubstr("chat"), HasSubstr("team/original")));
}

}  // namespace
}  // namespace windlass::controller
