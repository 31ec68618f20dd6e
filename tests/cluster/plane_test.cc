// Tests the harness itself: the control plane schedules pods; the test kubelet runs, probes, restarts and ends them like a real
// one.
#include <csignal>

#include <fmt/format.h>

#include "tests/cluster/cluster_fixture.h"
#include "tests/cluster/harness/http.h"
#include "tests/cluster/harness/network.h"
#include "tests/paths.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class PlaneTest : public ClusterTest {
 protected:
  // A pod with the shell image that runs `script`.
  static std::string shell_pod(const std::string& name, const std::string& script, const std::string& more = "") {
    return fmt::format(R"yaml(
apiVersion: v1
kind: Pod
metadata: {{name: {}}}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: {}
    args: ["-c", {}]
{})yaml",
                       name, kShellImage, json(script).dump(), more);
  }

  // Restarts of the first container; 0 before its first status.
  static int restarts(const json& pod) {
    const json::json_pointer count("/status/containerStatuses/0/restartCount");
    return pod.is_object() && pod.contains(count) ? pod.at(count).get<int>() : 0;
  }

  std::string phase(const std::string& name) const {
    const json object = pod(name);
    return object.is_object() ? object["status"].value("phase", "") : "";
  }
};

// Given a pod that asks for more accelerators than any node has; expects the scheduler to leave it Pending as Unschedulable.
TEST_F(PlaneTest, MoreAcceleratorsThanAllocatableStayPending) {
  apply(shell_pod("greedy", "exec sleep 1000",
                  fmt::format("    resources: {{limits: {{{}: {}}}}}\n", kGpuResource, kGpusOfNode + 1)));
  ASSERT_TRUE(eventually(
      kPatience, [&] { return condition_object(pod("greedy"), "PodScheduled").value("reason", "") == "Unschedulable"; }));
  EXPECT_EQ(phase("greedy"), "Pending");
  EXPECT_NE(condition_object(pod("greedy"), "PodScheduled").value("message", "").find("Insufficient"), std::string::npos);
}

// Given a pod with variables, a config map and a host folder; expects its process to see them as in Kubernetes: fieldRef,
// $(NAME), mounts.
TEST_F(PlaneTest, ContainerSeesItsVariablesAndVolumes) {
  const std::string folder = plane().folder() + "/" + name_space();
  apply(fmt::format(R"yaml(
apiVersion: v1
kind: ConfigMap
metadata: {{name: words}}
data: {{greeting: ahoy}}
---
apiVersion: v1
kind: Pod
metadata: {{name: reader}}
spec:
  restartPolicy: Never
  volumes:
  - name: words
    configMap: {{name: words}}
  - name: out
    hostPath: {{path: {}, type: DirectoryOrCreate}}
  containers:
  - name: main
    image: {}
    env:
    - {{name: IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}
    - {{name: WHO, value: "$(IP):8000"}}
    volumeMounts: [{{name: words, mountPath: /words}}, {{name: out, mountPath: /out}}]
    args: ["-c", "mkdir -p $2 && (cat $1; echo \" $WHO $0 $$(WHO)\") > $2/said", "$(WHO)", "/words/greeting", "/out"]
)yaml",
                    folder, kShellImage));
  ASSERT_TRUE(eventually(kPatience, [&] { return phase("reader") == "Succeeded"; })) << pod("reader").dump(1);
  const std::string ip = pod("reader")["status"].value("podIP", "");
  EXPECT_EQ(ip.substr(0, 4), "127.");
  EXPECT_EQ(read_text_file(folder + "/said"), fmt::format("ahoy {0}:8000 {0}:8000 \n", ip));
}

// Given a container that exits immediately; expects it to be restarted with back-off, and its status to count the restarts.
TEST_F(PlaneTest, CrashingContainerIsRestarted) {
  apply(shell_pod("crasher", "exit 3"));
  ASSERT_TRUE(eventually(kPatience, [&] { return restarts(pod("crasher")) >= 2; })) << pod("crasher").dump(1);
  EXPECT_EQ(pod("crasher")["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 3);
  // A restarted container is Ready for as long as it runs; then the back-off grows.
  EXPECT_TRUE(eventually(kPatience, [&] {
    const json object = pod("crasher");
    const json::json_pointer reason("/status/containerStatuses/0/state/waiting/reason");
    return object.is_object() && object.contains(reason) && object.at(reason) == "CrashLoopBackOff" &&
           condition_of(object, "Ready") == "False";
  })) << pod("crasher").dump(1);
}

// Given an image that the node does not have; expects the pod to wait with ErrImagePull, and that it can be deleted.
TEST_F(PlaneTest, UnknownImageWaits) {
  apply("{apiVersion: v1, kind: Pod, metadata: {name: lost}, spec: {containers: [{name: main, image: \"nowhere:1\"}]}}");
  ASSERT_TRUE(eventually(kPatience, [&] {
    const json object = pod("lost");
    const json::json_pointer reason("/status/containerStatuses/0/state/waiting/reason");
    return object.is_object() && object.contains(reason) && object.at(reason) == "ErrImagePull";
  })) << pod("lost").dump(1);
  EXPECT_EQ(plane().send("DELETE", pods_path() + "/lost", nullptr).status, 200);
  EXPECT_TRUE(eventually(kPatience, [&] { return pod("lost").is_null(); }));
}

// Given a pod that takes its time on SIGTERM; expects deletion to wait for it within the grace period. A finalizer keeps the
// object until it is removed. A pod that ignores SIGTERM is killed after the grace period.
TEST_F(PlaneTest, DeletionHonoursGraceAndFinalizers) {
  const std::string file = plane().folder() + "/" + name_space() + "-drained";
  const std::string yaml =
      shell_pod("slow", fmt::format("trap 'sleep 1; touch {}; exit 0' TERM; while :; do sleep 0.1; done", file));
  apply(yaml);
  apply(shell_pod("deaf", "trap '' TERM; while :; do sleep 0.1; done"));
  ASSERT_TRUE(eventually(
      kPatience, [&] { return condition_of(pod("slow"), "Ready") == "True" && condition_of(pod("deaf"), "Ready") == "True"; }));
  const std::string merge = "application/merge-patch+json";
  ASSERT_TRUE(
      plane().send("PATCH", pods_path() + "/slow", {{"metadata", {{"finalizers", {"windlass.dev/test"}}}}}, merge).ok());
  ASSERT_TRUE(plane().send("DELETE", pods_path() + "/slow", nullptr).ok());
  ASSERT_TRUE(plane().send("DELETE", pods_path() + "/deaf?gracePeriodSeconds=2", nullptr).ok());
  EXPECT_TRUE(eventually(kPatience, [&] { return phase("slow") == "Succeeded"; })) << pod("slow").dump(1);
  EXPECT_EQ(::access(file.c_str(), F_OK), 0) << "the process had no time to end cleanly";
  EXPECT_TRUE(eventually(kPatience, [&] { return pod("deaf").is_null(); }));
  EXPECT_FALSE(pod("slow").is_null()) << "a finalizer was not honoured";
  ASSERT_TRUE(plane().send("PATCH", pods_path() + "/slow", {{"metadata", {{"finalizers", nullptr}}}}, merge).ok());
  EXPECT_TRUE(eventually(kPatience, [&] { return pod("slow").is_null(); }));
}

// Given a pod whose readiness endpoint succeeds and fails by turns; expects its Ready condition to follow.
TEST_F(PlaneTest, ReadinessFollowsTheProbe) {
  const std::string folder = plane().folder() + "/" + name_space();
  std::string yaml = fmt::format(R"yaml(
apiVersion: v1
kind: Pod
metadata: {{name: server}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: {}
    command: ["/usr/bin/python3", "-m", "http.server", "--bind", "$(IP)", "--directory", "{}", "8000"]
    env: [{{name: IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}]
    ports: [{{name: http, containerPort: 8000}}]
    startupProbe: {{httpGet: {{path: /, port: http}}, periodSeconds: 1, failureThreshold: 60}}
    readinessProbe: {{httpGet: {{path: /ready, port: 8000}}, periodSeconds: 1, failureThreshold: 1}}
)yaml",
                                 kShellImage, folder);
  ASSERT_TRUE(run_command({"mkdir", "-p", folder}).ok());
  apply(yaml);
  ASSERT_TRUE(eventually(kPatience, [&] {
    const json object = pod("server");
    const json::json_pointer started("/status/containerStatuses/0/started");
    return object.is_object() && object.contains(started) && object.at(started) == true;
  })) << pod("server").dump(1);
  EXPECT_EQ(condition_of(pod("server"), "Ready"), "False");
  write_text_file(folder + "/ready", "yes");
  EXPECT_TRUE(eventually(kPatience, [&] { return condition_of(pod("server"), "Ready") == "True"; })) << pod("server").dump(1);
  ASSERT_TRUE(run_command({"rm", folder + "/ready"}).ok());
  EXPECT_TRUE(eventually(kPatience, [&] { return condition_of(pod("server"), "Ready") == "False"; })) << pod("server").dump(1);
}

// Given a container whose liveness endpoint disappears; expects it to be restarted.
TEST_F(PlaneTest, FailedLivenessRestartsTheContainer) {
  const std::string folder = plane().folder() + "/" + name_space();
  ASSERT_TRUE(run_command({"mkdir", "-p", folder}).ok());
  write_text_file(folder + "/alive", "yes");
  apply(fmt::format(R"yaml(
apiVersion: v1
kind: Pod
metadata: {{name: server}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: {}
    command: ["/usr/bin/python3", "-m", "http.server", "--bind", "$(IP)", "--directory", "{}", "8000"]
    env: [{{name: IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}]
    startupProbe: {{httpGet: {{path: /alive, port: 8000}}, periodSeconds: 1, failureThreshold: 60}}
    livenessProbe: {{httpGet: {{path: /alive, port: 8000}}, periodSeconds: 1, failureThreshold: 2}}
)yaml",
                    kShellImage, folder));
  ASSERT_TRUE(eventually(kPatience, [&] { return condition_of(pod("server"), "Ready") == "True"; })) << pod("server").dump(1);
  ASSERT_TRUE(run_command({"rm", folder + "/alive"}).ok());
  EXPECT_TRUE(eventually(kPatience, [&] { return restarts(pod("server")) >= 1; })) << pod("server").dump(1);
}

// Given a node agent that is killed; expects its pods' processes to end: a test that dies leaves nothing on the machine.
TEST_F(PlaneTest, KilledKubeletTakesItsProcesses) {
  const std::string file = plane().folder() + "/" + name_space() + "-pid";
  const auto kubelet =
      start_program("kubelet-2", {build_path("/windlass-test-kubelet"), "--kubeconfig=" + plane().kubeconfig(), "--node=node-2",
                                  "--folder=" + plane().folder() + "/kubelet-2", fmt::format("--image={}=/bin/sh", kShellImage),
                                  fmt::format("--network={}", claim_networks()), "--cordoned"});
  ASSERT_NE(kubelet, nullptr);
  apply(fmt::format(R"yaml(
apiVersion: v1
kind: Pod
metadata: {{name: orphan}}
spec:
  nodeName: node-2
  tolerations: [{{operator: Exists}}]
  containers:
  - name: main
    image: {}
    args: ["-c", "echo $$$$ > {}.new && mv {}.new {} && exec sleep 1000"]
)yaml",
                    kShellImage, file, file, file));
  ASSERT_TRUE(eventually(kPatience, [&] { return !read_text_file(file).empty(); })) << tail_of_file(log_of("kubelet-2"), 20);
  const pid_t process = std::atoi(read_text_file(file).c_str());
  ASSERT_GT(process, 1) << read_text_file(file);
  ASSERT_EQ(::kill(process, 0), 0);
  kubelet->signal(SIGKILL);
  EXPECT_TRUE(eventually(kPatience, [&] { return ::kill(process, 0) != 0; }));
  // Nobody is left to confirm this pod's deletion.
  EXPECT_TRUE(plane().send("DELETE", pods_path() + "/orphan?gracePeriodSeconds=0", nullptr).ok());
}

// Given an API server that is killed and restarted; expects running pods to keep their processes, and the kubelet to run new
// ones.
TEST_F(PlaneTest, PodsOutliveTheApiServer) {
  apply(shell_pod("steady", "exec sleep 1000"));
  ASSERT_TRUE(eventually(kPatience, [&] { return condition_of(pod("steady"), "Ready") == "True"; }));
  plane().stop_api_server(SIGKILL);
  const auto started = plane().start_api_server();
  ASSERT_TRUE(started.ok()) << started.error().message;
  apply(shell_pod("later", "exec sleep 1000"));
  EXPECT_TRUE(eventually(kPatience, [&] { return condition_of(pod("later"), "Ready") == "True"; })) << pod("later").dump(1);
  const json steady = pod("steady");
  ASSERT_TRUE(steady.is_object());
  EXPECT_EQ(steady["status"]["containerStatuses"][0]["restartCount"], 0);
  EXPECT_EQ(condition_of(steady, "Ready"), "True");
}

// Given an owner that is deleted; expects Kubernetes' garbage collection to delete its dependents.
TEST_F(PlaneTest, GarbageCollectionFollowsOwners) {
  apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}");
  const std::string base = "/api/v1/namespaces/" + name_space() + "/configmaps";
  const json owner = plane().get(base + "/owner").json();
  const json owned = {
      {"metadata",
       {{"name", "owned"},
        {"ownerReferences",
         json::array({{{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"name", "owner"}, {"uid", owner["metadata"]["uid"]}}})}}}};
  ASSERT_EQ(plane().send("POST", base, owned).status, 201);
  ASSERT_TRUE(plane().send("DELETE", base + "/owner", nullptr).ok());
  EXPECT_TRUE(eventually(kPatience, [&] { return plane().get(base + "/owned").status == 404; }));
}

}  // namespace
}  // namespace windlass::testing
