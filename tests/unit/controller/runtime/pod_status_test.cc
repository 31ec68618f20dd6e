// Pods in trouble, as real kubelets, schedulers and node controllers report them: the runtime distinguishes the troubles and
// describes each in a message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/runtime/kept_fields.h"
#include "controller/runtime/pod.h"

namespace windlass::controller {
namespace {

using nlohmann::json;
using planner::WorkerTrouble;
using testing::AllOf;
using testing::HasSubstr;

// A worker's pod with this status, as the API server returns it and the runtime keeps it; `bound`: it has a node.
Worker read(const std::string& status, bool bound = true) {
  json pod = json::parse(R"({"apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "chat-h100-1-0", "namespace": "team", "uid": "p-1", "resourceVersion": "9",
                 "creationTimestamp": "2026-05-01T10:00:00Z",
                 "labels": {"app.kubernetes.io/component": "worker", "windlass.dev/service": "chat",
                            "windlass.dev/pool": "h100-1", "windlass.dev/slot": "0", "windlass.dev/role": "unified"},
                 "ownerReferences": [{"apiVersion": "windlass.dev/v1alpha1", "kind": "ModelService", "name": "chat",
                                      "uid": "u-1", "controller": true}]},
    "spec": {"containers": [{"name": "worker", "image": "registry.example/worker:1"}]}})");
  if (bound) pod["spec"]["nodeName"] = "n1";
  pod["status"] = json::parse(status);
  keep_read_fields_of_pod(pod);
  const auto worker = worker_of(pod);
  EXPECT_TRUE(worker.has_value());
  return worker.value_or(Worker{});
}

// Given: a pod that no node has room for. Expected: unschedulable with the scheduler's message, but not failed, because the
// scheduler keeps trying.
TEST(PodStatus, UnschedulableHasTheSchedulersMessage) {
  const Worker worker = read(R"({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
    "lastTransitionTime": "2026-05-01T10:00:01Z", "reason": "Unschedulable",
    "message": "0/3 nodes are available: 1 node(s) had untolerated taint {gpu: true}, 2 Insufficient nvidia.com/gpu."}]})",
                             false);
  EXPECT_EQ(worker.trouble, WorkerTrouble::kUnschedulable);
  EXPECT_TRUE(worker.unschedulable);
  EXPECT_FALSE(worker.failed);
  EXPECT_FALSE(worker.scheduled_s);
  EXPECT_EQ(worker.message,
            "Unschedulable: 0/3 nodes are available: 1 node(s) had untolerated taint {gpu: true}, 2 Insufficient "
            "nvidia.com/gpu.");
}

// Given: a pod that its scheduling gates hold back, as Kueue does until a quota admits it. Expected: it is not unschedulable,
// since no node refused it, and has a message.
TEST(PodStatus, AGatedPodIsNotUnschedulable) {
  const Worker worker = read(R"({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
    "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"}]})",
                             false);
  EXPECT_TRUE(worker.gated);
  EXPECT_FALSE(worker.unschedulable);
  EXPECT_FALSE(worker.failed);
  EXPECT_EQ(worker.trouble, WorkerTrouble::kNone);
  EXPECT_EQ(worker.message, "SchedulingGated: Scheduling is blocked due to non-empty scheduling gates");
}

// Given: the three reasons with which a kubelet reports a failed image pull. Expected: each is an image pull trouble, with the
// image and the registry's message.
TEST(PodStatus, FailedImagePulls) {
  for (const char* reason : {"ErrImagePull", "ImagePullBackOff", "InvalidImageName"}) {
    json status = json::parse(R"({"phase": "Pending", "conditions": [
      {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-05-01T10:00:02Z"},
      {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
      "containerStatuses": [{"name": "worker", "image": "registry.example/wrong:1", "ready": false, "started": false,
        "restartCount": 0, "state": {"waiting": {"message": "failed to resolve reference: not found"}}}]})");
    status["containerStatuses"][0]["state"]["waiting"]["reason"] = reason;
    const Worker worker = read(status.dump());
    EXPECT_EQ(worker.trouble, WorkerTrouble::kImagePull) << reason;
    EXPECT_TRUE(worker.failed);
    EXPECT_FALSE(worker.finished);
    EXPECT_EQ(*worker.scheduled_s - worker.created_s, 2);
    EXPECT_THAT(worker.message, AllOf(HasSubstr(reason), HasSubstr("registry.example/wrong:1"), HasSubstr("not found")));
  }
}

// Given: a container in restart back-off, and one that runs again after its fourth end. Expected: both are crash loops, with
// the count, the exit code and the end of the log.
TEST(PodStatus, CrashLoops) {
  const Worker waiting = read(R"({"phase": "Running", "containerStatuses": [{"name": "worker", "ready": false,
    "started": false, "restartCount": 5,
    "lastState": {"terminated": {"exitCode": 2, "reason": "Error", "message": "--model: no such folder\n"}},
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 2m40s restarting failed container"}}}]})");
  EXPECT_EQ(waiting.trouble, WorkerTrouble::kCrashLoop);
  EXPECT_TRUE(waiting.failed);
  EXPECT_EQ(waiting.message,
            "container worker keeps crashing: restarted 5 times, last with exit code 2: --model: no such folder");

  const Worker running = read(R"({"phase": "Running", "containerStatuses": [{"name": "worker", "ready": false,
    "started": false, "restartCount": 4, "lastState": {"terminated": {"exitCode": 139, "reason": "Error"}},
    "state": {"running": {"startedAt": "2026-05-01T10:05:00Z"}}}]})");
  EXPECT_EQ(running.trouble, WorkerTrouble::kCrashLoop);
  EXPECT_TRUE(running.failed);
  EXPECT_THAT(running.message, HasSubstr("exit code 139"));
}

// Given: a container that has ended once and runs again. Expected: no trouble yet, but a message.
TEST(PodStatus, OneCrashIsNotACrashLoop) {
  const Worker worker = read(R"({"phase": "Running", "containerStatuses": [{"name": "worker", "ready": false,
    "started": false, "restartCount": 1, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
    "state": {"running": {}}}]})");
  EXPECT_EQ(worker.trouble, WorkerTrouble::kNone);
  EXPECT_FALSE(worker.failed);
  EXPECT_EQ(worker.message, "container worker was restarted once, last with exit code 1");
}

// Given: OOM kills: in the state, in the last state during the kubelet's back-off, of an init container, and a single one.
// Expected: out of memory each time; failed only if it repeats.
TEST(PodStatus, OutOfMemory) {
  const Worker now = read(R"({"phase": "Running", "containerStatuses": [{"name": "worker", "ready": false, "restartCount": 3,
    "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]})");
  EXPECT_EQ(now.trouble, WorkerTrouble::kOutOfMemory);
  EXPECT_TRUE(now.failed);
  EXPECT_THAT(now.message, AllOf(HasSubstr("OOMKilled"), HasSubstr("137"), HasSubstr("3 times"), HasSubstr("podTemplate")));

  const Worker before = read(R"({"phase": "Running", "containerStatuses": [{"name": "worker", "ready": false,
    "restartCount": 2, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}}}]})");
  EXPECT_EQ(before.trouble, WorkerTrouble::kOutOfMemory);
  EXPECT_TRUE(before.failed);

  const Worker fetching = read(R"({"phase": "Pending", "initContainerStatuses": [{"name": "fetch-model", "ready": false,
    "restartCount": 1, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "state": {"running": {}}}],
    "containerStatuses": [{"name": "worker", "ready": false, "restartCount": 0,
                           "state": {"waiting": {"reason": "PodInitializing"}}}]})");
  EXPECT_EQ(fetching.trouble, WorkerTrouble::kOutOfMemory);
  EXPECT_FALSE(fetching.failed);
  EXPECT_THAT(fetching.message, HasSubstr("fetch-model"));
}

// Given: a container whose Secret is missing. Expected: failed, with the kubelet's message.
TEST(PodStatus, ContainersThatCannotBeCreated) {
  const Worker worker = read(R"({"phase": "Pending", "containerStatuses": [{"name": "worker", "ready": false,
    "restartCount": 0, "state": {"waiting": {"reason": "CreateContainerConfigError",
                                             "message": "secret \"hub-token\" not found"}}}]})");
  EXPECT_EQ(worker.trouble, WorkerTrouble::kFailed);
  EXPECT_TRUE(worker.failed);
  EXPECT_EQ(worker.message, "container worker: CreateContainerConfigError: secret \"hub-token\" not found");
}

// Given: a starting pod whose init container has completed. Expected: no trouble and no message.
TEST(PodStatus, AStartingPodHasNoTrouble) {
  const Worker worker = read(R"({"phase": "Pending", "initContainerStatuses": [{"name": "fetch-model", "ready": false,
    "restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}],
    "containerStatuses": [{"name": "worker", "ready": false, "restartCount": 0,
                           "state": {"waiting": {"reason": "ContainerCreating"}}}]})");
  EXPECT_EQ(worker.trouble, WorkerTrouble::kNone);
  EXPECT_EQ(worker.message, "");
}

// Given: a worker that was killed because it ran out of memory and is ready again. Expected: no trouble.
TEST(PodStatus, ARecoveredWorkerHasNoTrouble) {
  const Worker worker = read(R"({"phase": "Running", "podIP": "10.0.0.7",
    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T10:09:00Z"}],
    "containerStatuses": [{"name": "worker", "ready": true, "started": true, "restartCount": 7,
      "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "state": {"running": {}}}]})");
  EXPECT_TRUE(worker.ready);
  EXPECT_EQ(worker.trouble, WorkerTrouble::kNone);
  EXPECT_FALSE(worker.failed);
  EXPECT_EQ(worker.message, "");
}

// Given: pods that ended for good: evicted for memory, evicted for disk, rejected by the node, node shut down. Expected:
// finished each time, with the matching trouble.
TEST(PodStatus, PodsThatEndedForGood) {
  const auto failed = [](const std::string& reason, const std::string& message) {
    return read(json{{"phase", "Failed"}, {"reason", reason}, {"message", message}}.dump());
  };
  const Worker memory = failed("Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi");
  EXPECT_EQ(memory.trouble, WorkerTrouble::kOutOfMemory);
  EXPECT_TRUE(memory.finished);
  EXPECT_EQ(failed("Evicted", "The node was low on resource: ephemeral-storage.").trouble, WorkerTrouble::kFailed);
  const Worker refused = failed("UnexpectedAdmissionError", "Allocate failed due to requested number of devices unavailable");
  EXPECT_EQ(refused.trouble, WorkerTrouble::kFailed);
  EXPECT_THAT(refused.message, HasSubstr("UnexpectedAdmissionError: Allocate failed"));
  EXPECT_EQ(failed("Terminated", "Pod was terminated in response to imminent node shutdown.").trouble,
            WorkerTrouble::kNodeLost);
}

// Given: a pod that the taint manager evicts because its node is unreachable. Expected: node lost.
TEST(PodStatus, EvictionForAnUnreachableNode) {
  const Worker worker = read(R"({"phase": "Running", "conditions": [
    {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
     "message": "Taint manager: deleting due to NoExecute taint"}, {"type": "Ready", "status": "False"}],
    "containerStatuses": [{"name": "worker", "ready": false, "restartCount": 0, "started": true, "state": {"running": {}}}]})");
  EXPECT_EQ(worker.trouble, WorkerTrouble::kNodeLost);
  EXPECT_TRUE(worker.failed);
  EXPECT_FALSE(worker.finished);
  EXPECT_THAT(worker.message, HasSubstr("n1"));
}

// Given: a ready pod and its node's status. Expected: an answering node changes nothing; a silent one makes the worker lost and
// not ready; only a node that is gone or out of service also means that nothing runs there any more.
TEST(PodStatus, ASilentNodeMakesTheWorkerLost) {
  const std::string ready = R"({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})";
  const json well = json::parse(R"({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})");
  json silent = json::parse(R"({"status": {"conditions": [{"type": "Ready", "status": "Unknown",
    "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}]}})");
  Worker worker = read(ready);
  judge_node(&well, false, worker);
  EXPECT_TRUE(worker.ready);
  EXPECT_EQ(worker.trouble, WorkerTrouble::kNone);

  judge_node(&silent, false, worker);
  EXPECT_FALSE(worker.ready);
  EXPECT_EQ(worker.trouble, WorkerTrouble::kNodeLost);
  EXPECT_FALSE(worker.finished);
  EXPECT_EQ(worker.message, "node n1 does not answer (Ready=Unknown): Kubelet stopped posting node status.");

  silent["spec"]["taints"] = json::array({{{"key", "node.kubernetes.io/out-of-service"}, {"effect", "NoExecute"}}});
  worker = read(ready);
  judge_node(&silent, false, worker);
  EXPECT_TRUE(worker.node_gone);
  EXPECT_TRUE(worker.finished);

  worker = read(ready);
  judge_node(nullptr, false, worker);
  EXPECT_TRUE(worker.ready);
  judge_node(nullptr, true, worker);
  EXPECT_TRUE(worker.node_gone);
  EXPECT_THAT(worker.message, HasSubstr("gone"));
}

// Given: a status with wrong types everywhere. Expected: a worker without trouble, no exception.
TEST(PodStatus, ToleratesWrongTypes) {
  for (const char* status : {"null", "[]", R"({"conditions": 7, "containerStatuses": {"a": 1}})",
                             R"({"phase": 3, "containerStatuses": [null, 5, {"state": "x", "restartCount": "many"}]})"}) {
    EXPECT_EQ(read(status).trouble, WorkerTrouble::kNone) << status;
  }
}

}  // namespace
}  // namespace windlass::controller
