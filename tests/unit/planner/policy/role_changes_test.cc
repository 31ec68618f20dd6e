// Tests which workers take the other role of a split service while they run: how many, when, and never more than are spare.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/policy/json.h"
#include "planner/policy/make_plan.h"
#include "planner/policy/trouble.h"
#include "tests/effort.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

using dispatch::Role;
using testing::a100;
using testing::carry_out;
using testing::chat_service;
using testing::h100;
using testing::has_reason;
using testing::observe;
using testing::ready_worker;
using testing::split_offers;
using testing::with_gpus;

constexpr double kNow = 100'000;

// Both phases on one H100, for prompts and answers of the spec's 512 and 256 tokens.
class RoleChanges : public ::testing::Test {
 protected:
  RoleChanges() {
    snapshot_.now_s = kNow;
    snapshot_.accelerators = {with_gpus(h100(), 64)};
    snapshot_.services = {chat_service("chat")};
    Service& service = chat();
    service.scaling.strategy = Family::kDisaggregated;
    service.offers = split_offers({"h100", 1, 20}, {"h100", 1, 10});
    service.memory.history_since_s = kNow - 3600;
    service.starts = StartTimes{1, 10};
    observe(service, kNow, 0);
  }

  Service& chat() { return snapshot_.services[0]; }
  // What is seen from now on. The rate has been the same for a while.
  void see(double requests_per_s, double input_tokens, double output_tokens) {
    const double now_s = snapshot_.now_s;
    observe(chat(), now_s, requests_per_s);
    chat().demand.arrivals_window_s = 60;
    chat().demand.input_tokens = Reading{input_tokens, now_s};
    chat().demand.output_tokens = Reading{output_tokens, now_s};
    for (Worker& worker : chat().workers) {
      for (auto* reading : {&worker.running, &worker.waiting}) *reading = Reading{0, now_s};
    }
  }
  ServicePlan plan() { return make_plan(snapshot_).services[0]; }
  void become(const ServicePlan& plan) { carry_out(plan, chat(), snapshot_.now_s); }
  // Plans every ten seconds, and carries each plan out.
  void settle(double seconds, double requests_per_s, double input_tokens, double output_tokens) {
    for (double until_s = snapshot_.now_s + seconds; snapshot_.now_s < until_s; snapshot_.now_s += 10) {
      see(requests_per_s, input_tokens, output_tokens);
      become(plan());
    }
    see(requests_per_s, input_tokens, output_tokens);
  }

  static int of(const ServicePlan& plan, Role role) {
    int workers = 0;
    for (const Pool& pool : plan.pools) workers += pool.role == role ? pool.workers : 0;
    return workers;
  }
  int running(Role role) {
    return static_cast<int>(
        std::count_if(chat().workers.begin(), chat().workers.end(), [&](const Worker& worker) { return worker.role == role; }));
  }

  Snapshot snapshot_;
};

// Given long prompts and then long answers, with as many workers as are allowed; expects spare prefill workers to become decode
// workers at once and none to start, with the reason among those of the plan for ten minutes.
TEST_F(RoleChanges, FollowTheLengthsWithinFixedHardware) {
  chat().scaling.min_workers = 4;
  chat().scaling.max_workers = 4;
  settle(120, 5, 6000, 20);
  ASSERT_EQ(running(Role::kPrefill), 3);
  ASSERT_EQ(running(Role::kDecode), 1);
  see(5, 100, 1500);
  const ServicePlan changed = plan();
  EXPECT_EQ(of(changed, Role::kPrefill), 1);
  EXPECT_EQ(of(changed, Role::kDecode), 3);
  ASSERT_EQ(changed.role_changes.size(), 1U);
  const RoleChange& change = changed.role_changes[0];
  EXPECT_EQ(change.pool, "h100-1");
  EXPECT_EQ(change.from, Role::kPrefill);
  EXPECT_EQ(change.to, Role::kDecode);
  EXPECT_EQ(change.workers, 2);
  EXPECT_NE(change.why.find("which need 1 prefill worker (3 serve) and 3 decode workers (there are 1)"), std::string::npos)
      << change.why;
  EXPECT_TRUE(has_reason(changed, "RoleChange"));
  become(changed);
  snapshot_.now_s += 500;
  see(5, 100, 1500);
  const ServicePlan later = plan();
  EXPECT_TRUE(later.role_changes.empty());
  EXPECT_TRUE(has_reason(later, "RoleChange"));
  become(later);
  snapshot_.now_s += 200;
  see(5, 100, 1500);
  EXPECT_FALSE(has_reason(plan(), "RoleChange"));
  see(5, 6000, 20);
  const ServicePlan back = plan();
  ASSERT_EQ(back.role_changes.size(), 1U);
  EXPECT_EQ(back.role_changes[0].to, Role::kPrefill);
  EXPECT_EQ(of(back, Role::kPrefill), 3);
}

// Given room for more workers and answers that become long; expects prefill workers that are held only for load that is over to
// become decode workers before any starts. Those that decode does not need stay for the stabilization window.
TEST_F(RoleChanges, ComeBeforeNewWorkers) {
  settle(900, 30, 6000, 20);
  const int prefill = running(Role::kPrefill), decode = running(Role::kDecode);
  ASSERT_GE(prefill, 6);
  see(30, 500, 100);
  const ServicePlan fewer = plan();
  EXPECT_EQ(of(fewer, Role::kPrefill) + of(fewer, Role::kDecode), prefill + decode) << "nothing goes yet";
  see(30, 500, 1500);
  const ServicePlan changed = plan();
  ASSERT_EQ(changed.role_changes.size(), 1U);
  const int more = of(changed, Role::kDecode) - decode;
  ASSERT_GT(more, 0);
  EXPECT_EQ(changed.role_changes[0].workers, std::min(more, prefill - of(changed, Role::kPrefill)));
  EXPECT_LE(of(changed, Role::kPrefill) + of(changed, Role::kDecode),
            std::max(prefill + decode, of(changed, Role::kDecode) + 2));
  settle(600, 30, 500, 1500);
  const int least = of(plan(), Role::kPrefill);
  EXPECT_LT(least, prefill);
  // Back again: decode workers that are held become prefill workers at once.
  const int held = running(Role::kDecode);
  see(30, 6000, 20);
  const ServicePlan back = plan();
  ASSERT_EQ(back.role_changes.size(), 1U);
  EXPECT_EQ(back.role_changes[0].to, Role::kPrefill);
  EXPECT_EQ(back.role_changes[0].workers, std::min(held - of(back, Role::kDecode), of(back, Role::kPrefill) - least));
  EXPECT_GT(back.role_changes[0].workers, 0);
}

// Given roles that were exchanged under a held number of decode workers, and signals that are missing from then on; expects the
// numbers of both to stay, whatever time passes.
TEST_F(RoleChanges, StayWithoutSignals) {
  settle(600, 30, 500, 1500);
  see(30, 6000, 20);
  const ServicePlan changed = plan();
  ASSERT_FALSE(changed.role_changes.empty());
  become(changed);
  for (const double wait_s : {40.0, 400.0}) {
    snapshot_.now_s += wait_s;
    const ServicePlan blind = plan();
    EXPECT_EQ(of(blind, Role::kPrefill), of(changed, Role::kPrefill)) << wait_s;
    EXPECT_EQ(of(blind, Role::kDecode), of(changed, Role::kDecode)) << wait_s;
    EXPECT_TRUE(blind.role_changes.empty());
    become(blind);
  }
}

// Given another engine, phases on different classes, or workers that do not serve yet; expects no role changes.
TEST_F(RoleChanges, NeedTheSameKindOfWorkerAndOurEngine) {
  chat().scaling.min_workers = 4;
  chat().scaling.max_workers = 4;
  settle(120, 5, 6000, 20);
  see(5, 100, 1500);
  const Snapshot ready = snapshot_;
  ASSERT_FALSE(plan().role_changes.empty());
  chat().engine = EngineType::kVLLM;
  EXPECT_TRUE(plan().role_changes.empty());
  snapshot_ = ready;
  for (Worker& worker : chat().workers) {
    if (worker.role == Role::kPrefill && worker.slot != 1) worker.state = WorkerState::kStarting;
  }
  EXPECT_TRUE(plan().role_changes.empty()) << "the only ready prefill worker is needed";
  snapshot_ = ready;
  chat().scaling.mode = Mode::kRecommend;
  EXPECT_TRUE(plan().role_changes.empty());
}

// Given random loads and lengths in turn, sometimes without signals, when nothing may go; expects in every plan that no role
// loses a worker that it needs, that none gets more than it lacks, that a plan with changes survives JSON, and that limits
// hold.
TEST_F(RoleChanges, NeverTakeWhatIsNeeded) {
  int changes = 0;
  for (int run = 0; run < effort(60, 600); ++run) {
    Rng rng(7, "role changes " + std::to_string(run));
    const Snapshot fresh = snapshot_;
    const int most = static_cast<int>(rng.uniform(2, 30));
    chat().scaling.max_workers = most;
    for (int k = 0; k < 12; ++k) {
      snapshot_.now_s += rng.uniform(5, 200);
      see(rng.uniform(1, 40), rng.uniform(20, 8000), rng.uniform(2, 2000));
      const bool blind = k > 0 && rng.uniform() < 0.2;
      if (blind) chat().demand.arrivals_per_s.reset();
      const Plan whole = make_plan(snapshot_);
      const ServicePlan& planned = whole.services[0];
      EXPECT_GE(planned.desired_workers(), blind ? static_cast<int>(chat().workers.size()) : 1);
      EXPECT_LE(planned.desired_workers(), most);
      for (const RoleChange& change : planned.role_changes) {
        ++changes;
        EXPECT_GT(change.workers, 0);
        EXPECT_LE(change.workers, running(change.from) - of(planned, change.from));
        EXPECT_LE(change.workers, of(planned, change.to) - running(change.to));
        EXPECT_GE(of(planned, change.from), 1);
      }
      EXPECT_EQ(plan_from_json(to_json(whole)).value(), whole);
      become(planned);
    }
    snapshot_ = fresh;
  }
  EXPECT_GT(changes, 20);
}

}  // namespace
}  // namespace windlass::planner
