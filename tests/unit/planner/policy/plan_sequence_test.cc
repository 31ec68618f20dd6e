// Tests what must never happen over time, in hundreds of random sequences of snapshots with thousands of plans, passing each
// plan's memory to the next. Load rises, falls, bursts and stays; signals go missing, stale or NaN; counters restart; workers
// start slowly, vanish or get into trouble; restarts lose the memory.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/policy/json.h"
#include "planner/policy/make_plan.h"
#include "planner/policy/tuning.h"
#include "tests/effort.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

using testing::chat_service;
using testing::h100;
using testing::has_reason;
using testing::ready_worker;
using testing::with_gpus;

constexpr double kTickS = 5;

// A cluster of two services that applies its plans.
class World {
 public:
  World(std::uint64_t seed, bool faults, int gpus = 24) : rng_(seed, "world"), faults_(faults) {
    snapshot_.now_s = 1000;
    snapshot_.accelerators = {with_gpus(h100(), gpus)};
    for (const char* name : {"a", "b"}) {
      Service service = chat_service(name);
      service.scaling.scale_down_stabilization_s = rng_.uniform(20, 120);
      service.scaling.scale_up_stabilization_s = rng_.uniform() < 0.8 ? 0 : 30;
      if (rng_.uniform() < 0.3) service.scaling.max_workers = static_cast<int>(rng_.integer(1, 12));
      if (rng_.uniform() < 0.3) service.scaling.max_cost_per_hour = rng_.uniform(4, 60);
      service.priority = static_cast<int>(rng_.integer(0, 1));
      snapshot_.services.push_back(service);
    }
    totals_.assign(2, 0);
    start_s_ = rng_.uniform(5, 120);
  }

  void tick(const std::vector<double>& rates_per_s) {
    snapshot_.now_s += kTickS;
    for (std::size_t s = 0; s < 2; ++s) look(s, rates_per_s[s]);
    plan_ = make_plan(snapshot_);
  }

  // Workers start and stop as planned; new ones serve after the start time.
  void carry_out() {
    for (std::size_t s = 0; s < 2; ++s) {
      Service& service = snapshot_.services[s];
      const ServicePlan& plan = plan_.services[s];
      service.memory = plan.memory;
      service.last_desired = plan.desired_workers();
      int wanted = 0;
      for (const Pool& pool : plan.pools) wanted += pool.workers;
      while (static_cast<int>(service.workers.size()) > wanted) service.workers.pop_back();
      while (static_cast<int>(service.workers.size()) < wanted) {
        Worker worker = ready_worker("h100-1", "h100", 1, static_cast<int>(service.workers.size()), snapshot_.now_s);
        worker.state = WorkerState::kStarting;
        worker.created_s = snapshot_.now_s;
        worker.ready_s.reset();
        worker.running.reset();
        worker.waiting.reset();
        service.workers.push_back(worker);
      }
    }
  }

  [[nodiscard]] Snapshot& snapshot() { return snapshot_; }
  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] bool blind(std::size_t s) const { return blind_[s]; }
  [[nodiscard]] Rng& rng() { return rng_; }

 private:
  bool one_in(int n) { return faults_ && rng_.integer(1, n) == 1; }

  std::optional<Reading> maybe(double value, bool& blind) {
    if (!one_in(40)) return Reading{value, snapshot_.now_s};
    blind = true;
    switch (rng_.integer(0, 2)) {
      case 0: return std::nullopt;
      case 1: return Reading{value, snapshot_.now_s - 31 - rng_.uniform(0, 100)};
      default: return Reading{std::numeric_limits<double>::quiet_NaN(), snapshot_.now_s};
    }
  }

  void look(std::size_t s, double rate_per_s) {
    Service& service = snapshot_.services[s];
    blind_[s] = false;
    const auto came = static_cast<double>(rng_.poisson(rate_per_s * kTickS));
    if (one_in(200)) totals_[s] = 0;
    totals_[s] += came;
    recent_[s] = (recent_[s] + came) / 2;
    service.demand.arrivals_total = one_in(40) ? std::nullopt : std::optional(Reading{totals_[s], snapshot_.now_s});
    service.demand.arrivals_window_s = 10;
    service.demand.arrivals_per_s = maybe(recent_[s] / kTickS, blind_[s]);
    service.demand.queued = maybe(one_in(100) ? rng_.uniform(0, 500) : 0, blind_[s]);
    if (came > 0) service.demand.last_arrival_at_s = snapshot_.now_s;
    service.starts = StartTimes{start_s_, 5};
    if (one_in(300)) service.memory = PolicyMemory{};
    for (Worker& worker : service.workers) {
      if (worker.state == WorkerState::kStarting && snapshot_.now_s - worker.created_s >= start_s_) {
        worker.state = WorkerState::kReady;
        worker.ready_s = snapshot_.now_s;
      }
      if (one_in(400)) worker.trouble = static_cast<WorkerTrouble>(rng_.integer(1, 6));
      if (one_in(50)) worker.trouble = WorkerTrouble::kNone;
      if (worker.state == WorkerState::kReady) worker.running = worker.waiting = Reading{0, snapshot_.now_s};
    }
  }

  Rng rng_;
  bool faults_;
  Snapshot snapshot_;
  Plan plan_;
  std::vector<double> totals_;
  double recent_[2] = {0, 0};
  bool blind_[2] = {false, false};
  double start_s_ = 30;
};

bool is_denied(const Plan& plan, const ServiceId& id) {
  return std::any_of(plan.denied.begin(), plan.denied.end(), [&](const Denied& d) { return d.id == id; });
}

// Given random sequences of 40 plans with faults; expects at every plan: no fewer workers wanted on missing, stale or NaN
// signals or a short history; none removed within one start of an addition; budgets of GPUs, workers and cost respected; and
// for some of them that the snapshot's JSON replays to the same plan, byte for byte.
TEST(PlanSequences, TheNeverListHolds) {
  int blind = 0;
  int downs = 0;
  for (std::uint64_t seed = 0; seed < effort(50U, 400U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed, true);
    std::vector<double> rates = {world.rng().uniform(0, 60), world.rng().uniform(0, 60)};
    for (int i = 0; i < 40; ++i) {
      for (double& rate : rates) {
        if (world.rng().uniform() < 0.05) rate = world.rng().uniform() < 0.3 ? 0 : world.rng().uniform(0, 150);
      }
      world.tick(rates);
      const Snapshot& snapshot = world.snapshot();
      const Plan& plan = world.plan();
      int gpus = 0;
      for (std::size_t s = 0; s < 2; ++s) {
        const Service& service = snapshot.services[s];
        const ServicePlan& decided = plan.services[s];
        gpus += decided.predicted.gpus;
        if (service.scaling.max_workers) {
          ASSERT_LE(decided.desired_workers(), *service.scaling.max_workers);
        }
        if (service.scaling.max_cost_per_hour) {
          ASSERT_LE(decided.predicted.cost_per_hour, *service.scaling.max_cost_per_hour + 1e-9);
        }
        const int before = service.memory.desired.value_or(service.last_desired.value_or(0));
        ASSERT_TRUE(decided.memory.desired.has_value());
        const bool fell = *decided.memory.desired < before;
        downs += fell;
        if (world.blind(s)) {
          ASSERT_FALSE(fell) << "on signals that are not there";
          ASSERT_TRUE(decided.desired_workers() >= before || is_denied(plan, service.id));
          ++blind;
        }
        const double known_s = service.memory.history_since_s ? snapshot.now_s - *service.memory.history_since_s : 0;
        if (known_s < service.scaling.scale_down_stabilization_s) {
          ASSERT_FALSE(fell) << "on a history of " << known_s << " s";
        }
        if (const auto& change = service.memory.last_change; change && change->direction == Direction::kUp && fell) {
          ASSERT_GE(snapshot.now_s - change->at_s, service.starts->p90_s);
        }
      }
      ASSERT_LE(gpus, 24);
      if (i % 20 == 7) {
        const auto replayed = snapshot_from_json(to_json(snapshot));
        ASSERT_TRUE(replayed.ok()) << replayed.error().message;
        ASSERT_EQ(to_json(make_plan(*replayed)), to_json(plan));
      }
      world.carry_out();
    }
  }
  EXPECT_GT(blind, effort(100, 800));
  EXPECT_GT(downs, effort(12, 100));
}

// Given steady Poisson load at several seeds and rates, including those at the edge between two numbers of workers; expects at
// most two changes of direction in two hours, after the first ten minutes.
TEST(PlanSequences, SteadyLoadDoesNotOscillate) {
  for (std::uint64_t seed = 0; seed < effort(3U, 12U); ++seed) {
    World world(seed, false, 64);
    const double rate = 10 + 15.5 * static_cast<double>(seed * effort(4U, 1U));
    std::vector<int> wanted;
    for (int i = 0; i < 840; ++i) {
      world.tick({rate, 5});
      if (i >= 120) wanted.push_back(*world.plan().services[0].memory.desired);
      world.carry_out();
    }
    int turns = 0;
    int last = 0;
    for (std::size_t i = 1; i < wanted.size(); ++i) {
      const int step = wanted[i] - wanted[i - 1];
      if (step == 0) continue;
      const int direction = step > 0 ? 1 : -1;
      turns += last != 0 && direction != last;
      last = direction;
    }
    EXPECT_LE(turns, 2) << "seed " << seed << ", " << rate << " requests/s";
  }
}

}  // namespace
}  // namespace windlass::planner
