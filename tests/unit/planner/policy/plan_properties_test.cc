// Tests invariants of every plan, on thousands of random snapshots with missing, stale and invalid signals.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/policy/capacity.h"
#include "planner/policy/json.h"
#include "planner/policy/make_plan.h"
#include "tests/effort.h"
#include "tests/unit/planner/policy/random_snapshot.h"

namespace windlass::planner {
namespace {

using testing::random_snapshot;

bool launches(const Service& service) { return service.scaling.mode == Mode::kApply; }

int live(const Service& service, const std::string& accelerator, WorkerState state) {
  int gpus = 0;
  for (const Worker& worker : service.workers) {
    // A worker in trouble does not serve; one that drains on a lost node holds GPUs that no node has.
    const bool counts =
        state == WorkerState::kReady ? worker.trouble == WorkerTrouble::kNone : worker.trouble != WorkerTrouble::kNodeLost;
    if (counts && worker.accelerator == accelerator && worker.state == state) gpus += worker.gpus;
  }
  return gpus;
}

// Workers that the last plan requested: from its memory, otherwise the existing ones (decode workers only, if phases are
// split); from the status, all of them.
int before(const ServicePlan& plan, const Service& service) {
  const bool split = plan.strategy == Family::kDisaggregated;
  const auto there = std::count_if(service.workers.begin(), service.workers.end(), [&](const Worker& worker) {
    return worker.state != WorkerState::kDraining && !(split && worker.role == dispatch::Role::kPrefill);
  });
  return service.memory.desired.value_or(service.last_desired.value_or(static_cast<int>(there)));
}

// Workers of the chosen pool and of the pools next to it: those of the offer that runs.
int unit_workers(const ServicePlan& plan, bool with_prefill = true) {
  const std::size_t pools = plan.memory.offer ? plan.memory.offer->pools.size() : 1;
  int workers = 0;
  for (std::size_t pool = 0; pool < pools; ++pool) {
    if (with_prefill || plan.pools.at(pool).role != dispatch::Role::kPrefill) workers += plan.pools.at(pool).workers;
  }
  return workers;
}

// The workers of this plan that compare with before().
int counted(const ServicePlan& plan, const Service& service) {
  return service.memory.desired ? plan.pools.front().workers : unit_workers(plan, service.last_desired.has_value());
}

// Denied by a limit or for lack of GPUs. Workers that a quota rejects are planned anyway.
bool is_denied(const Plan& plan, const ServiceId& id) {
  return std::any_of(plan.denied.begin(), plan.denied.end(),
                     [&](const Denied& d) { return d.id == id && d.code != "QuotaExceeded"; });
}

// Whether the plan decides about the service instead of leaving it unchanged.
bool decides(const ServicePlan& plan, const Service& service) {
  return launches(service) && plan.feasible.status == Truth::kTrue;
}

// Given any snapshot; expects the same plan from the same snapshot and from its JSON round trip, and that the plan survives
// JSON.
TEST(PlanProperties, PureAndReplayable) {
  for (std::uint64_t seed = 0; seed < effort(100U, 700U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Snapshot snapshot = random_snapshot(seed);
    const Plan plan = make_plan(snapshot);
    const std::string text = to_json(plan);
    ASSERT_EQ(text, to_json(make_plan(snapshot)));
    const auto replayed = snapshot_from_json(to_json(snapshot, true));
    ASSERT_TRUE(replayed.ok()) << replayed.error().message;
    ASSERT_EQ(to_json(*replayed), to_json(snapshot));
    ASSERT_EQ(text, to_json(make_plan(*replayed)));
    const auto read = plan_from_json(text);
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(*read, plan);
  }
}

// Given any snapshot; expects no class to have more GPUs planned than its capacity leaves next to unchanged services and
// draining workers, except for what already runs.
void expect_gpu_capacity(const Snapshot& snapshot, const Plan& plan) {
  for (const AcceleratorState& state : snapshot.accelerators) {
    const std::string& name = state.spec.name;
    int ready = 0;
    int draining = 0;
    int planned = 0;
    int left_alone = 0;
    int running = 0;  // of the services that are decided
    for (std::size_t i = 0; i < snapshot.services.size(); ++i) {
      ready += live(snapshot.services[i], name, WorkerState::kReady);
      draining += live(snapshot.services[i], name, WorkerState::kDraining);
      if (decides(plan.services[i], snapshot.services[i])) running += live_gpus(snapshot.services[i], name);
      for (const Pool& pool : plan.services[i].pools) {
        if (pool.spec.accelerator != name) continue;
        (decides(plan.services[i], snapshot.services[i]) ? planned : left_alone) += pool.workers * pool.spec.gpus();
      }
    }
    const int observed = std::max(state.allocatable_gpus - state.used_by_others, ready + draining);
    const int most = state.max_gpus ? *state.max_gpus - state.used_by_others : observed;
    const int limit = state.mode == CapacityMode::kElastic ? most : std::min(observed, most);
    ASSERT_LE(planned, std::max({0, limit - draining - left_alone, std::min(running, limit - left_alone)})) << name;
  }
}

// Given any snapshot; expects each service within its own limits (workers, cost, GPUs of a class), and at its minimum unless it
// was denied.
void expect_own_limits(const Snapshot& snapshot, const Plan& plan) {
  for (std::size_t i = 0; i < snapshot.services.size(); ++i) {
    const Service& service = snapshot.services[i];
    const ServicePlan& planned = plan.services[i];
    if (!decides(planned, service)) continue;
    const int workers = unit_workers(planned);
    if (service.scaling.max_workers) {
      ASSERT_LE(workers, *service.scaling.max_workers);
    }
    if (service.scaling.max_cost_per_hour) {
      // Workers of a missing class have no known price.
      ASSERT_LE(planned.predicted.cost_per_hour, *service.scaling.max_cost_per_hour + 1e-6);
    }
    for (const AllowedAccelerator& allowed : service.accelerators) {
      int gpus = 0;
      for (const Pool& pool : planned.pools)
        gpus += pool.spec.accelerator == allowed.accelerator ? pool.workers * pool.spec.gpus() : 0;
      if (allowed.max_gpus && allowed.accelerator == planned.pools.front().spec.accelerator) {
        ASSERT_LE(gpus, *allowed.max_gpus);
      }
    }
    // Pools in proportion may leave one worker fewer than both limits allow.
    const bool uneven =
        planned.memory.offer && planned.memory.offer->pools.size() > 1 && service.scaling.max_workers.has_value();
    if (workers < service.scaling.min_workers && !uneven) {
      ASSERT_TRUE(is_denied(plan, service.id));
    }
  }
}

// Given any snapshot with missing, stale or invalid arrivals or queue; expects no fewer workers than the last plan requested,
// unless a limit denied them.
void expect_no_fall_on_missing_signals(const Snapshot& snapshot, const Plan& plan, int& checked) {
  for (std::size_t i = 0; i < snapshot.services.size(); ++i) {
    const Service& service = snapshot.services[i];
    const ServicePlan& planned = plan.services[i];
    auto fresh = [&](const std::optional<Reading>& reading) {
      return reading && std::isfinite(reading->value) && reading->value >= 0 && snapshot.now_s - reading->at_s <= 30;
    };
    if (fresh(service.demand.arrivals_per_s) && fresh(service.demand.queued)) continue;
    ASSERT_EQ(planned.metrics_fresh.status, Truth::kFalse);
    if (!decides(planned, service) || is_denied(plan, service.id)) continue;
    ASSERT_GE(counted(planned, service), before(planned, service));
    ++checked;
  }
}

// Nothing arrives and nothing waits: missing workers are then no shortage and no denial.
bool asks_for_nothing(const Service& service) {
  const auto zero = [](const std::optional<Reading>& reading) { return reading && reading->value == 0; };
  return zero(service.demand.arrivals_per_s) && zero(service.demand.queued);
}

// Given any snapshot whose history does not cover the stabilization window; expects no fewer workers than before, unless a
// limit denied them, or there is no demand and their class has shrunk.
void expect_no_fall_on_a_short_history(const Snapshot& snapshot, const Plan& plan, int& checked) {
  for (std::size_t i = 0; i < snapshot.services.size(); ++i) {
    const Service& service = snapshot.services[i];
    const ServicePlan& planned = plan.services[i];
    const bool covered = service.memory.history_since_s &&
                         snapshot.now_s - *service.memory.history_since_s >= service.scaling.scale_down_stabilization_s;
    // A window of 0 s needs no history.
    if (covered || service.scaling.scale_down_stabilization_s == 0 || service.scaling.idle_to_zero_after_s ||
        !decides(planned, service) || is_denied(plan, service.id) || asks_for_nothing(service))
      continue;
    ASSERT_GE(counted(planned, service), before(planned, service));
    ++checked;
  }
}

// Given any snapshot, and the plan's memory passed back at the same time; expects the same pools: planning twice changes
// nothing.
void expect_planning_twice_changes_nothing(const Snapshot& snapshot, const Plan& plan) {
  Snapshot again = snapshot;
  for (std::size_t i = 0; i < again.services.size(); ++i) {
    again.services[i].memory = plan.services[i].memory;
    again.services[i].last_desired = plan.services[i].desired_workers();
  }
  const Plan second = make_plan(again);
  for (std::size_t i = 0; i < again.services.size(); ++i)
    ASSERT_EQ(second.services[i].pools, plan.services[i].pools)
        << "service " << i << "\nfirst: " << to_json(plan) << "\nsecond: " << to_json(second);
}

// Given any snapshot; expects a plan for every service in order, with reasons, conditions, sensible pools and bounded memory.
void expect_complete_plans(const Snapshot& snapshot, const Plan& plan) {
  ASSERT_EQ(plan.services.size(), snapshot.services.size());
  for (std::size_t i = 0; i < plan.services.size(); ++i) {
    const ServicePlan& planned = plan.services[i];
    const Service& service = snapshot.services[i];
    ASSERT_EQ(planned.id, service.id);
    ASSERT_FALSE(planned.reasons.empty());
    for (const Reason& reason : planned.reasons) ASSERT_FALSE(reason.message.empty());
    for (const Hint* hint : {&planned.feasible, &planned.able_to_scale, &planned.metrics_fresh, &planned.slo_met}) {
      ASSERT_FALSE(hint->reason.empty());
      ASSERT_FALSE(hint->message.empty());
    }
    for (const Pool& pool : planned.pools) {
      ASSERT_GE(pool.workers, 0);
      ASSERT_GE(pool.each.slots, 1);
      ASSERT_LE(pool.each.slots, pool.each.max_concurrency);
      ASSERT_TRUE(std::isfinite(pool.each.service_rate_per_s));
    }
    ASSERT_FALSE(std::isnan(planned.predicted.ttft_s));
    ASSERT_TRUE(planned.memory.history_since_s.has_value());
    ASSERT_LE(planned.memory.recommendations.size(), service.memory.recommendations.size() + 1);
  }
}

// Given random snapshots with missing, stale and invalid signals; expects all of the above for each plan, and that the two
// rules about scale-down often apply.
TEST(PlanProperties, HoldOfEveryPlan) {
  int without_signals = 0, short_histories = 0;
  for (std::uint64_t seed = 0; seed < effort(600U, 3600U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Snapshot snapshot = random_snapshot(seed);
    const Plan plan = make_plan(snapshot);
    expect_complete_plans(snapshot, plan);
    expect_gpu_capacity(snapshot, plan);
    expect_own_limits(snapshot, plan);
    expect_no_fall_on_missing_signals(snapshot, plan, without_signals);
    expect_no_fall_on_a_short_history(snapshot, plan, short_histories);
    expect_planning_twice_changes_nothing(snapshot, plan);
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(without_signals, effort(60, 400));
  EXPECT_GT(short_histories, effort(25, 150));
}

// Given the same snapshots with the GPUs of each Observed class on one node that has room for all, or on nodes of one GPU;
// expects the same decisions as without nodes, or no new worker with more GPUs than one.
TEST(PlanProperties, NodesLimitOnlyWhereTheyAreTooSmall) {
  int wide = 0;
  for (std::uint64_t seed = 0; seed < effort(400U, 3600U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Snapshot without = random_snapshot(seed);
    Snapshot large = without, small = without;
    for (const AcceleratorState& state : without.accelerators) {
      large.nodes.push_back({state.spec.name + "-large", state.spec.name, 1000, 0, "", false});
      for (int i = 0; i < state.allocatable_gpus; ++i) {
        small.nodes.push_back({state.spec.name + "-small-" + std::to_string(i), state.spec.name, 1, 0, "", false});
      }
      if (state.allocatable_gpus == 0) small.nodes.push_back({state.spec.name + "-none", state.spec.name, 1, 0, "", true});
    }
    const Plan plan = make_plan(without);
    ASSERT_EQ(to_json(plan), to_json(make_plan(large)));
    const Plan fitted = make_plan(small);
    expect_complete_plans(small, fitted);
    expect_gpu_capacity(small, fitted);
    expect_own_limits(small, fitted);
    if (::testing::Test::HasFatalFailure()) return;
    for (std::size_t i = 0; i < small.services.size(); ++i) {
      if (!decides(fitted.services[i], small.services[i])) continue;
      for (const Pool& pool : fitted.services[i].pools) {
        const auto& accelerators = small.accelerators;
        const bool elastic = std::any_of(accelerators.begin(), accelerators.end(), [&](const AcceleratorState& state) {
          return state.spec.name == pool.spec.accelerator && state.mode == CapacityMode::kElastic;
        });
        if (elastic || pool.spec.gpus() == 1) continue;
        ++wide;
        const auto& workers = small.services[i].workers;
        ASSERT_LE(pool.workers, std::count_if(workers.begin(), workers.end(),
                                              [&](const Worker& worker) {
                                                return worker.pool_id() == pool.id() && worker.state != WorkerState::kDraining;
                                              }))
            << pool.name;
      }
    }
  }
  EXPECT_GT(wide, effort(20, 200));
}

}  // namespace
}  // namespace windlass::planner
