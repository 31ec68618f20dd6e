// A service, its plan and a real KubernetesRuntime on a fake API server: the base of the tests of apply. Time passes only with
// step().
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/api/json.h"
#include "controller/kube/credentials.h"
#include "controller/reconcile/apply.h"
#include "controller/reconcile/spec.h"
#include "controller/runtime/kubernetes_runtime.h"
#include "metrics/bundles.h"
#include "tests/fakes/fake_api_server.h"

namespace windlass::controller {

class ApplyWorld {
 public:
  explicit ApplyWorld(const std::string& instance = kDefaultInstance, fakes::FakeApiServer* shared = nullptr,
                      const std::string& name = "chat")
      : own_(shared == nullptr ? std::make_unique<fakes::FakeApiServer>() : nullptr),
        api(shared == nullptr ? *own_ : *shared),
        wire(api.connect("controller-" + instance)),
        runtime(client, PodDefaults{"worker:1", "", instance, false, [] { return std::string("token-of-this-installation"); }},
                7) {
    if (!api.object(kube::resources::kNodes, "", "n1")) add_node("n1", 8);
    const auto stored =
        api.seed_object({{"apiVersion", "windlass.dev/v1alpha1"},
                         {"kind", "ModelService"},
                         {"metadata", {{"name", name}, {"namespace", "default"}}},
                         {"spec",
                          {{"model", {{"servedName", name}, {"uri", "pvc://models/llama"}, {"architecture", "llama3-8b"}}},
                           {"slo", {{"timeToFirstToken", "1s"}, {"timePerOutputToken", "50ms"}}},
                           {"scaling", {{"maxWorkers", 6}, {"drainTimeout", "10m"}}}}}});
    auto parsed = api::model_service_from_json(stored);
    EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message);
    service = *parsed;
    h100.metadata.name = "h100";
    h100.spec.resource_name = "nvidia.com/gpu";
    h100.spec.gpus_per_node = 8;
    plan.pools = {pool(1)};
  }

  void add_node(const std::string& name, int gpus) {
    api.seed_object({{"apiVersion", "v1"},
                     {"kind", "Node"},
                     {"metadata", {{"name", name}}},
                     {"status",
                      {{"allocatable", {{"nvidia.com/gpu", std::to_string(gpus)}}},
                       {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}});
  }

  static planner::Pool pool(int workers) {
    planner::Pool out;
    out.name = "h100-1";
    out.spec.accelerator = "h100";
    out.workers = workers;
    out.each.max_concurrency = 16;
    return out;
  }

  // One step of the loop, `seconds` after the last.
  Applied step(double seconds = 1) {
    now_s_ += seconds;
    api.set_now(now_s_);
    const Instant now{api.wall_now() + wall_skew_s, 5000 + now_s_};
    runtime.step(now);
    EXPECT_TRUE(runtime.synced()) << runtime.problem();
    observation = {};
    observation.services = {&service};
    if (class_readable) observation.classes = {{"h100", &h100}};
    observation.capacity = runtime.capacity({{"h100", "nvidia.com/gpu", {}}});
    observation.snapshot.nodes = std::move(observation.capacity["h100"].each_node);
    observation.workers[service.metadata.uid];
    for (Worker& worker : runtime.workers()) {
      if (worker.service_uid == service.metadata.uid) observation.workers[service.metadata.uid].push_back(std::move(worker));
    }
    observation.snapshot.services.resize(1);
    observation.snapshot.services[0].scaling.mode = mode;
    planner::Plan whole;
    whole.services = {plan};
    const ApplyContext context{observation, whole, runtime, *wire, signals, gateways, {1, 1}, now};
    return apply(context, state);
  }

  // Steps of one second each.
  void run(int steps) {
    for (int i = 0; i < steps; ++i) (void)step();
  }

  // Reports the kubelet's status of this slot's pod.
  void report(int slot, fakes::PodReport report) {
    if (report.node.empty()) report.node = "n1";
    EXPECT_TRUE(api.kubelet_set("default", pod_name(slot), report)) << pod_name(slot);
  }
  void serve(int slot, const std::string& node = "n1") {
    report(slot, {.phase = "Running", .ready = true, .pod_ip = "10.0.0." + std::to_string(slot + 1), .node = node});
  }
  // Slot 0 on n1 and slot 1 on n2.
  void serve_on_two_nodes() {
    add_node("n2", 8);
    plan.pools = {pool(2)};
    run(2);
    serve(0);
    serve(1, "n2");
  }
  // Makes a node silent, as the node controller reports it on the node and then on the pod that runs there.
  void silence(const std::string& node, int slot) {
    say_of_node(node, "Unknown");
    report(slot, {.phase = "Running", .ready = false, .node = node});
  }
  void say_of_node(const std::string& node, const std::string& ready) {
    api.edit(kube::resources::kNodes, "", node,
             [&](nlohmann::json& object) { object["status"]["conditions"][0]["status"] = ready; });
  }
  // A gateway that never acknowledges a table, so that no worker counts as quiet.
  void add_silent_gateway() {
    gateways.emplace_back();
    gateways.back().id = "gateway-0";
  }
  // Ends the pods that are being deleted.
  void finish_deletions() {
    for (const nlohmann::json& pod : api.terminating_pods()) {
      const std::string name = pod["metadata"]["name"];
      api.kubelet_set("default", name, {.phase = "Succeeded", .exit_code = 0});
      api.kubelet_finish_deletion("default", name);
    }
  }

  [[nodiscard]] std::string pod_name(int slot) const { return service.metadata.name + "-h100-1-" + std::to_string(slot); }
  [[nodiscard]] std::optional<nlohmann::json> pod(int slot) const {
    return api.object(kube::resources::kPods, "default", pod_name(slot));
  }
  // Slots of pods that are neither draining nor ending.
  [[nodiscard]] std::vector<int> slots() const {
    std::vector<int> out;
    for (const nlohmann::json& one : api.pods("default", "windlass.dev/service=" + service.metadata.name)) {
      if (!one["metadata"].contains("deletionTimestamp") && !one["metadata"]["annotations"].contains(kDrainingSince)) {
        out.push_back(std::stoi(one["metadata"]["labels"]["windlass.dev/slot"].get<std::string>()));
      }
    }
    return out;
  }
  [[nodiscard]] const ServiceMemory& memory() { return state.services[service.metadata.uid]; }
  [[nodiscard]] double now_s() const { return now_s_; }

 private:
  std::unique_ptr<fakes::FakeApiServer> own_;

 public:
  fakes::FakeApiServer& api;
  std::unique_ptr<fakes::FakeConnection> wire;
  std::unique_ptr<kube::CredentialSource> credentials = kube::no_credentials();
  kube::KubeClient client{*wire, api.url(), *credentials};
  KubernetesRuntime runtime;
  api::ModelService service;
  api::AcceleratorClass h100;
  planner::ServicePlan plan;
  Observation observation;
  ControllerState state;
  metrics::Registry registry;
  metrics::ControllerMetrics bundle{registry};
  Signals signals{*wire, bundle, {}};
  std::vector<GatewayPeer> gateways;
  bool class_readable = true;
  double wall_skew_s = 0;
  planner::Mode mode = planner::Mode::kApply;

 private:
  double now_s_ = 0;
};

// Whether something happened with this reason.
inline bool happened(const Applied& applied, const std::string& reason) {
  for (const Happening& one : applied.happenings) {
    if (one.reason == reason) return true;
  }
  return false;
}

}  // namespace windlass::controller
