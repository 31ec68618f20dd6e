// apply on services with split phases: pools with the same name and different roles.
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/reconcile/routes.h"
#include "tests/unit/controller/reconcile/apply_world.h"

namespace windlass::controller {
namespace {

using dispatch::Role;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<planner::Pool> split(int answering, int prompts) {
  planner::Pool decode = ApplyWorld::pool(answering), prefill = ApplyWorld::pool(prompts);
  decode.role = Role::kDecode;
  prefill.role = Role::kPrefill;
  return {decode, prefill};
}

// Slots of workers that are neither draining nor ending.
std::vector<int> slots_of(ApplyWorld& world, Role role) {
  std::vector<int> slots;
  for (const Worker& worker : world.runtime.workers()) {
    if (role_of(worker) == role && !worker.draining_since_s && !worker.terminating) slots.push_back(worker.slot);
  }
  return slots;
}

// Given two pools with the same name; expects the planned number of workers of each role, each in its own slot; another worker
// of a role takes the lowest free slot.
TEST(ApplyRoles, ShareTheSlotsOfAName) {
  ApplyWorld world;
  world.plan.pools = split(2, 1);
  world.run(3);
  EXPECT_THAT(slots_of(world, Role::kDecode), ElementsAre(0, 1));
  EXPECT_THAT(slots_of(world, Role::kPrefill), ElementsAre(2));
  world.plan.pools = split(2, 2);
  world.run(3);
  EXPECT_THAT(slots_of(world, Role::kPrefill), ElementsAre(2, 3));
  EXPECT_EQ(world.api.pods("default", "windlass.dev/pool=h100-1").size(), 4U);
}

// Given pods named, labelled and recorded by versions until 2026-11-28; expects an upgrade to create, change and end none.
TEST(ApplyRoles, AnUpgradeRestartsNoWorker) {
  ApplyWorld world;
  for (const planner::Pool& pool : split(1, 1)) {
    Launch launch = worker_spec(world.service, pool, 0, world.h100);
    launch.pool += std::string("-") + launch.role;
    launch.name = "chat-" + launch.pool + "-0";
    json pod = pod_of(launch, PodDefaults{"worker:1", "", kDefaultInstance}).value();
    const std::string hash = launch.hash();
    pod["metadata"]["annotations"]["windlass.dev/spec-hash"] = hash.substr(hash.find("v1-"));
    world.api.seed_object(pod);
    ASSERT_TRUE(
        world.api.kubelet_set("default", launch.name, {.phase = "Running", .ready = true, .pod_ip = "10.0.0.9", .node = "n1"}));
  }
  world.plan.pools = split(1, 1);
  std::set<std::string> written;
  world.api.admit = [&](const fakes::WriteAttempt& write) -> std::optional<fakes::Refusal> {
    if (write.resource.plural == "pods") written.insert(write.verb);
    return {};
  };
  world.run(30);
  EXPECT_THAT(written, IsEmpty());
  EXPECT_EQ(world.runtime.workers().size(), 2U);
}

// Given a prefill worker that fails repeatedly; expects its back-off to delay only its own role: another decode worker is
// created meanwhile, in its own slot.
TEST(ApplyRoles, AFailureDelaysOnlyItsOwnRole) {
  ApplyWorld world;
  world.plan.pools = split(1, 1);
  world.run(2);
  world.serve(0);
  for (const int wait_s : {2, 3, 5}) {
    world.report(1, {.phase = "Failed", .exit_code = 1});
    world.run(wait_s);
    EXPECT_THAT(slots_of(world, Role::kPrefill), ElementsAre(1)) << wait_s;
  }
  world.report(1, {.phase = "Failed", .exit_code = 1});
  world.step(0.1);
  world.plan.pools = split(2, 1);
  world.run(2);
  EXPECT_THAT(slots_of(world, Role::kPrefill), IsEmpty());
  EXPECT_THAT(slots_of(world, Role::kDecode), ElementsAre(0, 2));
}

// One decode worker (slot 0) and two prefill workers, all ready. The plan wants one of the latter to decode.
class RoleChange : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.plan.pools = split(1, 2);
    world_.run(3);
    for (const int slot : {0, 1, 2}) world_.serve(slot);
    world_.run(6);  // a leader waits a moment before it believes that nothing is in flight
    world_.wire->route("http://10.0.0.", [this](const kube::HttpRequest& request) -> Result<kube::HttpResponse> {
      if (!request.url.ends_with(":8000/role")) return Error{ErrorCode::kUnavailable, "not a page of this worker"};
      calls_.push_back(request);
      return kube::HttpResponse{status_, {}, "{}"};
    });
    for (const json& pod : world_.api.pods("default", "windlass.dev/pool=h100-1")) uids_.insert(pod["metadata"]["uid"]);
    world_.plan.pools = split(2, 1);
    world_.plan.role_changes = {{"h100-1", Role::kPrefill, Role::kDecode, 1, "answers are long"}};
    begun_ = world_.step();
    world_.plan.role_changes.clear();
  }

  // Whether the pods are still those of the beginning, with these roles by slot.
  void expect_roles(const std::vector<std::string>& roles) {
    ASSERT_EQ(world_.api.pods("default", "windlass.dev/pool=h100-1").size(), roles.size());
    for (std::size_t slot = 0; slot < roles.size(); ++slot) {
      const json metadata = world_.pod(static_cast<int>(slot)).value()["metadata"];
      EXPECT_TRUE(uids_.contains(metadata["uid"])) << slot;
      EXPECT_EQ(metadata["labels"]["windlass.dev/role"], roles[slot]) << slot;
    }
  }
  [[nodiscard]] bool changing(int slot) const {
    return world_.pod(slot).value()["metadata"]["annotations"].contains(kChangingRoleSince);
  }
  bool happens_within(int steps, const std::string& reason) {
    for (int i = 0; i < steps; ++i) {
      if (happened(world_.step(), reason)) return true;
    }
    return false;
  }

  ApplyWorld world_;
  Applied begun_;
  int status_ = 200;
  std::vector<kube::HttpRequest> calls_;
  std::set<std::string> uids_;
};

// Given a plan that moves a worker to the other role; expects the highest slot to be marked and drained, then told with its own
// token, and no pod to come or go.
TEST_F(RoleChange, TellsAWorkerOnceItIsQuiet) {
  EXPECT_TRUE(happened(begun_, "RoleChanging"));
  EXPECT_THAT(calls_, IsEmpty());
  expect_roles({"decode", "prefill", "decode"});
  EXPECT_TRUE(changing(2));
  EXPECT_TRUE(happens_within(3, "RoleChanged"));
  ASSERT_EQ(calls_.size(), 1U);
  EXPECT_EQ(calls_[0].url, "http://10.0.0.3:8000/role");
  EXPECT_EQ(json::parse(calls_[0].body), json({{"role", "decode"}}));
  EXPECT_EQ(calls_[0].headers.at("Authorization"), "Bearer " + world_.runtime.workers().at(2).duty_token);
  EXPECT_FALSE(changing(2));
  world_.run(30);
  expect_roles({"decode", "prefill", "decode"});
  EXPECT_EQ(calls_.size(), 1U);
}

// Given a gateway that never acknowledges a table; expects the worker to be told only after drainTimeout, and never ended.
TEST_F(RoleChange, WaitsForTheGatewaysAtMostDrainTimeout) {
  world_.add_silent_gateway();
  world_.run(590);
  EXPECT_THAT(calls_, IsEmpty());
  EXPECT_TRUE(changing(2));
  EXPECT_TRUE(happens_within(20, "RoleChanged"));
  expect_roles({"decode", "prefill", "decode"});
}

// Given a leader that is lost after the mark; expects the next one to go on, without a second change.
TEST_F(RoleChange, ANewLeaderGoesOn) {
  world_.state = {};
  world_.state.leading_since_s = 5000 + world_.now_s();
  EXPECT_TRUE(happens_within(10, "RoleChanged"));
  expect_roles({"decode", "prefill", "decode"});
  EXPECT_EQ(calls_.size(), 1U);
}

// Given a worker that does not answer for a while; expects further tries, and no worker created or ended meanwhile.
TEST_F(RoleChange, TriesAgain) {
  status_ = 503;
  EXPECT_FALSE(happens_within(10, "RoleChanged"));
  EXPECT_GT(calls_.size(), 1U);
  status_ = 200;
  EXPECT_TRUE(happens_within(2, "RoleChanged"));
  expect_roles({"decode", "prefill", "decode"});
}

// Given a worker that refuses for good; expects it to be drained, with a warning, and another decode worker in its place.
TEST_F(RoleChange, ReplacesAWorkerThatRefuses) {
  status_ = 403;
  EXPECT_TRUE(happens_within(5, "RoleChangeRefused"));
  world_.run(5);
  world_.finish_deletions();
  world_.run(5);
  EXPECT_THAT(slots_of(world_, Role::kPrefill), ElementsAre(1));
  EXPECT_EQ(slots_of(world_, Role::kDecode).size(), 2U);
  EXPECT_EQ(calls_.size(), 1U);
}

// Given a worker of an earlier version, without a token for changes, next to one with it; expects the one with it to change,
// although the other has the higher slot.
TEST(ApplyRoles, OnlyWorkersThatCanChangeAreChosen) {
  ApplyWorld world;
  world.plan.pools = split(1, 2);
  world.run(3);
  for (const int slot : {0, 1, 2}) world.serve(slot);
  world.api.edit(kube::resources::kPods, "default", world.pod_name(2), [](json& pod) {
    for (json& variable : pod["spec"]["containers"][0]["env"]) {
      if (variable["name"] == "WINDLASS_DUTY_TOKEN") variable["name"] = "UNKNOWN";
    }
  });
  world.run(2);
  world.plan.pools = split(2, 1);
  world.plan.role_changes = {{"h100-1", Role::kPrefill, Role::kDecode, 1, "answers are long"}};
  world.run(1);
  EXPECT_EQ(world.pod(1).value()["metadata"]["labels"]["windlass.dev/role"], "decode");
  EXPECT_EQ(world.pod(2).value()["metadata"]["labels"]["windlass.dev/role"], "prefill");
}

// Given pools of one name that hold different numbers of requests; expects every worker to be started for the larger number.
TEST(ApplyRoles, WorkersAreAsLargeAsEitherRoleNeeds) {
  ApplyWorld world;
  world.plan.pools = split(1, 1);
  world.plan.pools[0].each.max_concurrency = 64;
  world.run(3);
  for (const Worker& worker : world.runtime.workers()) EXPECT_EQ(worker.max_concurrency, 64) << worker.name;
}

}  // namespace
}  // namespace windlass::controller
