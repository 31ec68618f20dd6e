// apply on services with split phases: pools with the same name and different roles.
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace windlass::controller
