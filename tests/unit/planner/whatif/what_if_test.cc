// Tests what_if against the plans themselves.
#include "planner/whatif/what_if.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "planner/policy/make_plan.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

using testing::chat_service;
using testing::h100;
using testing::ready_worker;
using testing::with_gpus;

Snapshot busy(double rate_per_s, int workers, int gpus = 64) {
  Snapshot snapshot;
  snapshot.now_s = 10'000;
  snapshot.accelerators = {with_gpus(h100(), gpus)};
  Service service = chat_service();
  service.last_desired = workers;
  service.demand.arrivals_per_s = Reading{rate_per_s, snapshot.now_s};
  service.demand.queued = Reading{0, snapshot.now_s};
  for (int slot = 0; slot < workers; ++slot) {
    service.workers.push_back(ready_worker("h100-1", "h100", 1, slot, snapshot.now_s));
  }
  snapshot.services = {service};
  return snapshot;
}

// Given a service under a load for three to five workers; expects a different number just beyond either rate and the same
// number just inside it; the reported numbers match those of a settled plan at that rate.
TEST(WhatIf, NamesTheRatesAtWhichThePlanChanges) {
  for (const double rate_per_s : {40.0, 55.0, 70.0}) {
    const Snapshot snapshot = busy(rate_per_s, 4);
    const auto answer = what_if(snapshot, 0);
    ASSERT_TRUE(answer.has_value());
    ASSERT_TRUE(answer->more_at_per_s.has_value());
    ASSERT_TRUE(answer->fewer_at_per_s.has_value());
    EXPECT_GT(*answer->more_at_per_s, rate_per_s);
    EXPECT_LT(*answer->fewer_at_per_s, rate_per_s);
    EXPECT_GT(answer->more_workers, answer->workers);
    EXPECT_LT(answer->fewer_workers, answer->workers);
    const auto at = [&](double other_per_s) { return what_if(busy(other_per_s, 4), 0)->workers; };
    EXPECT_EQ(at(*answer->more_at_per_s), answer->more_workers);
    EXPECT_EQ(at(*answer->fewer_at_per_s), answer->fewer_workers);
    EXPECT_LE(at(*answer->more_at_per_s * 0.98), answer->workers);
    EXPECT_GE(at(*answer->fewer_at_per_s * 1.02), answer->workers);
  }
}

// Given loads from a fraction of a worker to many, and bursty ones; expects the number at the present rate to match the plan's.
TEST(WhatIf, SaysWhatThePlanSays) {
  for (const double rate_per_s : {0.5, 16.0, 60.0, 200.0}) {
    for (const double burstiness : {1.0, 30.0}) {
      Snapshot snapshot = busy(rate_per_s, 4);
      snapshot.services[0].memory.history_since_s = snapshot.now_s - 3600;
      snapshot.services[0].memory.burstiness = burstiness;
      const Plan plan = make_plan(snapshot);
      const auto& reasons = plan.services[0].reasons;
      const auto demand = std::find_if(reasons.begin(), reasons.end(), [](const Reason& r) { return r.code == "Demand"; });
      ASSERT_NE(demand, reasons.end());
      EXPECT_EQ(std::to_string(what_if(snapshot, 0)->workers), demand->inputs.at("workers")) << rate_per_s;
    }
  }
}

// Given a service without requests that keeps its one worker; expects no lower rate, and a rate that needs a second worker.
TEST(WhatIf, AtRestOnlyMoreIsPossible) {
  Snapshot snapshot = busy(0, 1);
  const auto answer = what_if(snapshot, 0);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->workers, 1);
  EXPECT_FALSE(answer->fewer_at_per_s.has_value());
}

// Given a service with unknown arrivals, and one with an unknown model; expects no answer.
TEST(WhatIf, GivesNoAnswerWithoutData) {
  Snapshot silent = busy(40, 4);
  silent.services[0].demand.arrivals_per_s.reset();
  EXPECT_FALSE(what_if(silent, 0).has_value());
  Snapshot shapeless = busy(40, 4);
  shapeless.services[0].shape.reset();
  EXPECT_FALSE(what_if(shapeless, 0).has_value());
}

// Given two services that share too few GPUs; expects the number wanted before limits, without planning the other service.
TEST(WhatIf, ReportsNumbersBeforeLimits) {
  const auto free = what_if(busy(70, 4), 0);
  const auto scarce = what_if(busy(70, 4, 4), 0);
  ASSERT_TRUE(free && scarce);
  EXPECT_EQ(free->workers, scarce->workers);
}

}  // namespace
}  // namespace windlass::planner
