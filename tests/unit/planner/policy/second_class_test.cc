// Tests growth on a second allowed class while the chosen one is full, and the return: what is added, kept, given up, and never
// exceeded.
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/policy/make_plan.h"
#include "planner/policy/tuning.h"
#include "tests/effort.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

using testing::a100;
using testing::carry_out;
using testing::chat_service;
using testing::h100;
using testing::has_reason;
using testing::observe;
using testing::ready_worker;
using testing::with_gpus;

constexpr double kNow = 100'000;

// h100 is cheaper per request.
Snapshot two_classes(std::vector<Service> services, int h100s, int a100s) {
  Snapshot snapshot;
  snapshot.now_s = kNow;
  snapshot.accelerators = {with_gpus(h100(), h100s), with_gpus(a100(), a100s)};
  snapshot.accelerators[1].spec.price_per_hour = 4;
  snapshot.services = std::move(services);
  return snapshot;
}

Service running(const std::string& name, const std::string& accelerator, int workers, double arrivals_per_s) {
  Service service = chat_service(name);
  service.accelerators = {AllowedAccelerator{"h100", std::nullopt}, AllowedAccelerator{"a100", std::nullopt}};
  for (int slot = 0; slot < workers; ++slot)
    service.workers.push_back(ready_worker(accelerator + "-1", accelerator, 1, slot, kNow));
  service.last_desired = workers;
  service.memory.history_since_s = kNow - 3600;
  service.memory.recommendations = {Recommendation{kNow - 3600, workers}};
  service.memory.desired = workers;
  service.memory.configuration = accelerator + "-1";
  service.memory.configuration_since_s = kNow - 3600;
  service.starts = StartTimes{1, 10};
  observe(service, kNow, arrivals_per_s);
  return service;
}

int workers_on(const ServicePlan& plan, const std::string& accelerator) {
  int workers = 0;
  for (const Pool& pool : plan.pools) workers += pool.spec.accelerator == accelerator ? pool.workers : 0;
  return workers;
}

double rate_of_one(const std::string& accelerator) {
  Service service = running("alone", accelerator, 1, 0.1);
  service.accelerators = {AllowedAccelerator{accelerator, std::nullopt}};
  const Pool pool = make_plan(two_classes({service}, 8, 8)).services[0].pools.at(0);
  return kMaxUtilisationOfMany * pool.each.slots * pool.each.service_rate_per_s;
}

// Given load for more workers than the chosen class has GPUs; expects the rest on the second class, as many as replace them,
// with both messages. With strategy Replicated, without signals, and while the cluster rejects workers; expects none.
TEST(SecondClass, TakesWhatTheFirstClassHasNoRoomFor) {
  const double load = 3.5 * rate_of_one("h100");
  const Service service = running("chat", "h100", 2, load);
  const Plan plan = make_plan(two_classes({service}, 2, 20));
  const ServicePlan& planned = plan.services[0];
  EXPECT_EQ(workers_on(planned, "h100"), 2);
  const int second = workers_on(planned, "a100");
  EXPECT_GE(second, 2);  // because they are slower
  EXPECT_LE(second, 8);
  EXPECT_GE(planned.predicted.requests_per_s, load);
  EXPECT_TRUE(has_reason(planned, "SecondClass"));
  EXPECT_EQ(planned.able_to_scale.status, Truth::kTrue);
  EXPECT_EQ(planned.able_to_scale.reason, "SecondClass");

  Service replicated = service;
  replicated.scaling.strategy = Family::kReplicated;
  EXPECT_EQ(workers_on(make_plan(two_classes({replicated}, 2, 20)).services[0], "a100"), 0);
  Service silent = service;
  silent.demand.queued.reset();
  EXPECT_EQ(workers_on(make_plan(two_classes({silent}, 2, 20)).services[0], "a100"), 0);
  Service refused = service;
  refused.refused = CreationRefusal{"QuotaExceeded", "no more", kNow + 60};
  EXPECT_EQ(workers_on(make_plan(two_classes({refused}, 2, 20)).services[0], "a100"), 0);
  Service only = service;
  only.accelerators.pop_back();
  EXPECT_EQ(workers_on(make_plan(two_classes({only}, 2, 20)).services[0], "a100"), 0);
}

// Given the class's share of the service as the limit instead of its GPUs; expects the same.
TEST(SecondClass, TakesWhatTheServicesShareExcludes) {
  Service service = running("chat", "h100", 2, 3.5 * rate_of_one("h100"));
  service.accelerators[0].max_gpus = 2;
  const ServicePlan planned = make_plan(two_classes({service}, 64, 20)).services[0];
  EXPECT_EQ(workers_on(planned, "h100"), 2);
  EXPECT_GE(workers_on(planned, "a100"), 2);
  EXPECT_EQ(planned.able_to_scale.reason, "SecondClass");
}

// Given a steady load for an hour; expects that the pools do not change once they exist. Given more GPUs of the first class
// afterwards; expects that the second class's workers stay until the new ones are ready, and that all of them go then.
TEST(SecondClass, IsSteadyAndGoesBack) {
  const double load = 3.5 * rate_of_one("h100");
  Snapshot snapshot = two_classes({running("chat", "h100", 2, load)}, 2, 20);
  Plan plan = make_plan(snapshot);
  const std::vector<Pool> first = plan.services[0].pools;
  for (int step = 0; step < 240; ++step) {
    snapshot.now_s += 15;
    carry_out(plan.services[0], snapshot.services[0], snapshot.now_s);
    observe(snapshot.services[0], snapshot.now_s, load);
    plan = make_plan(snapshot);
    ASSERT_EQ(workers_on(plan.services[0], "h100"), 2) << step;
    ASSERT_EQ(workers_on(plan.services[0], "a100"), first.back().workers) << step;
  }
  snapshot.accelerators[0].allocatable_gpus = 16;
  plan = make_plan(snapshot);
  const int grown = workers_on(plan.services[0], "h100");
  EXPECT_GE(grown, 4);
  EXPECT_EQ(workers_on(plan.services[0], "a100"), first.back().workers);  // the new ones are not ready yet
  carry_out(plan.services[0], snapshot.services[0], snapshot.now_s);
  plan = make_plan(snapshot);
  EXPECT_EQ(workers_on(plan.services[0], "h100"), grown);
  EXPECT_EQ(workers_on(plan.services[0], "a100"), 0);
}

// Given falling load; expects the second class to go first, after the window, and nothing below what the load needs.
TEST(SecondClass, GoesFirstWhenTheLoadFalls) {
  const double one = rate_of_one("h100");
  Snapshot snapshot = two_classes({running("chat", "h100", 2, 3.5 * one)}, 2, 20);
  Plan plan = make_plan(snapshot);
  const int before = workers_on(plan.services[0], "a100");
  ASSERT_GE(before, 2);
  for (int step = 0; step < 60; ++step) {
    snapshot.now_s += 15;
    carry_out(plan.services[0], snapshot.services[0], snapshot.now_s);
    observe(snapshot.services[0], snapshot.now_s, 1.2 * one);
    plan = make_plan(snapshot);
    ASSERT_EQ(workers_on(plan.services[0], "h100"), 2) << step;
    if (step < 15) {
      ASSERT_EQ(workers_on(plan.services[0], "a100"), before) << step;  // within the window
    }
  }
  EXPECT_EQ(workers_on(plan.services[0], "a100"), 0);
}

// Given missing signals, or a quota that rejects workers, while workers serve on both classes; expects all of them to stay.
TEST(SecondClass, StaysWithoutSignals) {
  const double load = 3.5 * rate_of_one("h100");
  Snapshot snapshot = two_classes({running("chat", "h100", 2, load)}, 2, 20);
  const Plan plan = make_plan(snapshot);
  carry_out(plan.services[0], snapshot.services[0], snapshot.now_s);
  const int second = workers_on(plan.services[0], "a100");
  Snapshot silent = snapshot;
  silent.services[0].demand.arrivals_per_s.reset();
  EXPECT_EQ(workers_on(make_plan(silent).services[0], "a100"), second);
  EXPECT_EQ(workers_on(make_plan(silent).services[0], "h100"), 2);
  Snapshot refused = snapshot;
  refused.services[0].refused = CreationRefusal{"QuotaExceeded", "no more", kNow + 60};
  EXPECT_EQ(workers_on(make_plan(refused).services[0], "a100"), second);
}

// Given a service of higher priority that wants the second class for itself; expects it to get it. Given one of equal priority;
// expects no running worker to be taken.
TEST(SecondClass, YieldsToAHigherPriority) {
  const double load = 3.5 * rate_of_one("h100");
  Snapshot snapshot = two_classes({running("chat", "h100", 2, load)}, 2, 8);
  const Plan plan = make_plan(snapshot);
  carry_out(plan.services[0], snapshot.services[0], snapshot.now_s);
  int second = 0;  // GPUs
  for (const Pool& pool : plan.services[0].pools)
    second += pool.spec.accelerator == "a100" ? pool.workers * pool.spec.gpus() : 0;
  ASSERT_GE(second, 2);
  ASSERT_LE(second, 7);
  const int kept = workers_on(plan.services[0], "a100");
  Service other = running("other", "a100", 1, 20 * rate_of_one("a100"));
  other.accelerators = {AllowedAccelerator{"a100", std::nullopt}};
  for (const int priority : {0, 10}) {
    other.priority = priority;
    Snapshot both = snapshot;
    both.services.push_back(other);
    const Plan shared = make_plan(both);
    EXPECT_EQ(workers_on(shared.services[0], "a100"), priority == 0 ? kept : 0) << priority;
    EXPECT_EQ(workers_on(shared.services[1], "a100"), priority == 0 ? 8 - second : 8) << priority;
    if (priority > 0) {
      EXPECT_EQ(shared.services[0].able_to_scale.reason, "InsufficientCapacity");
    }
  }
}

// Given random limits, loads and GPUs of two services over several applied plans; expects no GPU, worker, share or cost above
// the limits, and that planning twice gives the same plan.
TEST(SecondClass, KeepsEveryLimit) {
  const double one = rate_of_one("h100");
  int used = 0;
  for (std::uint64_t seed = 0; seed < effort(25U, 150U); ++seed) {
    Rng rng(seed, "second class");
    const int h100s = static_cast<int>(rng.integer(0, 6)), a100s = static_cast<int>(rng.integer(0, 10));
    std::vector<Service> services;
    for (const char* name : {"one", "two"}) {
      Service service = running(name, "h100", 0, 0);
      service.priority = static_cast<int>(rng.integer(0, 1));
      if (rng.uniform() < 0.4) service.scaling.max_workers = static_cast<int>(rng.integer(1, 6));
      if (rng.uniform() < 0.4) service.scaling.max_cost_per_hour = 4.0 * static_cast<double>(rng.integer(1, 8));
      if (rng.uniform() < 0.4) service.accelerators[1].max_gpus = static_cast<int>(rng.integer(1, 4));
      if (rng.uniform() < 0.3) service.accelerators[0].max_gpus = static_cast<int>(rng.integer(1, 4));
      services.push_back(std::move(service));
    }
    Snapshot snapshot = two_classes(services, h100s, a100s);
    for (int step = 0; step < 8; ++step) {
      snapshot.now_s += 60;
      for (Service& service : snapshot.services) observe(service, snapshot.now_s, 5 * one * rng.uniform());
      const Plan plan = make_plan(snapshot);
      std::map<std::string, int> gpus;
      for (std::size_t i = 0; i < 2; ++i) {
        const Service& service = snapshot.services[i];
        const ServicePlan& planned = plan.services[i];
        double cost = 0;
        int workers = 0;
        for (const Pool& pool : planned.pools) {
          gpus[pool.spec.accelerator] += pool.workers * pool.spec.gpus();
          cost += 4.0 * pool.workers * pool.spec.gpus();
          workers += pool.workers;
        }
        used += workers_on(planned, "h100") > 0 && workers_on(planned, "a100") > 0 ? 1 : 0;
        if (service.scaling.max_cost_per_hour) {
          ASSERT_LE(cost, *service.scaling.max_cost_per_hour + 1e-9) << seed;
        }
        for (const AllowedAccelerator& allowed : service.accelerators) {
          if (allowed.max_gpus) {
            ASSERT_LE(workers_on(planned, allowed.accelerator), *allowed.max_gpus) << seed;
          }
        }
        // Above maxWorkers only existing workers count, which go as their successors become ready.
        if (service.scaling.max_workers && workers > *service.scaling.max_workers) {
          ASSERT_LE(workers_on(planned, "h100"), *service.scaling.max_workers) << seed;
          ASSERT_LE(workers - *service.scaling.max_workers, static_cast<int>(service.workers.size())) << seed;
        }
      }
      ASSERT_LE(gpus["h100"], h100s) << seed;
      ASSERT_LE(gpus["a100"], a100s) << seed;
      Snapshot again = snapshot;
      for (std::size_t i = 0; i < 2; ++i) {
        again.services[i].memory = plan.services[i].memory;
        again.services[i].last_desired = plan.services[i].desired_workers();
      }
      const Plan second = make_plan(again);
      for (std::size_t i = 0; i < 2; ++i) ASSERT_EQ(second.services[i].pools, plan.services[i].pools) << seed;
      for (std::size_t i = 0; i < 2; ++i) carry_out(plan.services[i], snapshot.services[i], snapshot.now_s);
    }
  }
  EXPECT_GE(used, effort(6, 40));
}

}  // namespace
}  // namespace windlass::planner
