// Tests the edits of `windlass plan --what-if` on snapshots.
#include "planner/whatif/snapshot_edits.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/policy/make_plan.h"
#include "tests/says.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

using testing::a100;
using testing::chat_service;
using testing::h100;
using testing::ready_worker;
using testing::with_gpus;

// Two services, of which one is observed, and two classes.
Snapshot two_services() {
  Snapshot snapshot;
  snapshot.now_s = 10'000;
  snapshot.accelerators = {with_gpus(h100(), 64), with_gpus(a100(), 8)};
  Service chat = chat_service();
  chat.id = {"team", "chat", "1"};
  chat.workload.requests_per_s = 3;
  Service code = chat;
  code.id = {"team", "code", "2"};
  code.demand.arrivals_per_s = Reading{40, snapshot.now_s};
  code.demand.queued = Reading{0, snapshot.now_s};
  snapshot.services = {chat, code};
  return snapshot;
}

EditedSnapshot after(const std::string& text, const Snapshot& snapshot = two_services()) {
  auto made = edited(snapshot, text);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return made.ok() ? std::move(made).value() : EditedSnapshot{};
}

// Given a factor for the rate; expects it of the assumed rate, and of the observed one where there is one.
TEST(SnapshotEdits, RatesMayBeFactors) {
  const EditedSnapshot made = after("rate=2x");
  EXPECT_EQ(made.snapshot.services[0].workload.requests_per_s, 6);
  EXPECT_FALSE(made.snapshot.services[0].demand.arrivals_per_s.has_value());
  EXPECT_EQ(made.snapshot.services[1].demand.arrivals_per_s->value, 80);
  EXPECT_EQ(made.edits, (std::vector<SnapshotEdit>{{"team/chat", "rate", "3", "6"}, {"team/code", "rate", "40", "80"}}));
}

// Given every key with spaces around; expects every value, and the old and new ones as text.
TEST(SnapshotEdits, EveryKeyHasItsField) {
  const EditedSnapshot made = after(
      "rate=7, inputTokens=100, outputTokens = 0.5x,slo.ttft=300ms,slo.tpot=20ms,slo.percentile=99,minWorkers=2,maxWorkers=5,"
      "maxCostPerHour=9.5");
  for (const Service& service : made.snapshot.services) {
    EXPECT_EQ(service.workload.requests_per_s, 7);
    EXPECT_EQ(service.workload.input_tokens, 100);
    EXPECT_EQ(service.workload.output_tokens, two_services().services[0].workload.output_tokens / 2);
    EXPECT_EQ(service.slo.ttft_s, 0.3);
    EXPECT_EQ(service.slo.tpot_s, 0.02);
    EXPECT_EQ(service.slo.percentile, 99);
    EXPECT_EQ(service.scaling.min_workers, 2);
    EXPECT_EQ(service.scaling.max_workers, 5);
    EXPECT_EQ(service.scaling.max_cost_per_hour, 9.5);
  }
  EXPECT_EQ(made.edits.size(), 18u);
  EXPECT_EQ(after("maxWorkers=none,maxCostPerHour=none", made.snapshot).snapshot.services[0].scaling.max_workers, std::nullopt);
}

// Given a key with a service's name, with and without its namespace; expects an edit of that service alone.
TEST(SnapshotEdits, OneServiceMayBeNamed) {
  for (const char* name : {"code", "team/code"}) {
    const EditedSnapshot made = after(std::string(name) + ":slo.ttft=100ms");
    EXPECT_EQ(made.snapshot.services[0], two_services().services[0]);
    EXPECT_EQ(made.snapshot.services[1].slo.ttft_s, 0.1);
  }
}

// Given a unique part of a class's name in any case; expects its price and its available GPUs to change, whatever others use.
TEST(SnapshotEdits, ClassesAreFoundByAPart) {
  Snapshot snapshot = two_services();
  snapshot.accelerators[0].used_by_others = 10;
  const EditedSnapshot made = after("price.H10=9,gpus.h100=4,price.a100=0.5x", snapshot);
  EXPECT_EQ(made.snapshot.accelerators[0].spec.price_per_hour, 9);
  EXPECT_EQ(made.snapshot.accelerators[0].allocatable_gpus, 14);
  EXPECT_EQ(made.snapshot.accelerators[1].spec.price_per_hour, snapshot.accelerators[1].spec.price_per_hour / 2);
  EXPECT_EQ(made.edits[1], (SnapshotEdit{"h100", "gpus", "54", "4"}));
  AcceleratorState& elastic = snapshot.accelerators[1];
  elastic.mode = CapacityMode::kElastic;
  elastic.max_gpus = 100;
  EXPECT_EQ(after("gpus.a100=2", snapshot).snapshot.accelerators[1].max_gpus, 2);
}

// Given a service that has run for long under a load, and half of that load; expects fewer workers at once, as if the load had
// been so for long.
TEST(SnapshotEdits, ALowerRateIsSettled) {
  Snapshot snapshot;
  snapshot.now_s = 10'000;
  snapshot.accelerators = {with_gpus(h100(), 64)};
  Service service = chat_service();
  service.last_desired = 4;
  service.demand.arrivals_per_s = Reading{60, snapshot.now_s};
  service.demand.queued = Reading{0, snapshot.now_s};
  for (int slot = 0; slot < 4; ++slot) {
    service.workers.push_back(ready_worker("h100-1", "h100", 1, slot, snapshot.now_s));
  }
  snapshot.services = {service};
  const int now = make_plan(snapshot).services[0].desired_workers();
  EXPECT_LT(make_plan(after("rate=0.1x", snapshot).snapshot).services[0].desired_workers(), now);
  EXPECT_GT(make_plan(after("rate=3x", snapshot).snapshot).services[0].desired_workers(), now);
}

// Given one error at a time; expects the key, what is allowed and what was found.
TEST(SnapshotEdits, MistakesAreNamed) {
  const std::vector<std::pair<const char*, const char*>> table = {
      {"", "must be KEY=VALUE, such as rate=2x (got '')"},
      {"rate", "must be KEY=VALUE, such as rate=2x (got 'rate')"},
      {"=3", "must be KEY=VALUE*(got '=3')"},
      {"rate=2x,", "must be KEY=VALUE*(got '')"},
      {"rat=2x", "rat: must be one of rate, inputTokens*price.CLASS, gpus.CLASS*(got 'rat')"},
      {"rate=fast", "rate: must be a number from 0 to 1e+09, or a factor such as 2x*(got 'fast')"},
      {"rate=x", "rate: must be a number*(got 'x')"},
      {"rate=", "rate: must be a number*(got '')"},
      {"rate=-1", "rate: must be a number*(got '-1')"},
      {"rate=1e9x", "rate: must be a number*(got '1e9x, 1e+09 times 3')"},
      {"inputTokens=0", "inputTokens: must be a number from 1*(got '0')"},
      {"slo.ttft=300", "slo.ttft: must be a duration*such as 300ms (got '300')"},
      {"slo.tpot=0s", "slo.tpot: must be a duration above 0*(got '0s')"},
      {"slo.percentile=100", "slo.percentile: must be a number above 0 and below 100 (got '100')"},
      {"minWorkers=1.5", "minWorkers: must be a whole number from 0*(got '1.5')"},
      {"maxWorkers=0", "maxWorkers: must be a whole number from 1*(got '0')"},
      {"minWorkers=9,maxWorkers=3", "minWorkers: must be at most maxWorkers of team/chat, 3 (got 9)"},
      {"maxCostPerHour=0", "maxCostPerHour: must be a number above 0*or none (got '0')"},
      {"price=3", "price: must name a class: price.CLASS (got none)"},
      {"price.=3", "price.: must be the name, or a part of the name, of one of h100, a100 (got '')"},
      {"price.b200=3", "price.b200: must be the name, or a part of the name, of one of h100, a100 (got 'b200')"},
      {"price.100=3", "price.100: must be the name of one class; h100, a100 have that part (got '100')"},
      {"chat:gpus.h100=3", "chat:gpus.h100: must not name a service, because gpus belongs to a class (got 'chat')"},
      {"gpus.h100=2x", "gpus.h100: must be a whole number from 0*(got '2x')"},
      {"chatty:rate=2", "chatty:rate: must be a key of one of team/chat, team/code (got 'chatty')"},
      {"rate=2x,chat:rate=3", "chat:rate: must change each value once (got rate of team/chat a second time)"},
  };
  for (const auto& [text, expected] : table) {
    const auto made = edited(two_services(), text);
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(made.error().message, Says(expected));
  }
}

}  // namespace
}  // namespace windlass::planner
