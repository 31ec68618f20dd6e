// Converting a worker to a pod and back, and merging pod templates.
#include "controller/runtime/pod.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/reconcile/spec.h"
#include "controller/runtime/taints.h"

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

// Given: a worker with two GPUs and a volume claim. Expected: the pod requests the GPUs, mounts the claim, passes the engine's
// arguments, drains within its grace period, and belongs to the service.
TEST(Pod, DescribesTheWorker) {
  const auto made = pod_of(spec(), kDefaults);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const json& pod = *made;
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["uid"], "u-1");
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["controller"], true);
  EXPECT_EQ(pod["spec"]["terminationGracePeriodSeconds"], 105) << "the drain timeout, and time to exit";
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

// Given: a worker of one phase, and one for whole requests. Expected: only the first has the flag for its role, which the
// kubelet fills in from the label at each start of the container, and a pod that changes its role is read as one of the new
// role.
TEST(Pod, ARoleIsReadFromTheLabel) {
  Launch one = spec();
  one.role = "prefill";
  json pod = *pod_of(one, kDefaults);
  const json& container = pod["spec"]["containers"][0];
  EXPECT_THAT(container["args"], ::testing::Contains("--role=$(WINDLASS_ROLE)"));
  EXPECT_THAT(
      container["env"],
      ::testing::Contains(json::parse(
          R"({"name": "WINDLASS_ROLE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['windlass.dev/role']"}}})")));
  pod["metadata"]["labels"]["windlass.dev/role"] = "decode";
  pod["metadata"]["annotations"]["windlass.dev/changing-role-since"] = "1700000000.500";
  EXPECT_EQ(worker_of(pod)->role, "decode");
  EXPECT_EQ(worker_of(pod)->changing_role_since_s, 1700000000.5);
  EXPECT_EQ(pod_of(spec(), kDefaults)->dump().find("WINDLASS_ROLE"), std::string::npos);
}

// Given: an installation with a token. Expected: all pods of a service have the same derived token, different from other
// services' and the installation's, whatever variables the user sets; it is read back. Pods of other engines, and of
// installations without a token, have none.
TEST(Pod, EachServiceHasItsOwnToken) {
  PodDefaults defaults = kDefaults;
  defaults.token = [] { return std::string("the installation's token"); };
  const auto token = [](const Launch& of, const PodDefaults& with) { return worker_of(*pod_of(of, with))->token; };
  Launch one = spec(), other = spec(), engine = spec();
  const std::string of_one = token(one, defaults);
  const std::string duty = worker_of(*pod_of(one, defaults))->duty_token;
  EXPECT_EQ(duty.size(), 64U);
  EXPECT_NE(duty, of_one) << "gateways have the other one";
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

// Given: the first pod as the API server returns it, ready. Expected: the same worker, ready at its address.
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

// Given: a server of a chain. Expected: its own part of the GPUs, and the chain's when it is read back; a launch hash that all
// servers of the chain have, and no whole worker.
TEST(Pod, OfAServerOfAChain) {
  Launch chain = spec();
  chain.stages = 2;
  chain.layers = 30;
  chain.pod_template_json = R"({"metadata": {"annotations": {"note": "x"}}})";
  const std::string hash = chain.hash();
  Launch whole = chain;
  whole.stages = 1;
  EXPECT_FALSE(whole.matches(hash));
  for (chain.stage = 0; chain.stage < 2; ++chain.stage) {
    const json pod = *pod_of(chain, kDefaults);
    const json& container = pod["spec"]["containers"][0];
    EXPECT_EQ(container["resources"]["limits"]["nvidia.com/gpu"], "1");
    EXPECT_THAT(container["args"], ::testing::Contains(chain.stage == 0 ? "--blocks=0:15" : "--blocks=15:30"));
    const auto worker = worker_of(pod);
    ASSERT_TRUE(worker);
    EXPECT_EQ(worker->gpus, 2);
    EXPECT_EQ(worker->stages, 2);
    EXPECT_EQ(worker->stage, chain.stage);
    EXPECT_EQ(worker->spec_hash, hash);
  }
}

// Given: a pod with our labels but without a ModelService as controller. Expected: it is not adopted.
TEST(Pod, IsAdoptedOnlyByItsOwner) {
  json pod = *pod_of(spec(), kDefaults);
  pod["metadata"].erase("ownerReferences");
  EXPECT_FALSE(worker_of(pod));
  pod["metadata"]["ownerReferences"] = {
      {{"apiVersion", "apps/v1"}, {"kind", "ReplicaSet"}, {"name", "x"}, {"uid", "y"}, {"controller", true}}};
  EXPECT_FALSE(worker_of(pod));
}

// Given: pods in trouble or ending. Expected: each state is distinguished.
TEST(Pod, StatesAreDistinguished) {
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

// Given: specifications that a pod cannot have. Expected: an error with the field, the rule and the value.
TEST(Pod, RefusesImpossibleSpecs) {
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

// Given: workers of all engines. Expected: pods of engines that would cut their streams on SIGTERM poll the load first; vLLM
// 0.18 and windlass-worker wait for their requests themselves.
TEST(Pod, DrainsEnginesThatDoNotWaitForRequests) {
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

// Given: workers of all engines. Expected: no probe asks a page that generates a token. SGLang's /health generates one, unless
// its version knows the variable that turns this off; then it tells when the warm-up has ended. A user's value of it stays.
TEST(Pod, ProbesGenerateNoTokens) {
  const auto probes = [](const char* engine, const char* image) {
    Launch s = spec();
    s.engine = engine;
    s.image = image;
    const json worker = (*pod_of(s, kDefaults))["spec"]["containers"][0];
    const auto path = [&](const char* probe) { return worker[probe]["httpGet"]["path"].get<std::string>(); };
    return path("startupProbe") + " " + path("readinessProbe") + " " + path("livenessProbe");
  };
  EXPECT_EQ(probes("Windlass", "windlass:1"), "/health /ready /health");
  EXPECT_EQ(probes("VLLM", "vllm:v0.18.0"), "/health /health /health");
  EXPECT_EQ(probes("TensorRTLLM", "trt:1"), "/health /health /health");
  EXPECT_EQ(probes("LlamaCpp", "server:1"), "/health /health /health");
  EXPECT_EQ(probes("SGLang", "sglang:v0.5.9-cu126"), "/health /v1/models /v1/models");
  EXPECT_EQ(probes("SGLang", "sglang:v0.6"), "/health /v1/models /v1/models");
  for (const char* unknown : {"sglang:v0.5.8", "sglang:v0.4.10", "sglang:stable"})
    EXPECT_EQ(probes("SGLang", unknown), "/v1/models /v1/models /v1/models") << unknown;

  Launch s = spec();
  s.engine = "SGLang";
  s.image = "sglang:v0.5.9";
  const auto variable = [](const Launch& of) {
    std::string values;
    const json pod = *pod_of(of, kDefaults);
    for (const json& one : pod["spec"]["containers"][0]["env"]) {
      if (one["name"] == "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION") values += one["value"].get<std::string>();
    }
    return values;
  };
  EXPECT_EQ(variable(s), "false");
  s.env = {{"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "true", std::nullopt, std::nullopt}};
  EXPECT_EQ(variable(s), "true");
  EXPECT_EQ(variable(spec()), "");
}

// Given: a worker of any engine. Expected: it runs as an unprivileged user without an account token, cannot write to its image,
// and has places for cache, temporary files and shared memory; GPU requests equal limits.
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
    for (const char* probe : {"readinessProbe", "livenessProbe", "startupProbe"}) EXPECT_TRUE(worker.contains(probe)) << probe;
  }
}

// Given: Secrets for pulling images, and a cluster that chooses the user of each pod. Expected: pods of all engines name the
// Secrets next to those of the template, and no user, but still refuse to run as root.
TEST(Pod, PullsWithSecretsAndRunsAsTheClustersUser) {
  PodDefaults defaults = kDefaults;
  defaults.pull_secrets = {"registry", "mirror"};
  defaults.user = std::nullopt;
  for (const char* engine : {"Windlass", "VLLM"}) {
    Launch s = spec();
    s.engine = engine;
    s.image = "engine:1";
    s.pod_template_json = R"({"spec": {"imagePullSecrets": [{"name": "mine"}, {"name": "mirror"}]}})";
    const auto made = pod_of(s, defaults);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ((*made)["spec"]["imagePullSecrets"],
              json::parse(R"([{"name": "registry"}, {"name": "mirror"}, {"name": "mine"}])"));
    EXPECT_EQ((*made)["spec"]["securityContext"],
              json::parse(R"({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}})"));
  }
  EXPECT_FALSE((*pod_of(spec(), kDefaults))["spec"].contains("imagePullSecrets"));
}

// Given: a class with tolerations, and one without. Expected: pods tolerate them, and always the taint that is named like the
// resource; a change of the class's tolerations replaces workers, since a pod that waits for a node cannot change its own.
TEST(Pod, ToleratesTheTaintsOfItsClass) {
  const json always = json::parse(R"({"key": "nvidia.com/gpu", "operator": "Exists"})");
  EXPECT_EQ((*pod_of(spec(), kDefaults))["spec"]["tolerations"], json::array({always}));
  Launch s = spec();
  s.tolerations = {{"dedicated", "Equal", "llm", "NoSchedule"}, {"", "Exists", "", ""}};
  EXPECT_EQ((*pod_of(s, kDefaults))["spec"]["tolerations"],
            json::array({json::parse(R"({"key": "dedicated", "operator": "Equal", "value": "llm", "effect": "NoSchedule"})"),
                         json{{"operator", "Exists"}}, always}));
  EXPECT_FALSE(spec().matches(s.hash()));
}

// Given: taints and tolerations of all kinds. Expected: as Kubernetes matches them; PreferNoSchedule keeps nobody away.
TEST(Taints, AreToleratedAsInKubernetes) {
  const auto tolerates = [](const api::Toleration& one, const Taint& taint) { return tolerated({taint}, {one}); };
  const Taint gpu{"gpu", "a", "NoSchedule"};
  EXPECT_TRUE(tolerates({"gpu", "Exists", "", ""}, gpu));
  EXPECT_TRUE(tolerates({"", "Exists", "", ""}, gpu));
  EXPECT_TRUE(tolerates({"gpu", "Equal", "a", "NoSchedule"}, gpu));
  EXPECT_FALSE(tolerates({"gpu", "Equal", "b", ""}, gpu));
  EXPECT_FALSE(tolerates({"gpu", "Exists", "", "NoExecute"}, gpu));
  EXPECT_FALSE(tolerates({"other", "Exists", "", ""}, gpu));
  EXPECT_FALSE(tolerated({gpu, {"x", "", "NoExecute"}}, {{"gpu", "Exists", "", ""}}));
  EXPECT_TRUE(tolerated({}, {}));
  const auto taints = taints_of(json::parse(R"({"spec": {"taints": [{"key": "a", "effect": "PreferNoSchedule"},
    {"key": "b", "value": "c", "effect": "NoExecute"}]}})"));
  ASSERT_EQ(taints.size(), 1U);
  EXPECT_EQ(taints[0].key + taints[0].value + taints[0].effect, "bcNoExecute");
}

// Given: workers with one GPU and with two. Expected: the first are spread over nodes, so that one node's end leaves others;
// the second are packed next to other workers, so that nodes with several free GPUs remain.
TEST(Pod, SpreadsSingleGpusAndPacksSeveral) {
  const json packed = *pod_of(spec(), kDefaults);
  EXPECT_FALSE(packed["spec"].contains("topologySpreadConstraints"));
  const json& term = packed["spec"]["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0];
  EXPECT_EQ(term["podAffinityTerm"]["topologyKey"], "kubernetes.io/hostname");
  const json labels = term["podAffinityTerm"]["labelSelector"]["matchLabels"];
  for (const auto& label : labels.items()) EXPECT_EQ(packed["metadata"]["labels"][label.key()], label.value());
  Launch one = spec();
  one.gpus = 1;
  const json spread = *pod_of(one, kDefaults);
  EXPECT_FALSE(spread["spec"].contains("affinity"));
  EXPECT_EQ(spread["spec"]["topologySpreadConstraints"][0]["topologyKey"], "kubernetes.io/hostname");
  EXPECT_EQ(spread["spec"]["topologySpreadConstraints"][0]["whenUnsatisfiable"], "ScheduleAnyway");
}

// Given: a model of 16.1 GB, from the Hub and from a volume, on two GPUs and on a class that counts pieces of processors.
// Expected: on GPUs memory for two processes and for loading, on processors all that the plan lets the worker use; disk for a
// download only. Unknown models, and small ones, request 1 GiB of each. The hash is the same.
TEST(Pod, RequestsFollowTheModel) {
  const auto requests = [](const Launch& of) {
    const json worker = (*pod_of(of, PodDefaults{"w:1", "fetch:1"}))["spec"]["containers"][0];
    const json& all = worker["resources"]["requests"];
    return all["memory"].get<std::string>() + " " + all["ephemeral-storage"].get<std::string>();
  };
  const planner::ModelShape shape = planner::model_shape_by_name("llama3-8b").value();
  api::AcceleratorClass gpu, processors;
  processors.spec.resource_name = "windlass.dev/cpu";
  processors.spec.memory_bytes = std::int64_t{3} << 30;
  Launch volume = spec(), hub = spec(), cpu = spec();
  hub.model_uri = "hf://meta-llama/Llama-3";
  request_resources(gpu, shape, volume);
  request_resources(gpu, shape, hub);
  request_resources(processors, shape, cpu);
  EXPECT_EQ(requests(volume), "12Gi 1Gi");
  Launch server = spec();  // one of two, with half of the layers and one GPU
  server.stages = 2;
  server.layers = 32;
  request_resources(gpu, shape, server);
  EXPECT_EQ(requests(server), "10Gi 1Gi");
  EXPECT_EQ(requests(hub), "12Gi 17Gi");
  EXPECT_EQ(requests(cpu), "6Gi 1Gi");
  EXPECT_EQ(requests(spec()), "1Gi 1Gi");
  EXPECT_EQ(volume.hash(), spec().hash());
}

// Given: a template with limits below and above what the model's size asks for, and with a request of its own. Expected: no
// request above its limit, which the API server would refuse, and the user's request as it is.
TEST(PodTemplate, RequestsStayWithinTheUsersLimits) {
  Launch s = spec();
  s.memory_bytes = 12.0 * (1 << 30);
  const auto requests = [&](const char* resources) {
    s.pod_template_json = fmt::format(R"({{"spec": {{"containers": [{{"name": "worker", "resources": {}}}]}}}})", resources);
    const json pod = *pod_of(s, kDefaults);
    const json& all = pod["spec"]["containers"][0]["resources"]["requests"];
    return all["cpu"].get<std::string>() + " " + all["memory"].get<std::string>();
  };
  EXPECT_EQ(requests(R"({"limits": {"memory": "4G", "cpu": "0.2"}})"), "0.2 4G");
  EXPECT_EQ(requests(R"({"limits": {"memory": "60Gi", "cpu": "2"}})"), "500m 12Gi");
  EXPECT_EQ(requests(R"({"limits": {"memory": "60Gi"}, "requests": {"memory": "40Gi"}})"), "500m 40Gi");
}

// Given: trtllm-serve, whose metrics only a file turns on. Expected: the file is an annotation of the pod, mounted where the
// arguments say. A user's own file replaces it, under either name of the option.
TEST(Pod, TensorRtLlmReportsItsLoad) {
  Launch s = spec();
  s.engine = "TensorRTLLM";
  s.image = "trt:1";
  const auto made = pod_of(s, kDefaults);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const json& pod = *made;
  const json& worker = pod["spec"]["containers"][0];
  const auto args = worker["args"].get<std::vector<std::string>>();
  const auto option = std::find(args.begin(), args.end(), "--extra_llm_api_options");
  ASSERT_NE(option, args.end());
  EXPECT_EQ(*std::next(option), "/etc/windlass/engine/options.yaml");
  EXPECT_EQ(pod["metadata"]["annotations"]["windlass.dev/engine-options"],
            "return_perf_metrics: true\nenable_iter_perf_stats: true\n");
  EXPECT_THAT(pod["spec"]["volumes"], testing::Contains(json::parse(R"({"name": "engine-options", "downwardAPI": {"items": [
    {"path": "options.yaml", "fieldRef": {"fieldPath": "metadata.annotations['windlass.dev/engine-options']"}}]}})")));
  EXPECT_THAT(
      worker["volumeMounts"],
      testing::Contains(json::parse(R"({"name": "engine-options", "mountPath": "/etc/windlass/engine", "readOnly": true})")));
  for (const char* name : {"--config=/models/own.yaml", "--extra_llm_api_options=/models/own.yaml"}) {
    s.extra_args = {name};
    EXPECT_EQ(pod_of(s, kDefaults)->dump().find("engine-options"), std::string::npos) << name;
  }
  EXPECT_EQ(pod_of(spec(), kDefaults)->dump().find("engine-options"), std::string::npos);
}

// Given: a user's own HF_HOME. Expected: it appears once, with the user's value.
TEST(Pod, UserVariablesWin) {
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

// Given: a template that sets the worker's identity, its GPU count and its shutdown, and other fields. Expected: the first
// group keeps our values; the user's other fields apply.
TEST(PodTemplate, KeepsTheWorkersIdentityAndTakesTheRest) {
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
  EXPECT_EQ(pod["spec"]["terminationGracePeriodSeconds"], 105);
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Always");
  EXPECT_EQ(pod["spec"]["schedulerName"], "mine");
  EXPECT_EQ(pod["spec"]["imagePullSecrets"][0]["name"], "registry");
  EXPECT_THAT(pod["spec"]["tolerations"], testing::Contains(json{{"key", "gpu"}, {"operator", "Exists"}}));
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

// Given: templates that would give their author the node, another account or another's Secret. Expected: each is refused with
// its field, and accepted if an administrator allows it.
TEST(PodTemplate, RefusesControlOfTheNode) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("hostNetwork": true)", "spec.hostNetwork: must be ... (got true)"},
      {R"("hostPID": true)", "spec.hostPID: must be ... (got true)"},
      {R"("hostIPC": true)", "spec.hostIPC: must be ... (got true)"},
      {R"("nodeName": "n")", "spec: must be ... (got 'nodeName')"},
      {R"("serviceAccountName": "admin")", "spec: must be ... (got 'serviceAccountName')"},
      {R"("automountServiceAccountToken": true)", "spec.automountServiceAccountToken: must be ... (got true)"},
      {R"("automountServiceAccountToken": null)", "spec.automountServiceAccountToken: must be ... (got nothing)"},
      {R"("priorityClassName": "system-node-critical")", "spec.priorityClassName: must be ... (got 'system-node-critical')"},
      {R"("securityContext": {"runAsUser": 0})", "spec.securityContext.runAsUser: must be ... (got 0)"},
      {R"("securityContext": {"runAsNonRoot": null})", "containers[1].securityContext"},
      {R"("securityContext": {"seccompProfile": {"type": "Unconfined"}})",
       "seccompProfile.type: must be ... (got \"Unconfined\")"},
      {R"("securityContext": {"sysctls": []})", "spec.securityContext: must be ... (got 'sysctls')"},
      {R"("volumes": [{"name": "v", "hostPath": {"path": "/"}}])", "... (got 'hostPath')"},
      {R"("volumes": [{"name": "v", "secret": {"secretName": "s"}}])", "... (got 'secret')"},
      {R"("volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}])",
       "... (got 'serviceAccountToken')"},
      {R"("volumes": [{"name": "v", "csi": {"driver": "d"}}])", "... (got 'csi')"},
      {R"("ephemeralContainers": [])", "... (got 'ephemeralContainers')"},
  };
  const std::vector<std::pair<std::string, std::string>> of_worker = {
      {R"("securityContext": {"privileged": true})", "securityContext.privileged: must be ... (got true)"},
      {R"("securityContext": {"allowPrivilegeEscalation": true})", "allowPrivilegeEscalation: must be ... (got true)"},
      {R"("securityContext": {"allowPrivilegeEscalation": null})", "allowPrivilegeEscalation: must be ... (got nothing)"},
      {R"("securityContext": {"capabilities": {"drop": []}})", "capabilities.drop: must be ... (got [])"},
      {R"("securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}})",
       "capabilities.add[0]: must be ... (got \"SYS_ADMIN\")"},
      {R"("securityContext": {"procMount": "Unmasked"})", "procMount: must be ... (got \"Unmasked\")"},
      {R"("env": [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])",
       "env.S: must be ... (got another Secret)"},
      {R"("envFrom": [{"secretRef": {"name": "s"}}])", "... (got 'secretRef')"},
      {R"("ports": [{"containerPort": 1, "hostPort": 1}])", "... (got 'hostPort')"},
      {R"("livenessProbe": {"httpGet": {"host": "10.0.0.1"}})", "... (got 'host')"},
  };
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [fields, message] : cases) all.emplace_back("{\"spec\": {" + fields + "}}", message);
  for (const auto& [fields, message] : of_worker)
    all.emplace_back(R"({"spec": {"containers": [{"name": "worker", )" + fields + "}]}}", message);
  all.emplace_back(R"({"spec": {"containers": [{"name": "side", "image": "x"}]}})",
                   "allowPrivilegeEscalation: must be ... (got nothing)");
  all.emplace_back(R"({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/worker": "unconfined"}}})",
                   "metadata.annotations: must be without security profiles (got ");
  all.emplace_back(R"({"metadata": {"finalizers": ["a.b/c"]}})", "metadata: must be ... (got 'finalizers')");
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
    // Given: typical templates. Expected: they are accepted without special permission.
    const std::size_t rule = message.find("...");
    EXPECT_THAT(made.error().message, HasSubstr(message.substr(0, rule))) << text;
    if (rule != std::string::npos) {
      EXPECT_THAT(made.error().message, HasSubstr(message.substr(rule + 3))) << text;
    }
    EXPECT_THAT(made.error().message, HasSubstr("--any-pod-template")) << text;
  }
}

// Given: templates with typical mistakes. Expected: each is refused with the field, the rule and the value; none throws.
TEST(PodTemplate, AllowsTypicalTemplates) {
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

// Given: two specs that differ in one field. Expected: name, slot, concurrency and role do not change the worker's hash; every
// other field does.
TEST(PodTemplate, RefusesMistakes) {
  const auto refusal = [](const char* text) {
    Launch s = spec();
    s.pod_template_json = text;
    const auto made = pod_of(s, kDefaults);
    return made.ok() ? std::string("accepted") : made.error().message;
  };
  EXPECT_THAT(refusal("[]"), HasSubstr("spec.engine.podTemplate: must be an object with metadata and spec (got array)"));
  EXPECT_THAT(refusal("not json"), HasSubstr("must be an object"));
  EXPECT_THAT(refusal(R"({"template": {}})"), HasSubstr("must have only the fields metadata and spec (got 'template')"));
  EXPECT_THAT(refusal(R"({"spec": []})"), HasSubstr("podTemplate.spec: must be an object (got array)"));
  EXPECT_THAT(refusal(R"({"spec": {"containers": {"name": "worker"}}})"),
              HasSubstr("spec.containers: must be a list (got object)"));
  EXPECT_THAT(refusal(R"({"spec": {"containers": [{"image": "x"}]}})"),
              HasSubstr("containers[0]: must be an object with name"));
  EXPECT_THAT(refusal(R"({"spec": {"containers": [{"name": "side", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}})"),
              HasSubstr("must request nvidia.com/gpu for no container but the worker"));
  EXPECT_THAT(refusal(R"({"spec": {"containers": null}})"), HasSubstr("must keep the container named worker"));
  for (const char* odd :
       {R"({"metadata": {"labels": null, "annotations": null}})", R"({"spec": {"containers": [{"name": "worker", "args": null,
        "env": null, "ports": null, "resources": null, "volumeMounts": null}], "volumes": null, "nodeSelector": null}})"}) {
    EXPECT_EQ(refusal(odd), "accepted");
  }
}

// Given: hashes recorded by earlier versions, with and without a version, and next to that of a possible later version.
// Expected: this version computes the same hashes, so that an upgrade replaces no worker; it also records the former hash, so
// that a rollback replaces no worker; its own hash takes precedence.
TEST(Launch, HashCoversWhatRequiresARestart) {
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
  EXPECT_TRUE(moves_it([](Launch& other) { other.settings.batching = planner::Batching::kSarathi; }));
  EXPECT_TRUE(moves_it([](Launch& other) { other.settings.max_sequences = 64; }));
  EXPECT_TRUE(moves_it([](Launch& other) { other.settings.max_batch_tokens = 512; }));
  EXPECT_TRUE(moves_it([](Launch& other) { other.settings.precision = planner::DType::kFloat8; }));
  // No worker gets these.
  s.settings.kv_blocks = 1000;
  s.settings.prefix_caching = true;
  EXPECT_TRUE(s.matches(hash));
}

// Of pools "h100-2-prefill" and "h100-2-decode", as computed by the version before.
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
  // Given: a pod of a split service, labelled by a version until 2026-11-28. Expected: a worker with the pool's current name.
  EXPECT_TRUE(spec().matches("v1-12ee2e9a4e50c6ac"));
  EXPECT_TRUE(spec().matches("v1-fb4b732c7c67eaf6"));
  Launch prompts = spec();
  prompts.role = "prefill";
  EXPECT_EQ(prompts.hash(), "v2-59268a935f16cbbd v1-12ee2e9a4e50c6ac");
}

// Given: containers and init containers with requests and limits. Expected: the sum of the containers, or the largest init
// container.
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
TEST(Pod, CountsItsResources) {
  const json pod = json::parse(R"({"spec": {"nodeName": "n1",
    "containers": [{"resources": {"limits": {"g": "2"}}}, {"resources": {"requests": {"g": 1}}}, {}],
    "initContainers": [{"resources": {"limits": {"g": "5"}}}]}, "status": {"phase": "Running"}})");
  EXPECT_EQ(requested(pod, "g"), 5);
  EXPECT_EQ(requested(pod, "other"), 0);
  EXPECT_TRUE(holds_resources(pod));
}

}  // namespace
}  // namespace windlass::controller
