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
      worker.can_change_role = true;
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

  // The first plan with changes of roles within this many seconds; every plan before it is carried out.
  ServicePlan plan_when_roles_change(double seconds, double requests_per_s, double input_tokens, double output_tokens) {
    for (const double until_s = snapshot_.now_s + seconds;; snapshot_.now_s += 10) {
      see(requests_per_s, input_tokens, output_tokens);
      ServicePlan planned = plan();
      if (!planned.role_changes.empty() || snapshot_.now_s >= until_s) return planned;
      EXPECT_EQ(of(planned, Role::kPrefill) + of(planned, Role::kDecode), static_cast<int>(chat().workers.size()));
      become(planned);
    }
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

// Given requests that the mixed pool served; expects a reason with their number. Given none; expects no reason.
TEST_F(RoleChanges, TheMixedPoolIsExplained) {
  see(5, 500, 200);
  EXPECT_FALSE(has_reason(plan(), "MixedPool"));
  chat().demand.mixed_pool = Reading{7, snapshot_.now_s};
  const ServicePlan planned = plan();
  const auto found = std::find_if(planned.reasons.begin(), planned.reasons.end(),
                                  [](const Reason& reason) { return reason.code == "MixedPool"; });
  ASSERT_NE(found, planned.reasons.end());
  EXPECT_EQ(found->pass, "Roles");
  EXPECT_NE(found->message.find("the mixed pool served 7 requests in the last 600 s"), std::string::npos) << found->message;
}

// Given long prompts and then long answers, with as many workers as are allowed; expects spare prefill workers to become decode
// workers once they are no longer held, and none to start or end, with the reason among those of the plan for ten minutes.
// Given long prompts again; expects the change back at once, and no other change after either.
TEST_F(RoleChanges, FollowTheLengthsWithinFixedHardware) {
  chat().scaling.min_workers = 4;
  chat().scaling.max_workers = 4;
  settle(120, 5, 6000, 20);
  ASSERT_EQ(running(Role::kPrefill), 3);
  ASSERT_EQ(running(Role::kDecode), 1);
  const ServicePlan changed = plan_when_roles_change(chat().scaling.scale_down_stabilization_s + 60, 5, 100, 1500);
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
  for (const double at_s : {10.0, 500.0}) {
    snapshot_.now_s += at_s;
    see(5, 100, 1500);
    const ServicePlan later = plan();
    EXPECT_TRUE(later.role_changes.empty()) << at_s;
    EXPECT_EQ(of(later, Role::kPrefill), 1) << at_s;
    EXPECT_EQ(of(later, Role::kDecode), 3) << at_s;
    EXPECT_TRUE(has_reason(later, "RoleChange")) << at_s;
    become(later);
  }
  snapshot_.now_s += 200;
  see(5, 100, 1500);
  EXPECT_FALSE(has_reason(plan(), "RoleChange"));
  see(5, 6000, 20);
  const ServicePlan back = plan();
  ASSERT_EQ(back.role_changes.size(), 1U);
  EXPECT_EQ(back.role_changes[0].to, Role::kPrefill);
  EXPECT_EQ(of(back, Role::kPrefill), 3);
  become(back);
  snapshot_.now_s += 10;
  see(5, 6000, 20);
  EXPECT_TRUE(plan().role_changes.empty());
  EXPECT_EQ(of(plan(), Role::kPrefill), 3);
}

// Given workers of which only some can change their role; expects no more changes than those.
TEST_F(RoleChanges, OnlyOfWorkersThatCan) {
  chat().scaling.min_workers = 4;
  chat().scaling.max_workers = 4;
  settle(120, 5, 100, 1500);
  ASSERT_EQ(running(Role::kDecode), 3);
  see(5, 6000, 20);
  ASSERT_EQ(plan().role_changes.at(0).workers, 2);
  int left = 1;
  for (Worker& worker : chat().workers) worker.can_change_role = worker.role == Role::kDecode && left-- > 0;
  ASSERT_EQ(plan().role_changes.size(), 1U);
  EXPECT_EQ(plan().role_changes[0].workers, 1);
  for (Worker& worker : chat().workers) worker.can_change_role = false;
  EXPECT_TRUE(plan().role_changes.empty());
  EXPECT_FALSE(has_reason(plan(), "RoleChange"));
}

// Given workers that do not serve yet, or a service that is only advised; expects no role changes.
TEST_F(RoleChanges, NeedWorkersThatServe) {
  chat().scaling.min_workers = 4;
  chat().scaling.max_workers = 4;
  settle(120, 5, 100, 1500);
  see(5, 6000, 20);
  const Snapshot ready = snapshot_;
  ASSERT_FALSE(plan().role_changes.empty());
  int serving = 1;
  for (Worker& worker : chat().workers) {
    if (worker.role == Role::kDecode && serving-- <= 0) worker.state = WorkerState::kStarting;
  }
  EXPECT_TRUE(plan().role_changes.empty()) << "the only ready decode worker is needed";
  snapshot_ = ready;
  chat().scaling.mode = Mode::kRecommend;
  EXPECT_TRUE(plan().role_changes.empty());
}

// Given random loads and lengths in turn, sometimes without signals; expects in every plan that no role
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
      if (k > 0 && rng.uniform() < 0.2) chat().demand.arrivals_per_s.reset();
      const Plan whole = make_plan(snapshot_);
      const ServicePlan& planned = whole.services[0];
      EXPECT_GE(planned.desired_workers(), 1);
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
