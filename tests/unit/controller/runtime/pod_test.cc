// A worker as a pod, and a pod as a worker.
#include "controller/runtime/pod.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace windlass::controller {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Launch spec() {
  Launch s;
  s.name = "chat-h100-2-0";
  s.name_space = "team";
  s.service = "chat";
  s.service_uid = "u-1";
  s.pool = "h100-2";
  s.role = "unified";
  s.accelerator = "h100";
  s.resource_name = "nvidia.com/gpu";
  s.node_selector = {{"gpu", "h100"}};
  s.gpus = 2;
  s.max_concurrency = 64;
  s.engine = "Windlass";
  s.served_name = "chat";
  s.model_uri = "pvc://models/llama/8b";
  s.max_context_tokens = 8192;
  s.drain_timeout_s = 90;
  return s;
}

const PodDefaults kDefaults{"registry.example/worker:1", ""};

// Given: a worker of two GPUs on a claim. Expected: the pod asks for them, mounts the claim, passes what the engine must know,
// drains within its grace period, and belongs to the service.
TEST(Pod, SaysWhatTheWorkerIs) {
  const auto made = pod_of(spec(), kDefaults);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const json& pod = *made;
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["uid"], "u-1");
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["controller"], true);
  EXPECT_EQ(pod["spec"]["terminationGracePeriodSeconds"], 90);
  EXPECT_EQ(pod["spec"]["nodeSelector"]["gpu"], "h100");
  const json claim = json::parse(R"({"name": "model", "persistentVolumeClaim": {"claimName": "models", "readOnly": true}})");
  EXPECT_THAT(pod["spec"]["volumes"], testing::Contains(claim));
  const json& container = pod["spec"]["containers"][0];
  EXPECT_EQ(container["image"], "registry.example/worker:1");
  EXPECT_EQ(container["resources"]["limits"]["nvidia.com/gpu"], "2");
  const auto args = container["args"].get<std::vector<std::string>>();
  EXPECT_THAT(args, testing::IsSupersetOf({std::string("--model=/models/llama/8b"), std::string("--listen=[$(POD_IP)]:8000"),
                                           std::string("--name=chat"), std::string("--max-concurrent=64"),
                                           std::string("--max-context-tokens=8192")}));
}

// Given: an installation with a token. Expected: a service's pods have one that says nothing of it, the same for each of them
// and another for another service, whatever the user's own variables say; it is read back; other engines and installations
// without a token have none.
TEST(Pod, ServicesHaveTokensOfTheirOwn) {
  PodDefaults defaults = kDefaults;
  defaults.token = [] { return std::string("the installation's token"); };
  const auto token = [](const Launch& of, const PodDefaults& with) { return worker_of(*pod_of(of, with))->token; };
  Launch one = spec(), other = spec(), engine = spec();
  const std::string of_one = token(one, defaults);
  EXPECT_EQ(of_one.size(), 64U);
  one.name = "chat-h100-2-1";
  one.env = {{"WINDLASS_WORKER_TOKEN", "the user's own", {}, {}}};
  EXPECT_EQ(token(one, defaults), of_one);
  other.service_uid = "u-2";
  EXPECT_NE(token(other, defaults), of_one);
  engine.engine = "VLLM";
  engine.image = "vllm:1";
  EXPECT_EQ(token(engine, defaults), "");
  EXPECT_EQ(token(spec(), kDefaults), "");
}

// Given: the first pod as the API server gives it back, ready. Expected: the same worker, ready at its address.
TEST(Pod, IsReadBackAsTheSameWorker) {
  json pod = *pod_of(spec(), kDefaults);
  pod["metadata"]["uid"] = "p-1";
  pod["metadata"]["resourceVersion"] = "7";
  pod["metadata"]["creationTimestamp"] = "2026-05-01T10:00:00Z";
  pod["status"] = {{"phase", "Running"},
                   {"podIP", "10.1.2.3"},
                   {"conditions", {{{"type", "Ready"}, {"status", "True"}, {"lastTransitionTime", "2026-05-01T10:01:00Z"}}}}};
  const auto worker = worker_of(pod);
  ASSERT_TRUE(worker);
  EXPECT_EQ(worker->name, "chat-h100-2-0");
  EXPECT_EQ(worker->service_uid, "u-1");
  EXPECT_EQ(worker->pool, "h100-2");
  EXPECT_EQ(worker->gpus, 2);
  EXPECT_EQ(worker->max_concurrency, 64);
  EXPECT_EQ(worker->spec_hash, spec().hash());
  EXPECT_EQ(worker->address, "10.1.2.3:8000");
  EXPECT_TRUE(worker->ready);
  EXPECT_EQ(*worker->ready_s - worker->created_s, 60);
  EXPECT_FALSE(worker->finished);
}

// Given: a pod with our labels that no ModelService controls. Expected: it is not adopted.
TEST(Pod, IsAdoptedByItsOwnerAlone) {
  json pod = *pod_of(spec(), kDefaults);
  pod["metadata"].erase("ownerReferences");
  EXPECT_FALSE(worker_of(pod));
  pod["metadata"]["ownerReferences"] = {
      {{"apiVersion", "apps/v1"}, {"kind", "ReplicaSet"}, {"name", "x"}, {"uid", "y"}, {"controller", true}}};
  EXPECT_FALSE(worker_of(pod));
}

// Given: pods in trouble or on their way out. Expected: each state is told from the others.
TEST(Pod, StatesAreToldApart) {
  const json base = *pod_of(spec(), kDefaults);
  json pending = base;
  pending["status"] = {
      {"phase", "Pending"},
      {"conditions", {{{"type", "PodScheduled"}, {"status", "False"}, {"message", "0/3 nodes are available"}}}}};
  EXPECT_TRUE(worker_of(pending)->unschedulable);
  EXPECT_THAT(worker_of(pending)->message, HasSubstr("0/3 nodes"));

  json crashing = base;
  crashing["status"] = {
      {"phase", "Running"},
      {"containerStatuses", {{{"name", "worker"}, {"state", {{"waiting", {{"reason", "CrashLoopBackOff"}}}}}}}}};
  EXPECT_TRUE(worker_of(crashing)->failed);
  EXPECT_FALSE(worker_of(crashing)->finished);

  json ending = base;
  ending["metadata"]["deletionTimestamp"] = "2026-05-01T10:00:00Z";
  ending["spec"]["nodeName"] = "n1";
  ending["status"] = {{"phase", "Running"},
                      {"containerStatuses", {{{"name", "worker"}, {"state", {{"running", json::object()}}}}}}};
  EXPECT_TRUE(worker_of(ending)->terminating);
  EXPECT_FALSE(worker_of(ending)->finished);
  ending["status"]["containerStatuses"][0]["state"] = {{"terminated", {{"exitCode", 0}}}};
  EXPECT_TRUE(worker_of(ending)->finished);

  json evicted = base;
  evicted["status"] = {{"phase", "Failed"}, {"reason", "Evicted"}, {"message", "low on memory"}};
  EXPECT_TRUE(worker_of(evicted)->finished);
  EXPECT_TRUE(worker_of(evicted)->failed);
  EXPECT_THAT(worker_of(evicted)->message, HasSubstr("low on memory"));
}

// Given: what a pod cannot be. Expected: an error that names the field, what was found and what is allowed.
TEST(Pod, RefusesWhatCannotBe) {
  Launch file = spec();
  file.model_uri = "file://models/tiny";
  EXPECT_THAT(pod_of(file, kDefaults).error().message,
              testing::AllOf(HasSubstr("spec.model.uri"), HasSubstr("file://models/tiny"), HasSubstr("pvc://")));
  Launch hub = spec();
  hub.model_uri = "hf://meta-llama/Llama-3";
  EXPECT_THAT(pod_of(hub, kDefaults).error().message, HasSubstr("--fetch-image"));
  EXPECT_TRUE(pod_of(hub, PodDefaults{"w:1", "fetch:1"}).ok());
  Launch vllm = spec();
  vllm.engine = "VLLM";
  EXPECT_THAT(pod_of(vllm, kDefaults).error().message, HasSubstr("spec.engine.image"));
}

// Given: workers of other engines, and of ours. Expected: those that would cut their streams on SIGTERM are asked for their
// load first; vLLM of 0.18 and ours wait by themselves.
TEST(Pod, DrainsEnginesThatCannotWait) {
  const auto hook = [](const char* engine, const char* image) {
    Launch s = spec();
    s.engine = engine;
    s.image = image;
    const json worker = (*pod_of(s, kDefaults))["spec"]["containers"][0];
    return worker.contains("lifecycle") ? worker["lifecycle"]["preStop"]["exec"]["command"][2].get<std::string>() : "";
  };
  EXPECT_THAT(hook("LlamaCpp", "server:1"), testing::AllOf(HasSubstr(":8000/metrics"), HasSubstr("llamacpp:requests_")));
  EXPECT_THAT(hook("TensorRTLLM", "trt:1"), HasSubstr("/prometheus/metrics"));
  EXPECT_THAT(hook("VLLM", "vllm:v0.17.0"), HasSubstr("vllm:num_requests_"));
  EXPECT_EQ(hook("VLLM", "vllm:v0.18.0"), "");
  EXPECT_EQ(hook("Windlass", "windlass:1"), "");
}

// Given: a worker of any engine. Expected: it runs as nobody, without privileges or token, cannot write its image, and has
// places for cache, temporary files and shared memory; GPUs are requested and limited alike.
TEST(Pod, IsSafeByDefault) {
  for (const char* engine : {"Windlass", "VLLM"}) {
    Launch s = spec();
    s.engine = engine;
    s.image = "engine:1";
    const json pod = *pod_of(s, kDefaults);
    EXPECT_EQ(pod["spec"]["automountServiceAccountToken"], false);
    const json& all = pod["spec"]["securityContext"];
    EXPECT_EQ(all["runAsNonRoot"], true);
    EXPECT_GT(all["runAsUser"], 0);
    EXPECT_EQ(all["seccompProfile"]["type"], "RuntimeDefault");
    const json& worker = pod["spec"]["containers"][0];
    const json expected = json::parse(R"({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
      "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}})");
    EXPECT_EQ(worker["securityContext"], expected);
    EXPECT_EQ(worker["resources"]["requests"]["nvidia.com/gpu"], "2");
    EXPECT_EQ(worker["resources"]["limits"]["nvidia.com/gpu"], "2");
    std::map<std::string, std::string> mounts;
    for (const json& one : worker["volumeMounts"]) mounts[one["mountPath"]] = one["name"];
    EXPECT_EQ(mounts.at("/dev/shm"), "shm");
    EXPECT_EQ(mounts.at("/tmp"), "tmp");
    EXPECT_EQ(mounts.at("/cache"), "cache");
    const json shm = json::parse(R"({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}})");
    EXPECT_THAT(pod["spec"]["volumes"], testing::Contains(shm));
    EXPECT_THAT(worker["env"], testing::Contains(json{{"name", "HF_HOME"}, {"value", "/cache/huggingface"}}));
    const json& spread = pod["spec"]["topologySpreadConstraints"][0];
    EXPECT_EQ(spread["topologyKey"], "kubernetes.io/hostname");
    EXPECT_EQ(spread["whenUnsatisfiable"], "ScheduleAnyway");
    for (const char* probe : {"readinessProbe", "livenessProbe", "startupProbe"}) EXPECT_TRUE(worker.contains(probe)) << probe;
  }
}

// Given: a user's own HF_HOME. Expected: it stands once, as the user said.
TEST(Pod, TheUsersVariablesWin) {
  Launch s = spec();
  s.env = {{"HF_HOME", "/models/hub", std::nullopt, std::nullopt}};
  int count = 0;
  const json pod = *pod_of(s, kDefaults);
  for (const json& one : pod["spec"]["containers"][0]["env"]) {
    if (one["name"] != "HF_HOME") continue;
    ++count;
    EXPECT_EQ(one["value"], "/models/hub");
  }
  EXPECT_EQ(count, 1);
}

// Given: a template that says who the worker is, how many GPUs it has and how it ends, and other things besides.
// Expected: what the worker is stays ours; all else is the user's.
TEST(PodTemplate, OursStaysOursAndTheRestIsTheUsers) {
  Launch s = spec();
  s.pod_template_json = R"({
    "metadata": {"name": "mine", "labels": {"team": "a", "windlass.dev/slot": "99"}, "annotations": {"note": "x"},
                 "ownerReferences": []},
    "spec": {"terminationGracePeriodSeconds": 5, "restartPolicy": "Never", "schedulerName": "mine",
             "imagePullSecrets": [{"name": "registry"}], "tolerations": [{"key": "gpu", "operator": "Exists"}],
             "nodeSelector": {"zone": "b", "gpu": "a100"}, "securityContext": {"runAsUser": 7},
             "volumes": [{"name": "logs", "emptyDir": {}}, {"name": "cache", "hostPath": {"path": "/var/cache"}}],
             "containers": [{"name": "log", "image": "log:1"},
                            {"name": "worker", "securityContext": {"readOnlyRootFilesystem": false, "runAsNonRoot": null},
                             "resources": {"requests": {"memory": "40Gi", "nvidia.com/gpu": "8"}, "limits": {"memory": "60Gi"}},
                             "livenessProbe": null,
                             "args": ["--threads=4", "--model=/elsewhere"],
                             "volumeMounts": [{"name": "logs", "mountPath": "/logs"}, {"name": "logs", "mountPath": "/tmp"}],
                             "env": [{"name": "A", "value": "b"}, {"name": "HOME", "value": "/logs"}]}]}})";
  PodDefaults any = kDefaults;
  any.any_pod_template = true;
  const auto made = pod_of(s, any);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const json& pod = *made;
  EXPECT_EQ(pod["metadata"]["name"], "chat-h100-2-0");
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["uid"], "u-1");
  EXPECT_EQ(pod["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(pod["metadata"]["labels"]["windlass.dev/slot"], "0");
  EXPECT_EQ(pod["metadata"]["annotations"]["note"], "x");
  EXPECT_EQ(pod["metadata"]["annotations"]["windlass.dev/spec-hash"], s.hash());
  EXPECT_EQ(pod["spec"]["terminationGracePeriodSeconds"], 90);
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Always");
  EXPECT_EQ(pod["spec"]["schedulerName"], "mine");
  EXPECT_EQ(pod["spec"]["imagePullSecrets"][0]["name"], "registry");
  EXPECT_EQ(pod["spec"]["tolerations"].size(), 1U);
  EXPECT_EQ(pod["spec"]["nodeSelector"], (json{{"zone", "b"}, {"gpu", "h100"}}));
  EXPECT_EQ(pod["spec"]["securityContext"]["runAsUser"], 7);
  EXPECT_EQ(pod["spec"]["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
  ASSERT_EQ(pod["spec"]["containers"].size(), 2U);
  const json& worker = pod["spec"]["containers"][0];
  EXPECT_EQ(worker["name"], "worker");
  EXPECT_EQ(worker["securityContext"]["readOnlyRootFilesystem"], false);
  EXPECT_FALSE(worker["securityContext"].contains("runAsNonRoot"));
  EXPECT_FALSE(worker.contains("livenessProbe"));
  EXPECT_EQ(worker["resources"]["requests"]["nvidia.com/gpu"], "2");
  EXPECT_EQ(worker["resources"]["limits"]["nvidia.com/gpu"], "2");
  EXPECT_EQ(worker["resources"]["requests"]["memory"], "40Gi");
  EXPECT_EQ(worker["resources"]["requests"]["cpu"], "500m");
  EXPECT_EQ(worker["resources"]["limits"]["memory"], "60Gi");
  const auto args = worker["args"].get<std::vector<std::string>>();
  EXPECT_THAT(args, testing::Contains("--threads=4"));
  EXPECT_THAT(args, testing::Contains("--model=/models/llama/8b"));
  EXPECT_THAT(args, testing::Not(testing::Contains("--model=/elsewhere")));
  std::map<std::string, std::string> mounts;
  for (const json& one : worker["volumeMounts"]) mounts[one["mountPath"]] = one["name"];
  EXPECT_EQ(mounts.at("/tmp"), "logs");
  EXPECT_EQ(mounts.at("/logs"), "logs");
  EXPECT_EQ(mounts.at("/cache"), "cache");
  EXPECT_THAT(pod["spec"]["volumes"], testing::Contains(json{{"name", "cache"}, {"hostPath", {{"path", "/var/cache"}}}}));
  std::map<std::string, std::string> env;
  for (const json& one : worker["env"]) env[one["name"]] = one.value("value", "");
  EXPECT_EQ(env.at("A"), "b");
  EXPECT_EQ(env.at("HOME"), "/logs");
}

// Given: templates that would give their author the node, another account or somebody's Secret. Expected: each is refused by
// the field, and allowed where an administrator says so.
TEST(PodTemplate, RefusesWhatGivesTheNodeAway) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("hostNetwork": true)", "spec.hostNetwork: found true"},
      {R"("hostPID": true)", "spec.hostPID: found true"},
      {R"("hostIPC": true)", "spec.hostIPC: found true"},
      {R"("nodeName": "n")", "spec: found 'nodeName'"},
      {R"("serviceAccountName": "admin")", "spec: found 'serviceAccountName'"},
      {R"("automountServiceAccountToken": true)", "spec.automountServiceAccountToken: found true"},
      {R"("automountServiceAccountToken": null)", "spec.automountServiceAccountToken: found nothing"},
      {R"("priorityClassName": "system-node-critical")", "spec.priorityClassName: found 'system-node-critical'"},
      {R"("securityContext": {"runAsUser": 0})", "spec.securityContext.runAsUser: found 0"},
      {R"("securityContext": {"runAsNonRoot": null})", "containers[1].securityContext"},
      {R"("securityContext": {"seccompProfile": {"type": "Unconfined"}})", "seccompProfile.type: found \"Unconfined\""},
      {R"("securityContext": {"sysctls": []})", "spec.securityContext: found 'sysctls'"},
      {R"("volumes": [{"name": "v", "hostPath": {"path": "/"}}])", "found 'hostPath'"},
      {R"("volumes": [{"name": "v", "secret": {"secretName": "s"}}])", "found 'secret'"},
      {R"("volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}])", "found 'serviceAccountToken'"},
      {R"("volumes": [{"name": "v", "csi": {"driver": "d"}}])", "found 'csi'"},
      {R"("ephemeralContainers": [])", "found 'ephemeralContainers'"},
  };
  const std::vector<std::pair<std::string, std::string>> of_worker = {
      {R"("securityContext": {"privileged": true})", "securityContext.privileged: found true"},
      {R"("securityContext": {"allowPrivilegeEscalation": true})", "allowPrivilegeEscalation: found true"},
      {R"("securityContext": {"allowPrivilegeEscalation": null})", "allowPrivilegeEscalation: found nothing"},
      {R"("securityContext": {"capabilities": {"drop": []}})", "capabilities.drop: found []"},
      {R"("securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}})", "capabilities.add[0]: found \"SYS_ADMIN\""},
      {R"("securityContext": {"procMount": "Unmasked"})", "procMount: found \"Unmasked\""},
      {R"("env": [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])", "env.S: found a Secret"},
      {R"("envFrom": [{"secretRef": {"name": "s"}}])", "found 'secretRef'"},
      {R"("ports": [{"containerPort": 1, "hostPort": 1}])", "found 'hostPort'"},
      {R"("livenessProbe": {"httpGet": {"host": "10.0.0.1"}})", "found 'host'"},
  };
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [fields, message] : cases) all.emplace_back("{\"spec\": {" + fields + "}}", message);
  for (const auto& [fields, message] : of_worker)
    all.emplace_back(R"({"spec": {"containers": [{"name": "worker", )" + fields + "}]}}", message);
  all.emplace_back(R"({"spec": {"containers": [{"name": "side", "image": "x"}]}})", "allowPrivilegeEscalation: found nothing");
  all.emplace_back(R"({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/worker": "unconfined"}}})",
                   "metadata.annotations: found");
  all.emplace_back(R"({"metadata": {"finalizers": ["a.b/c"]}})", "metadata: found 'finalizers'");
  PodDefaults any = kDefaults;
  any.any_pod_template = true;
  for (const auto& [text, message] : all) {
    Launch s = spec();
    s.pod_template_json = text;
    EXPECT_TRUE(pod_of(s, any).ok()) << text;
    const auto made = pod_of(s, kDefaults);
    if (text.find("runAsNonRoot") != std::string::npos) {
      EXPECT_TRUE(made.ok()) << "the container says it, too";
      continue;
    }
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_THAT(made.error().message, HasSubstr(message)) << text;
    EXPECT_THAT(made.error().message, HasSubstr("--any-pod-template")) << text;
  }
}

// Given: what templates are for. Expected: it needs nobody's leave.
TEST(PodTemplate, AllowsWhatTemplatesAreFor) {
  Launch s = spec();
  s.env.push_back({"TOKEN", "", std::pair<std::string, std::string>{"hub", "token"}, std::nullopt});
  s.pod_template_json = R"({
    "metadata": {"labels": {"team": "a"}, "annotations": {"prometheus.io/scrape": "false"}},
    "spec": {"schedulerName": "mine", "imagePullSecrets": [{"name": "registry"}], "priorityClassName": "high",
             "tolerations": [{"key": "gpu", "operator": "Exists"}], "runtimeClassName": "nvidia",
             "affinity": {"nodeAffinity": {}}, "securityContext": {"runAsUser": 7, "fsGroup": 7}, "hostNetwork": false,
             "volumes": [{"name": "logs", "emptyDir": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
             "initContainers": [{"name": "first", "image": "i", "securityContext": {"allowPrivilegeEscalation": false,
                                 "capabilities": {"drop": ["ALL"]}}}],
             "containers": [{"name": "worker", "livenessProbe": null, "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
                             "securityContext": {"readOnlyRootFilesystem": false},
                             "resources": {"limits": {"memory": "60Gi"}},
                             "env": [{"name": "A", "value": "b"},
                                     {"name": "B", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}],
                             "volumeMounts": [{"name": "logs", "mountPath": "/logs"}]}]}})";
  const auto made = pod_of(s, kDefaults);
  EXPECT_TRUE(made.ok()) << made.error().message;
}

// Given: templates that a hurried user writes. Expected: each is refused with the field, what was found and what is allowed;
// none throws.
TEST(PodTemplate, RefusesWhatCannotBe) {
  const auto refusal = [](const char* text) {
    Launch s = spec();
    s.pod_template_json = text;
    const auto made = pod_of(s, kDefaults);
    return made.ok() ? std::string("accepted") : made.error().message;
  };
  EXPECT_THAT(refusal("[]"), HasSubstr("spec.engine.podTemplate: found no object"));
  EXPECT_THAT(refusal("not json"), HasSubstr("found no object"));
  EXPECT_THAT(refusal(R"({"template": {}})"), HasSubstr("found field 'template'; allowed are metadata and spec"));
  EXPECT_THAT(refusal(R"({"spec": []})"), HasSubstr("podTemplate.spec: found array; allowed is an object"));
  EXPECT_THAT(refusal(R"({"spec": {"containers": {"name": "worker"}}})"), HasSubstr("spec.containers: found object"));
  EXPECT_THAT(refusal(R"({"spec": {"containers": [{"image": "x"}]}})"), HasSubstr("containers[0]: found no name"));
  EXPECT_THAT(refusal(R"({"spec": {"containers": [{"name": "side", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}})"),
              HasSubstr("container side asks for nvidia.com/gpu"));
  EXPECT_THAT(refusal(R"({"spec": {"containers": null}})"), HasSubstr("cannot be taken away"));
  for (const char* odd :
       {R"({"metadata": {"labels": null, "annotations": null}})", R"({"spec": {"containers": [{"name": "worker", "args": null,
        "env": null, "ports": null, "resources": null, "volumeMounts": null}], "volumes": null, "nodeSelector": null}})"}) {
    EXPECT_EQ(refusal(odd), "accepted");
  }
}

// Given: two specs that differ in one field. Expected: name, slot, concurrency and duty leave what is known of the worker
// alone; everything else moves it.
TEST(Launch, HashNamesWhatMatters) {
  const std::string hash = spec().hash();
  Launch s = spec();
  s.name = "other";
  s.slot = 9;
  s.max_concurrency = 1;
  EXPECT_EQ(s.hash(), hash);
  for (const char* role : {"prefill", "decode"}) {
    s.role = role;
    EXPECT_TRUE(spec().matches(s.hash())) << s.hash();
    EXPECT_TRUE(s.matches(hash));
  }
  const auto moves_it = [&](const std::function<void(Launch&)>& change) {
    Launch other = spec();
    change(other);
    return !spec().matches(other.hash()) && !other.matches(hash);
  };
  EXPECT_TRUE(moves_it([](Launch& other) { other.gpus = 4; }));
  EXPECT_TRUE(moves_it([](Launch& other) { other.extra_args = {"--threads=2"}; }));
  EXPECT_TRUE(moves_it([](Launch& other) { other.env = {{"A", "b", std::nullopt, std::nullopt}}; }));
  EXPECT_TRUE(moves_it([](Launch& other) { other.model_uri = "pvc://models/llama/70b"; }));
  EXPECT_TRUE(moves_it([](Launch& other) { other.accelerator = "a100"; }));
}

// Given: what earlier versions recorded on their pods, with and without a version, and beside what a later one may record.
// Expected: this version still counts the same hashes, so that an upgrade replaces nobody, and records the former one behind
// its own, so that one that is rolled back to replaces nobody either; its own word counts where there is one.
TEST(Launch, HashIsTheSameInEveryVersion) {
  EXPECT_EQ(spec().hash(), "v2-59268a935f16cbbd v1-8ce81baef32e4569");
  EXPECT_TRUE(spec().matches("v1-8ce81baef32e4569"));
  EXPECT_TRUE(spec().matches("8ce81baef32e4569"));
  EXPECT_TRUE(spec().matches("v3-0123456789abcdef v2-59268a935f16cbbd"));
  EXPECT_TRUE(spec().matches("v0-0123456789abcdef v1-8ce81baef32e4569"));
  EXPECT_FALSE(spec().matches("v2-0123456789abcdef v1-8ce81baef32e4569"));
  EXPECT_FALSE(spec().matches("v2-8ce81baef32e4569"));
  EXPECT_FALSE(spec().matches("v1-8ce81baef32e456a"));
  EXPECT_FALSE(spec().matches("v2-59268a935f16cbb"));
  EXPECT_FALSE(spec().matches("v"));
  EXPECT_FALSE(spec().matches(""));
  // Of pools "h100-2-prefill" and "h100-2-decode", as the version before counted them.
  EXPECT_TRUE(spec().matches("v1-12ee2e9a4e50c6ac"));
  EXPECT_TRUE(spec().matches("v1-fb4b732c7c67eaf6"));
  Launch prompts = spec();
  prompts.role = "prefill";
  EXPECT_EQ(prompts.hash(), "v2-59268a935f16cbbd v1-12ee2e9a4e50c6ac");
}

// Given: a pod as versions until 2026-11-28 labelled those of split services. Expected: a worker of the pool as it is named
// now.
TEST(Pod, IsReadFromFormerVersions) {
  Launch prompts = spec();
  prompts.pool = "h100-2-prefill";
  prompts.role = "prefill";
  const auto made = pod_of(prompts, kDefaults);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const auto worker = worker_of(*made);
  ASSERT_TRUE(worker);
  EXPECT_EQ(worker->pool, "h100-2");
  EXPECT_EQ(worker->role, "prefill");
}

// Given: containers and init containers with requests and limits. Expected: the sum of the containers, or the largest init one.
TEST(Pod, CountsWhatItHolds) {
  const json pod = json::parse(R"({"spec": {"nodeName": "n1",
    "containers": [{"resources": {"limits": {"g": "2"}}}, {"resources": {"requests": {"g": 1}}}, {}],
    "initContainers": [{"resources": {"limits": {"g": "5"}}}]}, "status": {"phase": "Running"}})");
  EXPECT_EQ(requested(pod, "g"), 5);
  EXPECT_EQ(requested(pod, "other"), 0);
  EXPECT_TRUE(holds_resources(pod));
}

}  // namespace
}  // namespace windlass::controller
