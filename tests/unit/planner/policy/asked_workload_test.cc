// Tests when the strategies are asked about another workload: by how much, and how surely, rate or lengths must shift.
#include "planner/policy/asked_workload.h"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/policy/make_plan.h"
#include "tests/unit/planner/policy/one_service.h"

namespace windlass::planner {
namespace {

using testing::chat_service;
using testing::has_reason;
using testing::kNow;
using testing::observe;
using testing::one;

constexpr AssumedWorkload kSpec = {10, 512, 256};

// A service that has been seen for this long, with means over this many requests.
Service seen(double input_tokens, double output_tokens, double requests, double rate_per_s = 10, double for_s = 3600) {
  Service service = chat_service();
  service.workload = kSpec;
  service.memory.history_since_s = kNow - for_s;
  observe(service, kNow, rate_per_s);
  service.demand.input_tokens = Reading{input_tokens, kNow};
  service.demand.output_tokens = Reading{output_tokens, kNow};
  service.demand.measured_requests = requests;
  return service;
}

ServicePlan planned(const Service& service) { return make_plan(one(service)).services[0]; }

// Given means that differ by less than the step, or by no more than chance; expects nothing new to be asked. Given a clear
// difference, up or down, of prompts or answers; expects the observed lengths, and a reason that says from where to where.
TEST(AskedWorkload, FollowsLengthsThatShiftedSurely) {
  struct Case {
    double input, output, requests;
    bool shifts;
  };
  for (const Case& at : {Case{512, 256, 1000, false},
                         {600, 256, 1e6, false},
                         {1024, 256, 40, false},
                         {1024, 256, 100, true},
                         {5120, 256, 15, false},
                         {5120, 256, 25, true},
                         {256, 256, 60, false},
                         {256, 256, 70, true},
                         {512, 1024, 100, true},
                         {512, 64, 40, true},
                         {5120, 2560, 0, false}}) {
    SCOPED_TRACE(::testing::Message() << at.input << " " << at.output << " " << at.requests);
    const Service service = seen(at.input, at.output, at.requests);
    const ServicePlan plan = planned(service);
    Service after = service;
    after.memory = plan.memory;
    EXPECT_EQ(has_reason(plan, "WorkloadShifted"), at.shifts);
    EXPECT_EQ(plan.memory.shift.has_value(), at.shifts);
    const AssumedWorkload asked = workload_to_ask(after);
    EXPECT_NEAR(asked.input_tokens, at.shifts ? at.input : kSpec.input_tokens, 0.03 * at.input + 1);
    EXPECT_NEAR(asked.output_tokens, at.shifts ? at.output : kSpec.output_tokens, 0.03 * at.output + 1);
    if (!at.shifts) continue;
    EXPECT_EQ(plan.memory.shift->at_s, kNow);
    EXPECT_EQ(plan.memory.shift->from, kSpec);
    EXPECT_EQ(plan.memory.shift->to, asked);
  }
}

// Given 2,000 samples of requests whose lengths are exponential around what was asked; expects hardly any shift.
TEST(AskedWorkload, ChanceIsNoShift) {
  Rng rng(5, "lengths");
  int shifts = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto requests = static_cast<int>(rng.integer(5, 200));
    double input = 0, output = 0;
    for (int i = 0; i < requests; ++i) {
      input += (1 + rng.exponential(1 / 512.0)) / requests;
      output += (1 + rng.exponential(1 / 256.0)) / requests;
    }
    shifts += planned(seen(input, output, requests)).memory.shift ? 1 : 0;
  }
  EXPECT_LE(shifts, 20);
}

// Given a service whose first minutes have other lengths and another rate; expects the lengths to be followed once enough
// requests were measured, the rate only after kAskedAfterS.
TEST(AskedWorkload, TheRateOfTheFirstMinutesIsNotFollowed) {
  const ServicePlan early = planned(seen(5120, 256, 100, 40, 120));
  ASSERT_TRUE(early.memory.asked);
  EXPECT_EQ(early.memory.asked->requests_per_s, kSpec.requests_per_s);
  EXPECT_GT(early.memory.asked->input_tokens, 4000);
  EXPECT_GT(planned(seen(5120, 256, 100, 40)).memory.asked->requests_per_s, 20);
  EXPECT_FALSE(planned(seen(5120, 256, 100, 40, 30)).memory.asked) << "nothing is believed yet";
}

// Given a mean that moves in several steps; expects the message to say from where the first one came, until ten minutes have
// passed.
TEST(AskedWorkload, AShiftInStepsIsOne) {
  Service service = seen(1024, 256, 1000);
  service.memory = planned(service).memory;
  service.demand.input_tokens->value = 2048;
  const ServicePlan further = planned(service);
  EXPECT_EQ(further.memory.shift->from, kSpec);
  EXPECT_NEAR(further.memory.shift->to.input_tokens, 2048, 50);
  service.memory = further.memory;
  Snapshot later = one(service);
  later.now_s = kNow + 700;
  EXPECT_FALSE(has_reason(make_plan(later).services[0], "WorkloadShifted"));
}

// Given a shift of each figure; expects a text that names those that moved.
TEST(AskedWorkload, TextNamesWhatMoved) {
  EXPECT_EQ(text_of(WorkloadShift{0, {1, 28, 2}, {1, 210, 2}}), "prompts went from 28 to 210 tokens");
  EXPECT_EQ(text_of(WorkloadShift{0, {1, 28, 2}, {2.3, 28, 4}}),
            "answers went from 2 to 4 tokens, the rate went from 1 to 2.3 requests/s");
}

}  // namespace
}  // namespace windlass::planner
