// What the runtime keeps of pods and nodes is what it reads of them, and no more.
#include "controller/runtime/kept_fields.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/runtime/pod.h"

namespace windlass::controller {
namespace {

using nlohmann::json;

// Given another owner's pod with volumes, variables and conditions; expects its identity, its node, its phase and the resources
// of its containers, which count as before, and nothing else.
TEST(KeptFields, OfAnotherOwnersPod) {
  json pod = json::parse(R"({"apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "train-0", "namespace": "lab", "uid": "p-1", "resourceVersion": "9", "labels": {"app": "train"},
                 "annotations": {"note": "long"}, "creationTimestamp": "2026-05-01T10:00:00Z"},
    "spec": {"nodeName": "n1", "volumes": [{"name": "data"}], "tolerations": [{"operator": "Exists"}],
             "initContainers": [{"name": "fetch", "image": "fetch:1", "resources": {"limits": {"nvidia.com/gpu": "4"}}}],
             "containers": [{"name": "main", "image": "train:1", "args": ["--epochs", "3"],
                             "env": [{"name": "PASSWORD", "value": "secret"}],
                             "resources": {"requests": {"nvidia.com/gpu": 2, "cpu": "8"}}},
                            {"name": "helper", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}})");
  keep_read_fields_of_pod(pod);
  EXPECT_EQ(pod, json::parse(R"({"apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "train-0", "namespace": "lab", "uid": "p-1", "resourceVersion": "9"},
    "spec": {"nodeName": "n1",
             "initContainers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}],
             "containers": [{"resources": {"requests": {"nvidia.com/gpu": 2, "cpu": "8"}}},
                            {"resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    "status": {"phase": "Running"}})"));
  EXPECT_TRUE(holds_resources(pod));
  EXPECT_EQ(requested(pod, "nvidia.com/gpu"), 4);
}

// Given a worker's pod; expects the same worker to be read from what is kept, with its tokens but no other variable.
TEST(KeptFields, OfAWorker) {
  json pod = json::parse(R"({"apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "chat-h100-1-3", "namespace": "team", "uid": "p-1", "resourceVersion": "9",
                 "creationTimestamp": "2026-05-01T10:00:00Z", "finalizers": ["windlass.dev/drain"],
                 "labels": {"app.kubernetes.io/component": "worker", "windlass.dev/service": "chat",
                            "windlass.dev/pool": "h100-1", "windlass.dev/slot": "3", "windlass.dev/role": "decode"},
                 "annotations": {"windlass.dev/accelerator": "h100", "windlass.dev/max-concurrency": "16"},
                 "ownerReferences": [{"apiVersion": "windlass.dev/v1alpha1", "kind": "ModelService", "name": "chat",
                                      "uid": "u-1", "controller": true}]},
    "spec": {"nodeName": "n1", "volumes": [{"name": "models"}],
             "containers": [{"name": "worker", "image": "worker:1", "args": ["--model", "m"],
                             "env": [{"name": "HF_HOME", "value": "/m"}, {"name": "WINDLASS_WORKER_TOKEN", "value": "t"},
                                                           {"name": "WINDLASS_DUTY_TOKEN", "value": "d"}]}]},
    "status": {"phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.1.0.1", "startTime": "2026-05-01T10:00:01Z",
               "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T10:00:09Z"}],
               "containerStatuses": [{"name": "worker", "ready": true, "started": true}]}})");
  const auto before = worker_of(pod);
  keep_read_fields_of_pod(pod);
  const auto after = worker_of(pod);
  ASSERT_TRUE(before && after);
  EXPECT_EQ(*before, *after);
  EXPECT_EQ(after->token, "t");
  EXPECT_EQ(after->duty_token, "d");
  EXPECT_EQ(after->address, "10.0.0.1:8000");
  EXPECT_EQ(pod["spec"]["containers"][0]["env"].size(), 2U);
  EXPECT_FALSE(pod["spec"].contains("volumes"));
}

// Given a node with the list of its images, which can be most of it; expects what says whether and for what it can be used.
TEST(KeptFields, OfANode) {
  json node = json::parse(R"({"metadata": {"name": "n1", "uid": "n-1", "resourceVersion": "5", "labels": {"zone": "a"},
                                           "annotations": {"a": "b"}},
    "spec": {"podCIDR": "10.0.0.0/24", "unschedulable": true, "taints": [{"key": "gpu"}]},
    "status": {"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"},
               "conditions": [{"type": "Ready", "status": "True"}], "images": [{"names": ["a", "b"]}]}})");
  keep_read_fields_of_node(node);
  EXPECT_EQ(node, json::parse(R"({"metadata": {"name": "n1", "uid": "n-1", "resourceVersion": "5", "labels": {"zone": "a"}},
    "spec": {"unschedulable": true, "taints": [{"key": "gpu"}]},
    "status": {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}})"));
}

// Given fields of wrong types; expects no exception.
TEST(KeptFields, TolerateWrongTypes) {
  for (const char* text : {R"({"metadata": 1, "spec": [], "status": "x"})", R"({})",
                           R"({"metadata": {}, "spec": {"containers": {"a": 1}}, "status": {"conditions": 3}})",
                           R"({"metadata": {}, "spec": {"containers": [1, {"env": 2}, {"env": [3]}]}})"}) {
    json object = json::parse(text);
    EXPECT_NO_THROW(keep_read_fields_of_pod(object)) << text;
    EXPECT_NO_THROW(keep_read_fields_of_node(object)) << text;
  }
}

}  // namespace
}  // namespace windlass::controller
