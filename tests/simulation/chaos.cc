// Implements chaos.h.
#include "tests/simulation/chaos.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "controller/runtime/pod.h"

namespace windlass::simulation {
namespace {

using kube::resources::kModelServices;
using kube::resources::kPods;
using nlohmann::json;

// Reverts the edits that keep a healthy service from being served.
void undo_harm(json& spec) {
  spec["scaling"]["mode"] = "Apply";
  spec["scaling"].erase("maxCostPerHour");
  spec["model"]["uri"] = "pvc://models/llama";
  if (spec["scaling"]["strategy"] == "Disaggregated") set_split_phases(spec, true);
}

}  // namespace

Chaos::Chaos(Timeline& timeline, fakes::FakeApiServer& api, Journal& journal, const Scenario& scenario, SimCluster& cluster,
             Invariants& invariants, std::vector<SimController*>& controllers,
             std::vector<std::unique_ptr<SimGateway>>& gateways)
    : timeline_(timeline),
      api_(api),
      journal_(journal),
      scenario_(scenario),
      cluster_(cluster),
      invariants_(invariants),
      controllers_(controllers),
      gateways_(gateways) {
  api_.admit = [this](const fakes::WriteAttempt& write) -> std::optional<fakes::Refusal> {
    if (!quota_ || write.verb != "create" || write.resource.plural != "pods") return std::nullopt;
    const auto worker = controller::worker_of(write.object);
    if (worker) invariants_.refused_create(*worker);
    return fakes::exceeded_quota("team, requested: requests.nvidia.com/gpu=1, used: 8, limited: 8");
  };
  add_process_faults();
  add_gateway_faults();
  add_cluster_faults();
  add_people();
}

void Chaos::add(const std::string& name, double rate_per_s, Fault what) {
  if (rate_per_s > 0) faults_.push_back({name, rate_per_s, Rng(scenario_.seed, "chaos: " + name), std::move(what)});
}

void Chaos::begin() {
  on_ = true;
  for (SimController* one : controllers_) one->set_faults(true);
  for (auto& gateway : gateways_) gateway->impatient = scenario_.faults.impatient_client;
  step();
}

void Chaos::step() {
  if (!on_) return;
  for (Entry& fault : faults_) {
    if (fault.random.uniform() < fault.rate_per_s * kStepS) fault.what(fault.random);
  }
  timeline_.after(kStepS, [this] { step(); });
}

void Chaos::after(double seconds, std::function<void()> what) {
  timeline_.after(seconds, [this, what = std::move(what)] {
    if (on_) what();
  });
}

void Chaos::add_process_faults() {
  const FaultPlan& plan = scenario_.faults;
  const auto one_of = [this](Rng& random) { return controllers_[random.bits() % controllers_.size()]; };
  add("controller crash", plan.controller_crash_per_s, [=, this](Rng& random) {
    SimController* one = one_of(random);
    if (one->busy()) return;
    journal_.note(timeline_.now_s(), "{} crashes", one->name());
    one->start();
    one->pause_until(timeline_.now_s() + random.uniform(0, 10));
  });
  add("controller pause", plan.controller_pause_per_s, [=, this](Rng& random) {
    SimController* one = one_of(random);
    const double seconds = random.uniform(3, 60);
    journal_.note(timeline_.now_s(), "{} pauses for {:.0f} s", one->name(), seconds);
    one->pause_until(timeline_.now_s() + seconds);
  });
  add("wall clock jump", plan.wall_jump_per_s, [=, this](Rng& random) {
    SimController* one = one_of(random);
    const double by_s = random.uniform(-1, 1) * (random.uniform() < 0.5 ? 60 : 7200);
    journal_.note(timeline_.now_s(), "{}'s wall clock jumps by {:.0f} s", one->name(), by_s);
    one->jump_wall(by_s);
  });
  add("wire partition", plan.wire_partition_per_s, [=, this](Rng& random) {
    SimController* one = one_of(random);
    const double seconds = random.uniform(2, 60);
    journal_.note(timeline_.now_s(), "{} cannot reach the API server for {:.0f} s", one->name(), seconds);
    one->partition(true);
    after(seconds, [this, one] { one->partition(cluster_.api_down); });
  });
  add("API server down", plan.api_down_per_s, [this](Rng& random) {
    if (cluster_.api_down) return;
    const double seconds = random.uniform(10, 150);
    journal_.note(timeline_.now_s(), "the API server is down for {:.0f} s", seconds);
    cluster_.api_down = true;
    for (SimController* one : controllers_) one->partition(true);
    after(seconds, [this] {
      journal_.note(timeline_.now_s(), "the API server is up again");
      cluster_.api_is_back();
      for (SimController* one : controllers_) one->partition(false);
    });
  });
  // Drops old versions: every watch that starts from one gets 410.
  add("compaction", plan.wire.gone_watch > 0 ? 0.02 : 0, [this](Rng&) {
    if (!cluster_.api_down) api_.compact();
  });
}

void Chaos::add_gateway_faults() {
  const FaultPlan& plan = scenario_.faults;
  const auto one_of = [this](Rng& random) { return gateways_[random.bits() % gateways_.size()].get(); };
  add("gateway crash", plan.gateway_crash_per_s, [=, this](Rng& random) {
    SimGateway* one = one_of(random);
    if (!one->up()) return;
    one->crash();
    timeline_.after(random.uniform(1, 40), [this, one] {
      if (one->up()) return;
      journal_.note(timeline_.now_s(), "{} is back", one->name());
      one->start();
    });
  });
  add("gateway partition", plan.gateway_partition_per_s, [=, this](Rng& random) {
    SimGateway* one = one_of(random);
    const double seconds = random.uniform(2, 90);
    journal_.note(timeline_.now_s(), "{} cannot reach the controllers for {:.0f} s", one->name(), seconds);
    one->partitioned = true;
    after(seconds, [one] { one->partitioned = false; });
  });
  add("gateway metrics", plan.metrics_fault_per_s, [=, this](Rng& random) {
    SimGateway* one = one_of(random);
    if (!one->up()) return;
    const int kind = static_cast<int>(random.integer(0, 3));
    journal_.note(
        timeline_.now_s(), "{}'s metrics go wrong: {}", one->name(),
        std::vector<const char*>{"unreadable", "NaN", "series missing", "counters reset"}.at(static_cast<std::size_t>(kind)));
    if (kind == 3) {
      one->reset_counters();
      return;
    }
    one->page_fault = std::vector<PageFault>{PageFault::kUnreadable, PageFault::kNotANumber, PageFault::kSeriesMissing}.at(
        static_cast<std::size_t>(kind));
    after(random.uniform(2, 90), [one] { one->page_fault = PageFault::kNone; });
  });
  add("worker metrics", plan.worker_metrics_fault_per_s,
      [this](Rng& random) { (void)cluster_.mute_one(random.bits(), random.uniform(5, 90)); });
}

void Chaos::add_cluster_faults() {
  const FaultPlan& plan = scenario_.faults;
  add("worker crash", plan.worker_crash_per_s,
      [this](Rng& random) { (void)cluster_.crash_one(random.bits(), random.uniform() < 0.4); });
  add("worker hang", plan.worker_hang_per_s, [this](Rng& random) {
    const std::string name = cluster_.hang_one(random.bits(), random.uniform(1, 40));
    if (!name.empty()) journal_.note(timeline_.now_s(), "worker {} hangs", name);
  });
  add("node loss", plan.node_loss_per_s, [this](Rng& random) {
    cluster_.lose_node(random.bits() % cluster_.nodes(), random.uniform(5, 120), random.uniform() < 0.3);
  });
  add("foreign pods", plan.foreign_pod_per_s, [this](Rng& random) {
    (void)cluster_.foreign_pod(random.bits() % cluster_.nodes(), static_cast<int>(random.integer(1, 2)),
                               random.uniform(20, 120));
  });
  add("quota", plan.quota_per_s, [this](Rng& random) {
    if (quota_) return;
    journal_.note(timeline_.now_s(), "a ResourceQuota refuses pods");
    quota_ = true;
    after(random.uniform(10, 120), [this] { quota_ = false; });
  });
}

void Chaos::add_people() {
  const FaultPlan& plan = scenario_.faults;
  add("edits", plan.edit_per_s, [this](Rng& random) { edit_one(random); });
  add("strategy edits", plan.strategy_edit_per_s, [this](Rng& random) {
    const std::string name = pick(random).name;
    const bool split = random.uniform() < 0.5;
    edit(name, split ? "split phases" : "whole workers", [split](json& spec) { set_split_phases(spec, split); });
  });
  add("recreation", plan.recreate_per_s, [this](Rng& random) { recreate(random); });
  add("broken objects", plan.broken_object_per_s, [this](Rng& random) { break_object(random); });
  add("pod kill", plan.pod_kill_per_s, [this](Rng& random) { kill_pod(random); });
}

const ServiceScenario& Chaos::pick(Rng& random) const { return scenario_.services[random.bits() % scenario_.services.size()]; }

void Chaos::edit(const std::string& service, const std::string& what, const std::function<void(json& spec)>& change) {
  if (cluster_.api_down || broken_.contains(service)) return;
  const json* before = api_.peek(kModelServices, kNamespace, service);
  if (before == nullptr || before->at("metadata").contains("deletionTimestamp")) return;
  journal_.note(timeline_.now_s(), "a person edits {}: {}", service, what);
  api_.edit(kModelServices, kNamespace, service, [&](json& object) { change(object["spec"]); });
  invariants_.spec_changed(*api_.peek(kModelServices, kNamespace, service));
}

void Chaos::edit_one(Rng& random) {
  const std::string name = pick(random).name;
  const int number = static_cast<int>(random.integer(0, 4));
  switch (random.integer(0, 9)) {
    case 0:
      edit(name, fmt::format("minWorkers {}", number), [&](json& spec) {  // kubectl scale
        spec["scaling"]["minWorkers"] = number;
        if (spec["scaling"].value("maxWorkers", number) < number) spec["scaling"]["maxWorkers"] = number;
      });
      return;
    case 1:
      edit(name, fmt::format("maxWorkers {}", number + 1), [&](json& spec) {
        spec["scaling"]["maxWorkers"] = number + 1;
        if (spec["scaling"].value("minWorkers", 1) > number + 1) spec["scaling"]["minWorkers"] = number + 1;
      });
      return;
    case 2: {
      const std::string mode = std::vector<std::string>{"Apply", "Recommend", "Paused"}.at(random.bits() % 3);
      edit(name, "mode " + mode, [&](json& spec) { spec["scaling"]["mode"] = mode; });
      return;
    }
    case 3:
      edit(name, "a new image",
           [&](json& spec) { spec["engine"]["image"] = fmt::format("windlass-worker:{}", random.bits() % 1000); });
      return;
    case 4: {
      const std::string priority = std::vector<std::string>{"gold", "silver", "bronze", "nobody-made-it"}.at(random.bits() % 4);
      edit(name, "priority " + priority, [&](json& spec) { spec["priorityClassName"] = priority; });
      return;
    }
    case 5:
      edit(name, "another objective",
           [&](json& spec) { spec["slo"]["timePerOutputToken"] = fmt::format("{}ms", 25 + 10 * number); });
      return;
    case 6:
      edit(name, "a cost ceiling", [&](json& spec) {
        if (random.uniform() < 0.3) {
          spec["scaling"].erase("maxCostPerHour");
        } else {
          spec["scaling"]["maxCostPerHour"] = fmt::format("{}", 4 * (number + 1));
        }
      });
      return;
    case 7: edit(name, "a share of the class", [&](json& spec) { spec["accelerators"][0]["maxGPUs"] = number + 1; }); return;
    case 8: {
      const std::string other = random.uniform() < 0.5 ? "a100" : "h100";
      edit(name, "accelerator " + other, [&](json& spec) { spec["accelerators"] = json::array({{{"class", other}}}); });
      return;
    }
    default: {
      edit(name, "a model that no pod can load", [](json& spec) { spec["model"]["uri"] = "hf://some/model"; });
      after(random.uniform(5, 60),
            [this, name] { edit(name, "the model again", [](json& spec) { spec["model"]["uri"] = "pvc://models/llama"; }); });
      return;
    }
  }
}

void Chaos::recreate(Rng& random) {
  const std::string name = pick(random).name;
  const json* before = api_.peek(kModelServices, kNamespace, name);
  if (cluster_.api_down || before == nullptr || broken_.contains(name)) return;
  const json spec = before->at("spec");
  const std::string uid = before->at("metadata").at("uid");
  journal_.note(timeline_.now_s(), "a person deletes {}", name);
  api_.delete_object(kModelServices, kNamespace, name);
  invariants_.service_deleted(uid);
  timeline_.after(random.uniform() < 0.5 ? 0.1 : random.uniform(1, 60), [this, name, spec = spec]() mutable {
    if (!on_) undo_harm(spec);
    journal_.note(timeline_.now_s(), "a person creates {} again", name);
    invariants_.spec_changed(api_.seed_object({{"apiVersion", "windlass.dev/v1alpha1"},
                                               {"kind", "ModelService"},
                                               {"metadata", {{"name", name}, {"namespace", kNamespace}}},
                                               {"spec", spec}}));
  });
}

void Chaos::break_object(Rng& random) {
  if (cluster_.api_down) return;
  if (random.uniform() < 0.5) {
    // Another user's object that cannot be parsed.
    journal_.note(timeline_.now_s(), "an unreadable ModelService and an unreadable AcceleratorClass appear");
    api_.seed_object({{"apiVersion", "windlass.dev/v1alpha1"},
                      {"kind", "ModelService"},
                      {"metadata", {{"name", "broken"}, {"namespace", kNamespace}}},
                      {"spec", {{"model", "not an object"}}}});
    api_.seed_object({{"apiVersion", "windlass.dev/v1alpha1"},
                      {"kind", "AcceleratorClass"},
                      {"metadata", {{"name", "broken"}}},
                      {"spec", {{"memory", json::array()}}}});
    return;
  }
  const std::string name = pick(random).name;
  const json* before = api_.peek(kModelServices, kNamespace, name);
  if (before == nullptr || broken_.contains(name)) return;
  journal_.note(timeline_.now_s(), "{} becomes unreadable", name);
  broken_[name] = before->at("spec");
  api_.edit(kModelServices, kNamespace, name, [](json& object) { object["spec"]["slo"] = "not an object"; });
  after(random.uniform(5, 60), [this, name] {
    const auto spec = broken_.find(name);
    if (spec == broken_.end() || cluster_.api_down) return;
    const json mended = spec->second;
    broken_.erase(spec);
    edit(name, "readable again", [&](json& now) { now = mended; });
  });
}

void Chaos::kill_pod(Rng& random) {
  if (cluster_.api_down) return;
  std::vector<std::pair<std::string, std::string>> pods;  // name, uid
  double grace_s = 0;
  api_.visit(kPods, [&](const json& pod) {
    const auto worker = controller::worker_of(pod);
    if (worker && !worker->terminating) pods.emplace_back(worker->name, worker->uid);
  });
  if (pods.empty()) return;
  const auto& [name, uid] = pods[random.bits() % pods.size()];
  const bool force = random.uniform() < 0.3;
  journal_.note(timeline_.now_s(), "a person deletes pod {}{}", name, force ? " by force" : "");
  invariants_.person_deleted_pod(uid, grace_s);
  api_.delete_object(kPods, kNamespace, name, force);
}

void Chaos::end() {
  on_ = false;
  quota_ = false;
  cluster_.stop_faults();
  for (SimController* one : controllers_) one->steady();
  for (auto& gateway : gateways_) {
    gateway->partitioned = false;
    gateway->page_fault = PageFault::kNone;
    gateway->table_late_s = 0;
    gateway->impatient = 0;
    if (!gateway->up()) gateway->start();
  }
  for (const auto& [name, spec] : std::exchange(broken_, {})) edit(name, "readable again", [&](json& now) { now = spec; });
  for (const ServiceScenario& service : scenario_.services) {
    edit(service.name, "edits that keep it from being served are reverted", undo_harm);
  }
}

}  // namespace windlass::simulation
