// Tests the nodes of a snapshot: which are listed, what others use on them, and that they add up to the classes' figures.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planner/base/rng.h"
#include "planner/policy/json.h"
#include "tests/effort.h"
#include "tests/unit/controller/reconcile/installation.h"

namespace windlass::controller {
namespace {

using nlohmann::json;

json accelerator_class(const std::string& name) {
  json object = json::parse(R"({"apiVersion": "windlass.dev/v1alpha1", "kind": "AcceleratorClass",
    "spec": {"resourceName": "nvidia.com/gpu", "memory": "80Gi", "peakFlopsPerSecond": {"bf16": "989T"},
             "memoryBandwidthBytesPerSecond": "3350G", "gpusPerNode": 8}})");
  object["metadata"]["name"] = name;
  object["spec"]["nodeSelector"] = {{"gpu", name}};
  return object;
}

json node(const std::string& name, const std::string& gpu, int gpus) {
  return {{"apiVersion", "v1"},
          {"kind", "Node"},
          {"metadata", {{"name", name}, {"labels", {{"gpu", gpu}, {"topology.kubernetes.io/zone", "zone-" + name}}}}},
          {"status",
           {{"allocatable", {{"nvidia.com/gpu", std::to_string(gpus)}}},
            {"conditions", json::array({{{"type", "Ready"}, {"status", "True"}}})}}}};
}

json foreign_pod(const std::string& name, const std::string& on, int gpus) {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", name}, {"namespace", "team"}}},
          {"spec",
           {{"nodeName", on},
            {"containers",
             json::array({{{"name", "main"}, {"resources", {{"requests", {{"nvidia.com/gpu", std::to_string(gpus)}}}}}}})}}},
          {"status", {{"phase", "Running"}}}};
}

json model_service() {
  return {{"apiVersion", "windlass.dev/v1alpha1"},
          {"kind", "ModelService"},
          {"metadata", {{"name", "chat"}, {"namespace", "default"}}},
          {"spec",
           {{"model", {{"servedName", "chat"}, {"uri", "pvc://models/llama"}, {"architecture", "llama3-8b"}}},
            {"slo", {{"timeToFirstToken", "1s"}, {"timePerOutputToken", "50ms"}}}}}};
}

void run_worker(Installation& by, const std::string& name, const std::string& owner_uid, const std::string& accelerator,
                int gpus, const std::string& on) {
  Launch spec;
  spec.name = name;
  spec.name_space = "default";
  spec.service = "chat";
  spec.service_uid = owner_uid;
  spec.pool = accelerator + "-" + std::to_string(gpus);
  spec.accelerator = accelerator;
  spec.gpus = gpus;
  spec.resource_name = "nvidia.com/gpu";
  spec.engine = "Windlass";
  spec.model_uri = "pvc://models/llama";
  ASSERT_TRUE(by.runtime.create(spec).ok());
  if (!on.empty()) by.api.kubelet_set("default", name, {.phase = "Running", .ready = true, .pod_ip = "10.0.0.1", .node = on});
}

// Given random nodes of two classes and of none, some cordoned, being removed or not ready, with other owners' pods, workers of
// the service and workers whose service is gone; expects every node of a class with its GPUs and zone, the sums over those that
// take workers to be the class's figures, and each worker on its node.
TEST(ObservedNodes, AddUpToTheirClass) {
  int unschedulable = 0, used = 0;
  for (std::uint64_t seed = 1; seed <= effort(60U, 600U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed, "nodes");
    fakes::FakeApiServer api;
    for (const char* name : {"h100", "a100"}) api.seed_object(accelerator_class(name));
    Installation installation(api, "windlass");
    const std::string uid = api.seed_object(model_service())["metadata"]["uid"];
    std::map<std::string, json> of_class;
    std::map<std::string, std::string> runs_on;  // worker -> node
    const auto count = rng.integer(0, 6);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::string name = "n" + std::to_string(i);
      const std::string gpu = std::vector<std::string>{"h100", "a100", "other"}[static_cast<std::size_t>(rng.integer(0, 2))];
      const int gpus = static_cast<int>(rng.integer(0, 8));
      json object = node(name, gpu, gpus);
      const auto trouble = rng.integer(0, 7);
      if (trouble == 0) object["spec"]["unschedulable"] = true;
      if (trouble == 1) object["spec"]["taints"] = json::array({{{"key", "karpenter.sh/disrupted"}, {"effect", "NoSchedule"}}});
      if (trouble == 2) object["status"]["conditions"][0]["status"] = "Unknown";
      const bool takes_workers = trouble > 2;
      api.seed_object(object);
      if (gpu != "other" && gpus > 0) of_class[name] = object;
      if (gpus > 0 && rng.integer(0, 1) == 0)
        api.seed_object(foreign_pod("p-" + name, name, static_cast<int>(rng.integer(1, gpus))));
      (void)installation.observe();
      if (gpu == "other" || gpus == 0) continue;
      if (rng.integer(0, 1) == 0) {
        run_worker(installation, "mine-" + name, uid, gpu, 1, name);
        runs_on["mine-" + name] = name;
      }
      // To the planner, others hold the GPUs of a worker whose service is gone.
      if (takes_workers && rng.integer(0, 2) == 0) run_worker(installation, "lost-" + name, "gone", gpu, 1, name);
    }
    run_worker(installation, "pending", uid, "h100", 2, "");
    runs_on["pending"] = "";

    (void)installation.observe();  // requests what has changed; the next step reads it
    const planner::Snapshot snapshot = installation.observe().snapshot;
    ASSERT_EQ(snapshot.nodes.size(), of_class.size());
    for (const planner::NodeState& state : snapshot.nodes) {
      const json& object = of_class.at(state.name);
      EXPECT_EQ(state.accelerator, object["metadata"]["labels"]["gpu"]);
      EXPECT_EQ(std::to_string(state.allocatable_gpus), object["status"]["allocatable"]["nvidia.com/gpu"]);
      EXPECT_EQ(state.zone, "zone-" + state.name);
      unschedulable += state.unschedulable ? 1 : 0;
      used += state.used_by_others > 0 ? 1 : 0;
    }
    for (const planner::AcceleratorState& state : snapshot.accelerators) {
      int allocatable = 0, used_by_others = 0;
      for (const planner::NodeState& of : snapshot.nodes) {
        if (of.accelerator != state.spec.name || of.unschedulable) continue;
        allocatable += of.allocatable_gpus;
        used_by_others += of.used_by_others;
      }
      EXPECT_EQ(allocatable, state.allocatable_gpus) << state.spec.name;
      EXPECT_EQ(used_by_others, state.used_by_others) << state.spec.name;
    }
    ASSERT_EQ(snapshot.services.size(), 1U);
    ASSERT_EQ(snapshot.services[0].workers.size(), runs_on.size());
    for (const planner::Worker& worker : snapshot.services[0].workers) EXPECT_EQ(worker.node, runs_on.at(worker.name));
    EXPECT_EQ(planner::snapshot_from_json(planner::to_json(snapshot)).value(), snapshot);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(unschedulable, 10);
  EXPECT_GT(used, 10);
}

// Given nodes of a class with taints: one named like the resource, one that the class tolerates, one that it does not, and one
// of the last kind where two workers run already; expects the first two to count whole, the third to take no worker, and the
// last to count with its workers' GPUs only, although others hold GPUs there.
TEST(ObservedNodes, CountOnlyWithToleratedTaints) {
  fakes::FakeApiServer api;
  json of_class = accelerator_class("h100");
  of_class["spec"]["tolerations"] =
      json::array({{{"key", "dedicated"}, {"operator", "Equal"}, {"value", "llm"}, {"effect", "NoSchedule"}}});
  api.seed_object(of_class);
  const std::string uid = api.seed_object(model_service())["metadata"]["uid"];
  const std::map<std::string, json> taints = {{"like-the-resource", {{"key", "nvidia.com/gpu"}, {"effect", "NoSchedule"}}},
                                              {"tolerated", {{"key", "dedicated"}, {"value", "llm"}, {"effect", "NoSchedule"}}},
                                              {"closed", {{"key", "dedicated"}, {"value", "db"}, {"effect", "NoSchedule"}}},
                                              {"closed-later", {{"key", "team"}, {"effect", "NoExecute"}}}};
  for (const auto& [name, taint] : taints) {
    json object = node(name, "h100", 8);
    object["spec"]["taints"] = json::array({taint});
    api.seed_object(object);
  }
  api.seed_object(foreign_pod("other", "closed-later", 1));
  Installation installation(api, "windlass");
  (void)installation.observe();
  for (const char* name : {"mine-0", "mine-1"}) run_worker(installation, name, uid, "h100", 2, "closed-later");
  (void)installation.observe();
  const planner::Snapshot snapshot = installation.observe().snapshot;
  std::map<std::string, int> takes;
  for (const planner::NodeState& state : snapshot.nodes) {
    takes[state.name] = state.unschedulable ? 0 : state.allocatable_gpus - state.used_by_others;
  }
  EXPECT_EQ(takes,
            (std::map<std::string, int>{{"closed", 0}, {"closed-later", 4}, {"like-the-resource", 8}, {"tolerated", 8}}));
  ASSERT_EQ(snapshot.accelerators.size(), 1U);
  EXPECT_EQ(snapshot.accelerators[0].allocatable_gpus, 20);
  EXPECT_EQ(snapshot.accelerators[0].used_by_others, 0);
}

}  // namespace
}  // namespace windlass::controller
