// apply on a fake API server: separate back-offs, lost nodes, quotas, refused templates, and drains under a wrong clock.
#include "controller/reconcile/apply.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/reconcile/apply_world.h"

namespace windlass::controller {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

// Given: a pool of three workers, one of which crash-loops. Expected: the others are there; the failing one is recreated after
// its own back-off, twice as long the second time, while the others are untouched.
TEST(Apply, ACrashLoopDelaysOnlyItsOwnSlot) {
  ApplyWorld world;
  world.plan.pools = {ApplyWorld::pool(3)};
  world.run(2);
  world.serve(0);
  world.serve(2);
  const std::string untouched = (*world.pod(0))["metadata"]["resourceVersion"];
  const auto crash = [&] {
    world.report(1, {.phase = "Running", .restarts = 4, .waiting_reason = "CrashLoopBackOff"});
    return (*world.pod(1))["metadata"]["uid"].get<std::string>();
  };
  const std::string first = crash();
  EXPECT_TRUE(happened(world.step(), "CrashLoop"));
  world.step(100);
  EXPECT_EQ((*world.pod(1))["metadata"]["uid"], first) << "replaced before its back-off was over";
  world.step(25);
  world.finish_deletions();
  world.run(3);
  const std::string second = crash();
  EXPECT_NE(second, first);
  world.step();
  world.step(200);
  EXPECT_EQ((*world.pod(1))["metadata"]["uid"], second) << "the second back-off is no longer than the first";
  world.step(50);
  world.finish_deletions();
  world.run(3);
  EXPECT_NE((*world.pod(1))["metadata"]["uid"], second);
  EXPECT_THAT(world.slots(), UnorderedElementsAre(0, 1, 2));
  EXPECT_EQ((*world.pod(0))["metadata"]["resourceVersion"], untouched);
}

// Given: a worker that fails and recovers before its back-off is over. Expected: it stays.
TEST(Apply, ARecoveredWorkerIsNotReplaced) {
  ApplyWorld world;
  world.run(2);
  const std::string uid = (*world.pod(0))["metadata"]["uid"];
  world.report(0, {.phase = "Running", .restarts = 4, .waiting_reason = "CrashLoopBackOff"});
  world.step();
  world.serve(0);
  world.step(60);
  world.step(3600);
  EXPECT_EQ((*world.pod(0))["metadata"]["uid"], uid);
  EXPECT_FALSE((*world.pod(0))["metadata"].contains("deletionTimestamp"));
}

// Given: the pod of slot 0 ends for good repeatedly, and the plan then wants two workers. Expected: it is recreated after one,
// two and four seconds, and the second worker does not wait for it.
TEST(Apply, AnEndedWorkerIsRecreatedAfterItsBackOff) {
  ApplyWorld world;
  world.run(2);
  for (const int wait_s : {1, 2, 4}) {
    world.report(0, {.phase = "Failed", .exit_code = 1});
    world.step(0.1);
    EXPECT_THAT(world.slots(), ElementsAre()) << wait_s;
    world.step(wait_s - 0.5);
    EXPECT_THAT(world.slots(), ElementsAre()) << wait_s;
    world.step(0.5);
    EXPECT_THAT(world.slots(), ElementsAre(0)) << wait_s;
  }
  EXPECT_THAT(world.memory().create_backoff->message, HasSubstr("chat-h100-1-0"));
  world.report(0, {.phase = "Failed", .exit_code = 1});
  world.plan.pools = {ApplyWorld::pool(2)};
  world.step(0.1);
  world.step(0.1);
  EXPECT_THAT(world.slots(), ElementsAre(1));
  world.step(8);
  EXPECT_THAT(world.slots(), UnorderedElementsAre(0, 1));
}

// Given: a worker whose image cannot be pulled, replaced once already so that its back-off is minutes long, and a person who
// deletes its pod. Expected: a new one is created immediately, and the earlier failures are remembered.
TEST(Apply, AFailingWorkerDeletedByAPersonIsRecreatedImmediately) {
  ApplyWorld world;
  const auto fail = [&] { world.report(0, {.phase = "Pending", .waiting_reason = "ImagePullBackOff"}); };
  world.run(2);
  fail();
  world.run(124);
  world.finish_deletions();
  world.run(2);
  ASSERT_THAT(world.slots(), ElementsAre(0)) << "replaced";
  fail();
  world.run(2);
  const std::string uid = (*world.pod(0))["metadata"]["uid"];
  world.api.delete_object(kube::resources::kPods, "default", world.pod_name(0), true);
  world.run(2);
  ASSERT_TRUE(world.pod(0));
  EXPECT_NE((*world.pod(0))["metadata"]["uid"], uid);
  const Backoff* patience =
      world.state.services[world.service.metadata.uid].backoffs.find({{"h100-1"}, 0, FailureKind::kFailing});
  ASSERT_NE(patience, nullptr);
  EXPECT_EQ(patience->delay_s, 240);
}

// Given: a failure, then a quiet time longer than Backoffs::kStableS. Expected: the next failure starts at the shortest delay.
TEST(Backoffs, AreForgottenAfterAStableTime) {
  Backoffs backoffs;
  const Backoffs::Place place{{"a"}, 0, FailureKind::kEnded};
  for (int i = 0; i < 20; ++i) (void)backoffs.failed(place, 0, "WorkerFailed", "x");
  EXPECT_EQ(backoffs.find(place)->delay_s, 300) << "bounded";
  backoffs.expire(599);
  EXPECT_NE(backoffs.find(place), nullptr);
  backoffs.expire(600);
  EXPECT_EQ(backoffs.failed(place, 700, "WorkerFailed", "x").delay_s, 1);
}

// Given: back-offs of one pool's slot and of another whole pool, and a refusal of the former. Expected: each delays its own
// place; the refusal is reported first; acceptance forgets only refusals.
TEST(Backoffs, DelayOnlyTheirOwnPlace) {
  Backoffs backoffs;
  (void)backoffs.failed({{"a"}, 3, FailureKind::kEnded}, 10, "WorkerFailed", "ended");
  (void)backoffs.failed({{"b"}, kWholePool, FailureKind::kQuota}, 5, "QuotaExceeded", "quota", 30);
  EXPECT_FALSE(backoffs.holds({"a"}, 10));
  EXPECT_THAT(backoffs.held_slots({"a"}, 10), ElementsAre(3));
  EXPECT_TRUE(backoffs.holds({"b"}, 34));
  EXPECT_FALSE(backoffs.holds({"b"}, 35));
  EXPECT_EQ(backoffs.worst()->code, "QuotaExceeded");
  EXPECT_EQ(backoffs.refusal(34)->code, "QuotaExceeded");
  backoffs.accepted({"b"}, 0);
  EXPECT_EQ(backoffs.worst()->code, "WorkerFailed");
  EXPECT_EQ(backoffs.refusal(34), nullptr);
}

// Given: two pools and eight slots of one service, each tried as soon as its own back-off permits, all refused. Expected: at
// most a dozen in total within any minute, and the shared pace ends once a minute was quiet or all is well.
TEST(Backoffs, RefusalsShareAPace) {
  Backoffs backoffs;
  std::vector<double> tries_s;
  for (double now_s = 0; now_s < 600; now_s += 0.25) {
    for (const char* pool : {"a", "b"}) {
      for (int slot = 0; slot < 4; ++slot) {
        if (backoffs.holds({pool}, now_s) || backoffs.held_slots({pool}, now_s).contains(slot)) continue;
        tries_s.push_back(now_s);
        (void)backoffs.failed({{pool}, slot, FailureKind::kCreate}, now_s, "CreateFailed", "no");
      }
    }
  }
  std::size_t most = 0;
  for (const double end_s : tries_s) {
    most = std::max(most, static_cast<std::size_t>(std::count_if(tries_s.begin(), tries_s.end(), [&](double at_s) {
                      return at_s > end_s - 60 && at_s <= end_s;
                    })));
  }
  EXPECT_LE(most, 12U);
  EXPECT_GE(tries_s.size(), 40U) << "tried on and on";
  EXPECT_TRUE(backoffs.holds({"c"}, tries_s.back() + 9)) << "of the service, not of the pool";
  EXPECT_FALSE(backoffs.holds({"c"}, tries_s.back() + 10));
  (void)backoffs.failed({{"c"}, 0, FailureKind::kCreate}, tries_s.back() + 70, "CreateFailed", "no");
  EXPECT_FALSE(backoffs.holds({"d"}, tries_s.back() + 70)) << "after a quiet minute one refusal paces nobody";
}

// Given: a quota without room beyond the ready workers (none, one), and a plan that adds another worker and removes it every
// second, as two services do that yield to each other. Expected: the back-off continues: no more tries than with a constant
// plan.
TEST(Apply, AYieldingServiceKeepsItsBackOff) {
  for (const int serving : {0, 1}) {
    ApplyWorld world;
    const auto planned = [](int workers) {
      return workers == 0 ? std::vector<planner::Pool>{} : std::vector{ApplyWorld::pool(workers)};
    };
    world.plan.pools = planned(serving);
    world.run(2);
    for (int slot = 0; slot < serving; ++slot) world.serve(slot);
    int refused = 0;
    world.api.admit = [&](const fakes::WriteAttempt& write) -> std::optional<fakes::Refusal> {
      if (write.verb != "create" || write.resource.plural != "pods") return {};
      ++refused;
      return fakes::exceeded_quota("gpus, requested: requests.nvidia.com/gpu=1, used: 8, limited: 8");
    };
    for (int i = 0; i < 120; ++i) {
      world.plan.pools = planned(serving + (i + 1) % 2);
      (void)world.step();
    }
    EXPECT_LE(refused, 9) << serving << " serving";
    EXPECT_GE(refused, 4) << serving << " serving";
  }
}

// Given: two workers at 2 per hour, maxCostPerHour 5, and a new configuration of one worker at 4. Expected: the remaining
// workers never cost more than 5; the old ones make room, and the new one comes.
TEST(Apply, AChangeOfConfigurationStaysWithinTheBudget) {
  ApplyWorld world;
  world.h100.spec.price_per_hour = 2;
  world.service.spec.scaling.max_cost_per_hour = 5;
  world.plan.pools = {ApplyWorld::pool(2)};
  world.run(2);
  for (int slot = 0; slot < 2; ++slot) world.serve(slot);
  world.run(2);
  planner::Pool wide = ApplyWorld::pool(1);
  wide.name = "h100-2";
  wide.spec.tensor_parallel = 2;
  world.plan.pools = {wide};
  std::vector<std::string> pools;
  for (int i = 0; i < 700; ++i) {
    (void)world.step();
    world.finish_deletions();
    double cost = 0;
    pools.clear();
    for (const nlohmann::json& pod : world.api.pods("default")) {
      const auto worker = worker_of(pod);
      if (!worker || worker->draining_since_s || worker->terminating || worker->finished) continue;
      cost += 2 * worker->gpus;
      pools.push_back(worker->pool);
    }
    ASSERT_LE(cost, 5);
  }
  EXPECT_THAT(pools, ElementsAre("h100-2"));
}

// Given: two outdated workers of five GPUs on two nodes of eight, so that six GPUs are free, but no node has five of them.
// Expected: no third worker next to them, which would find no node; an outdated one drains first.
TEST(Apply, ASuccessorNeedsRoomOnOneNode) {
  ApplyWorld world;
  planner::Pool wide = ApplyWorld::pool(2);
  wide.spec.tensor_parallel = 5;
  world.add_node("n2", 8);
  world.plan.pools = {wide};
  world.run(2);
  world.serve(0);
  world.serve(1, "n2");
  world.run(2);
  world.service.spec.engine.pod_template_json = R"({"spec": {"schedulerName": "mine"}})";
  for (int i = 0; i < 5; ++i) {
    world.step();
    EXPECT_LE(world.slots().size(), 2U) << i;
  }
  EXPECT_EQ(world.api.pods("default").size(), 3U);
}

// Given: a quota with room for two of four workers. Expected: two are created; the refusal names its quota and is retried less
// and less often; once there is room, the rest follow and the refusal is forgotten.
TEST(Apply, AQuotaIsANamedRefusalWithBackOff) {
  ApplyWorld world;
  world.plan.pools = {ApplyWorld::pool(4)};
  int room = 2, refused = 0;
  world.api.admit = [&](const fakes::WriteAttempt& write) -> std::optional<fakes::Refusal> {
    if (write.verb != "create" || write.resource.plural != "pods" || static_cast<int>(world.slots().size()) < room) return {};
    ++refused;
    return fakes::exceeded_quota("gpus, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=2, limited: 2");
  };
  world.run(120);
  EXPECT_THAT(world.slots(), UnorderedElementsAre(0, 1));
  EXPECT_LE(refused, 9) << "1 + 2 + 4 + ... up to 60 s between them";
  ASSERT_TRUE(world.memory().create_backoff);
  EXPECT_EQ(world.memory().create_backoff->code, "QuotaExceeded");
  EXPECT_THAT(world.memory().create_backoff->message, HasSubstr("ResourceQuota gpus of namespace default"));
  EXPECT_THAT(world.memory().create_backoff->message, HasSubstr("requests.nvidia.com/gpu=2"));
  room = 6;
  world.run(62);
  EXPECT_THAT(world.slots(), UnorderedElementsAre(0, 1, 2, 3));
  for (int slot = 0; slot < 4; ++slot) world.serve(slot);
  world.run(2);
  EXPECT_FALSE(world.memory().create_backoff);
}

// Given: an API server that answers 429 with Retry-After: 20. Expected: nothing is written before that time, then everything.
TEST(Apply, RetryAfterIsHonoured) {
  ApplyWorld world;
  world.plan.pools = {ApplyWorld::pool(2)};
  int asked = 0;
  bool busy = true;
  world.api.admit = [&](const fakes::WriteAttempt& write) -> std::optional<fakes::Refusal> {
    if (write.verb != "create") return {};
    ++asked;
    if (!busy) return {};
    fakes::Refusal refusal;
    refusal.code = 429;
    refusal.reason = "TooManyRequests";
    refusal.retry_after_s = 20;
    return refusal;
  };
  world.run(19);
  EXPECT_EQ(asked, 1);
  busy = false;
  world.run(4);
  EXPECT_THAT(world.slots(), UnorderedElementsAre(0, 1));
}

// Given: two ready workers and an edit whose pod the API server refuses. Expected: running workers are never touched, and the
// refusal has the server's message; a corrected edit is rolled out.
TEST(Apply, ARefusedTemplateChangesNothingThatRuns) {
  ApplyWorld world;
  world.plan.pools = {ApplyWorld::pool(2)};
  world.run(2);
  world.serve(0);
  world.serve(1);
  world.step();
  const std::uint64_t before = world.api.version();
  world.api.admit = [&](const fakes::WriteAttempt& write) -> std::optional<fakes::Refusal> {
    if (write.resource.plural != "pods" || write.object["spec"].value("schedulerName", "") != "no such") return {};
    fakes::Refusal refusal;
    refusal.code = 422;
    refusal.reason = "Invalid";
    refusal.message = "Pod is invalid: spec.schedulerName: Invalid value";
    return refusal;
  };
  world.service.spec.engine.pod_template_json = R"({"spec": {"schedulerName": "no such"}})";
  world.run(100);
  EXPECT_EQ(world.api.version(), before);
  ASSERT_TRUE(world.memory().create_backoff);
  EXPECT_EQ(world.memory().create_backoff->code, "PodTemplateInvalid");
  EXPECT_THAT(world.memory().create_backoff->message, HasSubstr("spec.schedulerName: Invalid value"));

  world.service.spec.engine.pod_template_json = R"({"spec": {"schedulerName": "mine"}})";
  for (int i = 0; i < 200; ++i) {
    world.step();
    world.finish_deletions();
    for (const int slot : world.slots()) {
      if (!(*world.pod(slot))["status"].value("podIP", "").size()) world.serve(slot);
    }
  }
  EXPECT_EQ(world.slots().size(), 2U);
  for (const int slot : world.slots()) EXPECT_EQ((*world.pod(slot))["spec"]["schedulerName"], "mine");
}

// Given: three workers, one unschedulable, one starting, one ready and idle; the plan falls to two, then to one. Expected: the
// one in trouble goes first, then the one that is not ready.
TEST(Apply, FailingWorkersGoFirst) {
  ApplyWorld world;
  world.plan.pools = {ApplyWorld::pool(3)};
  world.run(2);
  world.serve(0);
  world.report(1, {.phase = "Running", .restarts = 3, .waiting_reason = "CrashLoopBackOff"});
  world.report(2, {.phase = "Running", .ready = false});
  world.plan.pools = {ApplyWorld::pool(2)};
  world.step();
  EXPECT_THAT(world.slots(), UnorderedElementsAre(0, 2));
  world.plan.pools = {ApplyWorld::pool(1)};
  world.step();
  EXPECT_THAT(world.slots(), UnorderedElementsAre(0));
}

// Given: two nodes with a worker each, and one node falls silent. Expected: a replacement is created in another slot
// immediately; the lost worker is asked to end only after five minutes, and is removed only when its node is gone.
TEST(Apply, AWorkerOnALostNodeIsReplacedElsewhere) {
  ApplyWorld world;
  world.serve_on_two_nodes();
  world.step();
  const std::string lost = (*world.pod(1))["metadata"]["uid"];
  world.silence("n2", 1);
  world.run(2);
  EXPECT_THAT(world.slots(), UnorderedElementsAre(0, 1, 2));
  world.serve(2);
  world.step(290);
  EXPECT_FALSE((*world.pod(1))["metadata"].contains("deletionTimestamp"));
  EXPECT_TRUE(happened(world.step(20), "WorkerLost"));
  EXPECT_TRUE((*world.pod(1))["metadata"].contains("deletionTimestamp"));
  world.step(1000);
  EXPECT_EQ((*world.pod(1))["metadata"]["uid"], lost) << "removed without a word from its node";
  world.api.delete_object(kube::resources::kNodes, "", "n2", true);
  world.step();
  EXPECT_TRUE(world.pod(1)) << "the caches may only be behind one another";
  world.run(40);
  EXPECT_FALSE(world.pod(1));
  EXPECT_THAT(world.slots(), UnorderedElementsAre(0, 2));
}

// Given one ready worker and one starting, and then a class that cannot be read for a while; expects both to stay, and no other
// to be created, until the class is back.
TEST(Apply, AnUnreadableClassChangesNoWorker) {
  ApplyWorld world;
  world.plan.pools = {ApplyWorld::pool(2)};
  world.run(2);
  world.serve(0);
  world.class_readable = false;
  world.run(3);
  EXPECT_THAT(world.slots(), ElementsAre(0, 1));
  for (const int slot : {0, 1}) EXPECT_FALSE((*world.pod(slot))["metadata"].contains("deletionTimestamp")) << slot;
}

// Given: a lost node that answers again before the five minutes are over. Expected: the surplus worker is drained, never more
// than one.
TEST(Apply, ALostNodeThatComesBackLeavesASurplus) {
  ApplyWorld world;
  world.serve_on_two_nodes();
  world.silence("n2", 1);
  world.run(2);
  world.serve(2);
  world.run(2);
  world.say_of_node("n2", "True");
  world.serve(1, "n2");
  world.run(2);
  EXPECT_EQ(world.slots().size(), 2U);
}

// Given: a node that seems silent for long while its pod reports ready, because one of the two is known late (seed 5010).
// Expected: the worker stays; it goes once its pod is reported not ready.
TEST(Apply, AReadyWorkerOnASilentNodeIsNotGivenUp) {
  ApplyWorld world;
  world.serve_on_two_nodes();
  world.step();
  world.say_of_node("n2", "Unknown");
  world.run(2);
  world.serve(2);
  world.step(400);
  EXPECT_FALSE(happened(world.step(10), "WorkerLost"));
  EXPECT_FALSE((*world.pod(1))["metadata"].contains("deletionTimestamp"));
  world.silence("n2", 1);
  EXPECT_TRUE(happened(world.step(10), "WorkerLost"));
}

// Given: maxWorkers is reached and a node falls silent. Expected: the lost worker is asked to end before its replacement is
// created.
TEST(Apply, ALostWorkersReplacementStaysWithinTheLimit) {
  ApplyWorld world;
  world.service.spec.scaling.max_workers = 2;
  world.serve_on_two_nodes();
  world.silence("n2", 1);
  for (int i = 0; i < 5; ++i) {
    world.step();
    EXPECT_LE(world.slots().size(), 2U);
  }
  EXPECT_THAT(world.slots(), UnorderedElementsAre(0, 2));
}

// Given: all three nodes seem silent at the same time. Expected: no worker is ever given up, because it is the control plane
// that cannot see.
TEST(Apply, NoWorkerIsGivenUpWhileMostNodesSeemLost) {
  ApplyWorld world;
  world.service.spec.scaling.max_workers = 3;
  world.add_node("n2", 8);
  world.add_node("n3", 8);
  world.plan.pools = {ApplyWorld::pool(3)};
  world.run(2);
  for (int slot = 0; slot < 3; ++slot) world.serve(slot, "n" + std::to_string(slot + 1));
  world.step();
  for (int slot = 0; slot < 3; ++slot) world.silence("n" + std::to_string(slot + 1), slot);
  world.run(2);
  world.step(2000);
  world.run(2);
  EXPECT_THAT(world.slots(), UnorderedElementsAre(0, 1, 2));
}

// Given: a worker's node is cordoned while another has room. Expected: a replacement starts first; the worker on the cordoned
// node drains only once the replacement is ready.
TEST(Apply, ACordonedNodesWorkersMoveFirst) {
  ApplyWorld world;
  world.add_node("n2", 8);
  world.run(2);
  world.serve(0);
  world.step();
  world.api.edit(kube::resources::kNodes, "", "n1", [](json& node) { node["spec"]["unschedulable"] = true; });
  world.run(3);
  EXPECT_THAT(world.slots(), UnorderedElementsAre(0, 1));
  EXPECT_FALSE((*world.pod(0))["metadata"].value("annotations", json::object()).contains(kDrainingSince));
  world.serve(1, "n2");
  world.run(2);
  EXPECT_TRUE((*world.pod(0))["metadata"]["annotations"].contains(kDrainingSince));
  EXPECT_FALSE((*world.pod(1))["metadata"]["annotations"].contains(kDrainingSince));
}

// Given: the only node is cordoned. Expected: the worker stays ready, because a replacement would have no room.
TEST(Apply, ACordonedOnlyNodeKeepsItsWorkers) {
  ApplyWorld world;
  world.run(2);
  world.serve(0);
  world.step();
  world.api.edit(kube::resources::kNodes, "", "n1", [](json& node) { node["spec"]["unschedulable"] = true; });
  world.run(30);
  EXPECT_THAT(world.slots(), ElementsAre(0));
  EXPECT_FALSE((*world.pod(0))["metadata"]["annotations"].contains(kDrainingSince));
}

// Given: another owner's pod has one of our names. Expected: the next slot is used, and the other pod is left alone.
TEST(Apply, ATakenNameIsSkipped) {
  ApplyWorld world;
  world.api.seed_object({{"apiVersion", "v1"},
                         {"kind", "Pod"},
                         {"metadata", {{"name", "chat-h100-1-0"}, {"namespace", "default"}}},
                         {"spec", {{"containers", json::array({{{"name", "x"}, {"image", "x"}}})}}}});
  const std::string version = (*world.pod(0))["metadata"]["resourceVersion"];
  world.run(3);
  EXPECT_THAT(world.slots(), ElementsAre(1));
  EXPECT_EQ((*world.pod(0))["metadata"]["resourceVersion"], version);
}

// Given: a draining worker with a request in flight (no gateway says otherwise), and a new leader whose wall clock is two hours
// ahead or behind. Expected: it is watched for at least a minute before it is ended, and ended after at most one drainTimeout.
TEST(Apply, AWrongClockNeitherEndsNorProlongsADrain) {
  for (const double skew_s : {7200.0, -7200.0}) {
    ApplyWorld world;
    world.plan.pools = {ApplyWorld::pool(2)};
    world.run(2);
    world.serve(0);
    world.serve(1);
    world.step();
    world.plan.pools = {ApplyWorld::pool(1)};
    world.step();
    const int slot = (*world.pod(1))["metadata"]["annotations"].contains(kDrainingSince) ? 1 : 0;
    const auto ended = [&] {
      const auto pod = world.pod(slot);
      return !pod || (*pod)["metadata"].contains("deletionTimestamp");
    };
    world.state = {};  // another leader
    world.state.leading_since_s = 5000 + world.now_s();
    world.wall_skew_s = skew_s;
    world.serve(slot);
    // A gateway that never acknowledges keeps the worker from being quiet.
    world.add_silent_gateway();
    world.step();
    world.step(55);
    EXPECT_FALSE(ended()) << skew_s;
    world.step(540);
    world.step(10);
    EXPECT_TRUE(ended()) << skew_s;
  }
}

// Given: a draining worker that gets no requests from the gateways but reports one inside, then none. Expected: it is ended
// only after it reports none.
TEST(Apply, ABusyDrainingWorkerIsNotEnded) {
  ApplyWorld world;
  world.plan.pools = {ApplyWorld::pool(2)};
  world.run(2);
  world.serve(0);
  world.serve(1);
  world.step();
  world.plan.pools = {ApplyWorld::pool(1)};
  world.step();
  const int slot = (*world.pod(1))["metadata"]["annotations"].contains(kDrainingSince) ? 1 : 0;
  int inside = 1;
  const auto step = [&] {
    ScrapeTargets targets;
    targets.workers = world.observation.workers.at(world.service.metadata.uid);
    for (const Worker& worker : targets.workers) {
      targets.engines[worker.service_uid] = "VLLM";
      const std::string url = "http://" + worker.address + "/metrics";
      world.wire->unroute(url);
      world.wire->route(url, [inside](const kube::HttpRequest&) {
        const std::string page = "vllm:num_requests_running " + std::to_string(inside) + "\nvllm:num_requests_waiting 0\n";
        return Result<kube::HttpResponse>(kube::HttpResponse{200, {}, page});
      });
    }
    world.signals.scrape(targets, 5000 + world.now_s());
    (void)world.step(5);
    const auto pod = world.pod(slot);
    return pod && !(*pod)["metadata"].contains("deletionTimestamp");
  };
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(step()) << i;
  inside = 0;
  (void)step();
  EXPECT_FALSE(step());
}

// Given: a worker that still exists long after its drainTimeout. Expected: one warning says so, with the GPUs it holds.
TEST(Apply, AStuckDrainIsReported) {
  ApplyWorld world;
  world.plan.pools = {ApplyWorld::pool(2)};
  world.run(2);
  world.serve(0);
  world.serve(1);
  world.step();
  world.plan.pools = {ApplyWorld::pool(1)};
  world.add_silent_gateway();
  EXPECT_TRUE(happened(world.step(), "WorkerDraining"));
  world.step();
  EXPECT_FALSE(happened(world.step(600), "DrainStuck"));
  EXPECT_TRUE(happened(world.step(70), "DrainStuck"));
  EXPECT_FALSE(happened(world.step(70), "DrainStuck"));
}

// Given: a plan of three workers. Expected: the budget keeps one less than what is ready once several are ready, the only one
// while one is, and is deleted with the last worker; it belongs to the service and is written only when it changes.
TEST(Apply, DisruptionBudgetFollowsThePlan) {
  ApplyWorld world;
  const auto budget = [&] { return world.api.object(kube::resources::kPodDisruptionBudgets, "default", "windlass-chat"); };
  world.plan.pools = {ApplyWorld::pool(3)};
  world.run(3);
  ASSERT_TRUE(budget());
  EXPECT_EQ((*budget())["spec"]["minAvailable"], 1);
  EXPECT_EQ((*budget())["metadata"]["ownerReferences"][0]["uid"], world.service.metadata.uid);
  EXPECT_EQ((*budget())["spec"]["selector"]["matchLabels"]["windlass.dev/service"], "chat");
  for (int slot = 0; slot < 3; ++slot) world.serve(slot);
  world.run(2);
  EXPECT_EQ((*budget())["spec"]["minAvailable"], 2);
  const std::string version = (*budget())["metadata"]["resourceVersion"];
  world.run(10);
  EXPECT_EQ((*budget())["metadata"]["resourceVersion"], version);
  world.plan.pools.clear();
  for (int i = 0; i < 700; ++i) {
    world.step();
    world.finish_deletions();
  }
  EXPECT_THAT(world.slots(), ElementsAre());
  EXPECT_FALSE(budget());
}

// Given: a budget to be deleted, and another writer, such as a new leader, that changes it while our deletion is on its way.
// Expected: the deletion has no effect; once the change has been seen, a new decision is made.
TEST(Apply, AChangedBudgetIsNotDeleted) {
  ApplyWorld world;
  const auto budget = [&] { return world.api.object(kube::resources::kPodDisruptionBudgets, "default", "windlass-chat"); };
  world.run(3);
  ASSERT_TRUE(budget());
  int deletions = 0;
  world.wire->drop_request = [&](const kube::HttpRequest& request) {
    if (request.method != "DELETE" || request.url.find("poddisruptionbudgets") == std::string::npos) return false;
    if (++deletions == 1) {
      world.api.edit(kube::resources::kPodDisruptionBudgets, "default", "windlass-chat",
                     [](nlohmann::json& object) { object["metadata"]["labels"]["written-by"] = "the-next-leader"; });
    }
    return false;
  };
  world.plan.pools.clear();
  for (int i = 0; i < 700 && deletions == 0; ++i) {
    world.step();
    world.finish_deletions();
  }
  EXPECT_EQ(deletions, 1);
  EXPECT_TRUE(budget());
  world.run(60);
  EXPECT_EQ(deletions, 2);
  EXPECT_FALSE(budget());
}

// Given: a service in mode Recommend with a worker. Expected: nothing is written for it.
TEST(Apply, RecommendWritesNothing) {
  ApplyWorld world;
  world.mode = planner::Mode::kRecommend;
  world.plan.pools = {ApplyWorld::pool(3)};
  const std::uint64_t before = world.api.version();
  world.run(5);
  EXPECT_EQ(world.api.version(), before);
}

// Given: two installations in one cluster, with a service each and both services' pods in one namespace. Expected: each sees,
// creates and ends only its own, and counts the other's GPUs as used.
TEST(Apply, TwoInstallationsNeverTouchEachOthersPods) {
  fakes::FakeApiServer api;
  ApplyWorld blue("blue", &api, "chat");
  ApplyWorld green("green", &api, "code");
  std::vector<std::string> touched;
  api.on_write = [&](const fakes::WriteAttempt& write) {
    const std::string owner = write.object["metadata"]["labels"].value("windlass.dev/instance", "");
    if (write.client != "controller-" + owner) touched.push_back(write.client + " " + write.verb + " of " + owner);
  };
  blue.plan.pools = {ApplyWorld::pool(2)};
  green.plan.pools = {ApplyWorld::pool(3)};
  const auto both = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      blue.step();
      green.step();
      blue.finish_deletions();
    }
  };
  both(3);
  for (int slot = 0; slot < 2; ++slot) blue.serve(slot);
  for (int slot = 0; slot < 3; ++slot) green.serve(slot);
  both(2);
  EXPECT_EQ(blue.runtime.workers().size(), 2U);
  EXPECT_EQ(green.runtime.workers().size(), 3U);
  EXPECT_EQ(blue.observation.capacity["h100"].used_by_others, 3);
  EXPECT_EQ(green.observation.capacity["h100"].used_by_others, 2);
  blue.plan.pools.clear();
  both(20);
  EXPECT_THAT(blue.slots(), ElementsAre());
  EXPECT_THAT(green.slots(), UnorderedElementsAre(0, 1, 2));
  EXPECT_THAT(touched, ElementsAre());
}

}  // namespace
}  // namespace windlass::controller
