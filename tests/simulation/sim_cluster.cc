// Implements sim_cluster.h.
#include "tests/simulation/sim_cluster.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/kube/json_path.h"
#include "controller/runtime/pod.h"

namespace windlass::simulation {
namespace {

using nlohmann::json;

constexpr const char* kGpu = "nvidia.com/gpu";
constexpr double kNodeNoticedS = 10;  // until the node controller marks a silent node
constexpr double kEvictedS = 40;      // until its pods are deleted

std::string label(const json& pod, const char* key) {
  const json& meta = pod.at("metadata");
  const auto labels = meta.find("labels");
  return labels == meta.end() ? std::string() : labels->value(key, std::string());
}

}  // namespace

SimCluster::SimCluster(Timeline& timeline, fakes::FakeApiServer& api, Journal& journal, const Scenario& scenario)
    : timeline_(timeline),
      api_(api),
      journal_(journal),
      scenario_(scenario),
      starts_(scenario.seed, "worker starts"),
      troubles_(scenario.seed, "worker troubles") {
  for (const NodeGroup& group : scenario.nodes) {
    for (int i = 0; i < group.nodes; ++i) {
      nodes_.push_back({fmt::format("{}-node-{}", group.accelerator, i), group.accelerator, group.gpus_per_node, true, 0});
      mark_node(nodes_.back(), true);
    }
  }
  for (const ServiceScenario& service : scenario.services) {
    if (service.broken_image) broken_images.insert(service.name);
  }
}

void SimCluster::mark_node(const Node& node, bool ready) {
  api_.seed_object({{"apiVersion", "v1"},
                    {"kind", "Node"},
                    {"metadata", {{"name", node.name}, {"labels", {{"class", node.accelerator}}}}},
                    {"status",
                     {{"allocatable", {{kGpu, std::to_string(node.gpus)}}},
                      {"conditions", {{{"type", "Ready"}, {"status", ready ? "True" : "Unknown"}}}}}}});
}

SimCluster::Node* SimCluster::node_of(const std::string& name) {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& node) { return node.name == name; });
  return found == nodes_.end() ? nullptr : &*found;
}

void SimCluster::look() {
  if (seen_version_ == api_.version()) return;
  pods_.clear();
  api_.visit(kube::resources::kPods, [&](const json& pod) {
    PodView view;
    view.name = kube::text_at(pod, {"metadata", "name"});
    view.uid = kube::text_at(pod, {"metadata", "uid"});
    view.node = kube::text_at(pod, {"spec", "nodeName"});
    view.phase = kube::text_at(pod, {"status", "phase"});
    view.worker = label(pod, "app.kubernetes.io/component") == "worker";
    view.service = label(pod, "windlass.dev/service");
    view.deleting = pod.at("metadata").contains("deletionTimestamp");
    view.grace_s = pod.at("metadata").value("deletionGracePeriodSeconds", 30.0);
    view.gpus = controller::requested(pod, kGpu);
    const json selector = pod.at("spec").value("nodeSelector", json::object());
    view.accelerator = selector.value("class", std::string());
    if (const auto worker = view.worker ? controller::worker_of(pod) : std::nullopt) {
      view.capacity = worker->max_concurrency;
      view.told_unschedulable = worker->unschedulable;
    }
    pods_.push_back(std::move(view));
  });
  seen_version_ = api_.version();
  fits_changed_ = true;
}

void SimCluster::step() {
  for (auto& [uid, process] : processes_) advance(process);
  if (api_down) return;
  look();
  schedule();
  look();
  run_pods();
  for (auto& [uid, process] : processes_) {
    if (process.changed) report(process);
  }
}

void SimCluster::schedule() {
  if (!fits_changed_) return;
  fits_changed_ = false;
  std::map<std::string, int> used;
  for (const PodView& pod : pods_) {
    if (!pod.node.empty() && pod.phase != "Succeeded" && pod.phase != "Failed") used[pod.node] += pod.gpus;
  }
  for (const PodView& pod : pods_) {
    if (!pod.node.empty() || pod.deleting) continue;
    const auto room = std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& node) {
      return node.up && node.accelerator == pod.accelerator && used[node.name] + pod.gpus <= node.gpus;
    });
    if (room == nodes_.end()) {
      if (!pod.told_unschedulable) {
        api_.kubelet_set(kNamespace, pod.name,
                         {.phase = "Pending", .unschedulable = "0/9 nodes are available: insufficient GPUs"});
      }
      continue;
    }
    used[room->name] += pod.gpus;
    api_.kubelet_set(kNamespace, pod.name, {.phase = "Pending", .node = room->name});
  }
}

void SimCluster::run_pods() {
  const double now_s = timeline_.now_s();
  std::set<std::string> there;
  for (const PodView& pod : pods_) {
    there.insert(pod.uid);
    if (!pod.worker || pod.node.empty()) continue;
    const Node* node = node_of(pod.node);
    const bool reachable = node != nullptr && node->up;
    auto found = processes_.find(pod.uid);
    if (found == processes_.end()) {
      if (!reachable) continue;
      const bool ended = pod.phase == "Succeeded" || pod.phase == "Failed";
      if (pod.deleting) api_.kubelet_finish_deletion(kNamespace, pod.name);
      if (pod.deleting || ended) continue;
      Process process;
      process.name = pod.name;
      process.uid = pod.uid;
      process.node = pod.node;
      process.service = pod.service;
      process.capacity = std::max(1, pod.capacity);
      process.ip = fmt::format("10.{}.{}.{}", next_ip_ / 62500, next_ip_ / 250 % 250, next_ip_ % 250 + 1);
      ++next_ip_;
      const FaultPlan& faults = scenario_.faults;
      const auto chance = [&](double probability) { return troubles_.uniform() < probability && faults_on_; };
      if (chance(faults.image_pull_failure)) process.pull_until_s = now_s + troubles_.uniform(20, 150);
      if (chance(faults.crash_loop)) process.crashes_left = static_cast<int>(troubles_.integer(1, 5));
      if (chance(faults.slow_start)) process.slow = troubles_.uniform(4, 15);
      by_ip_[process.ip] = pod.uid;
      found = processes_.emplace(pod.uid, std::move(process)).first;
      start(found->second);
    }
    Process& process = found->second;
    if ((pod.phase == "Succeeded" || pod.phase == "Failed") && process.phase != Phase::kEnded) {
      break_calls(process);  // its node was lost and its pod declared ended
      process.phase = Phase::kEnded;
      process.changed = pod.deleting;
      continue;
    }
    if (!pod.deleting || process.phase == Phase::kEnded) continue;
    const double kill_at_s = now_s + pod.grace_s;
    if (!process.stopping) {
      process.stopping = true;
      process.kill_at_s = kill_at_s;
      journal_.note(now_s, "kubelet: {} must end within {:.0f} s", process.name, pod.grace_s);
    }
    if (reachable) advance(process);
  }
  for (auto it = processes_.begin(); it != processes_.end();) {
    Process& process = it->second;
    if (there.contains(it->first)) {
      ++it;
      continue;
    }
    // The pod was deleted by force: the kubelet ends its process.
    break_calls(process);
    by_ip_.erase(process.ip);
    it = processes_.erase(it);
  }
}

void SimCluster::start(Process& process) {
  const double now_s = timeline_.now_s();
  const bool pulls = broken_images.contains(process.service) || now_s < process.pull_until_s;
  process.phase = pulls ? Phase::kPulling : Phase::kLoading;
  process.until_s = pulls ? now_s + 5 : now_s + process.slow * starts_.uniform(scenario_.load_min_s, scenario_.load_max_s);
  process.changed = true;
}

void SimCluster::advance(Process& process) {
  const double now_s = timeline_.now_s();
  const Node* node = node_of(process.node);
  if (node == nullptr || !node->up || process.phase == Phase::kEnded) return;
  if (process.stopping) {
    if (process.calls.empty() || process.phase != Phase::kServing || now_s >= process.kill_at_s) {
      if (!process.calls.empty() && on_killed_by_deletion) {
        const json* pod = api_.peek(kube::resources::kPods, kNamespace, process.name);
        if (pod != nullptr && kube::text_at(*pod, {"metadata", "uid"}) == process.uid)
          on_killed_by_deletion(*pod, process.calls.size());
      }
      break_calls(process);
      process.phase = Phase::kEnded;
      process.changed = true;
      journal_.note(now_s, "kubelet: {} has ended", process.name);
    }
    return;
  }
  if (now_s < process.until_s) return;
  switch (process.phase) {
    case Phase::kPulling:
    case Phase::kBackingOff: start(process); return;
    case Phase::kLoading:
      if (process.crashes_left > 0) {
        --process.crashes_left;
        die(process, troubles_.uniform() < 0.4 ? "OOMKilled" : "Error");
        return;
      }
      process.phase = Phase::kServing;
      process.until_s = 1e300;
      process.changed = true;
      return;
    case Phase::kServing:
    case Phase::kEnded: return;
  }
}

void SimCluster::die(Process& process, const std::string& why) {
  break_calls(process);
  journal_.note(timeline_.now_s(), "worker {} dies: {}", process.name, why);
  ++process.restarts;
  process.last_end = why;
  process.phase = Phase::kBackingOff;
  process.until_s = timeline_.now_s() + std::min(160.0, process.restarts == 1 ? 1 : 5.0 * (1 << std::min(process.restarts, 5)));
  process.changed = true;
}

void SimCluster::break_calls(Process& process) {
  auto broken = std::exchange(process.calls, {});
  calls_broken_ += static_cast<long>(broken.size());
  for (auto& [call, tell] : broken) {
    calls_.erase(call);
    tell();
  }
}

void SimCluster::report(Process& process) {
  const Node* node = node_of(process.node);
  if (node == nullptr || !node->up) return;
  process.changed = false;
  fakes::PodReport report;
  report.pod_ip = process.ip;
  report.restarts = process.restarts;
  report.last_end_reason = process.last_end;
  switch (process.phase) {
    case Phase::kPulling:
      report.phase = "Pending";
      report.waiting_reason = "ImagePullBackOff";
      report.waiting_message = "Back-off pulling image";
      break;
    case Phase::kLoading: break;
    case Phase::kServing: report.ready = true; break;
    case Phase::kBackingOff:
      report.waiting_reason = process.restarts > 1 ? "CrashLoopBackOff" : "";
      report.waiting_message = "back-off restarting failed container";
      break;
    case Phase::kEnded:
      api_.kubelet_set(kNamespace, process.name, {.phase = "Succeeded", .exit_code = 0});
      api_.kubelet_finish_deletion(kNamespace, process.name);
      return;
  }
  api_.kubelet_set(kNamespace, process.name, report);
}

const SimCluster::Process* SimCluster::at_address(const std::string& url) const {
  const auto begin = url.find("10.");
  if (begin == std::string::npos) return nullptr;
  const auto found = by_ip_.find(url.substr(begin, url.find(':', begin) - begin));
  if (found == by_ip_.end()) return nullptr;
  const Process& process = processes_.at(found->second);
  const auto node = std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& one) { return one.name == process.node; });
  if (node == nodes_.end() || !node->up || process.phase != Phase::kServing) return nullptr;
  return &process;
}

SimCluster::Taken SimCluster::take(const std::string& address, CallId call, std::function<void()> broken) {
  const Process* found = at_address(address);
  if (found == nullptr || timeline_.now_s() < found->hung_until_s) return Taken::kConnect;
  Process& process = processes_.at(found->uid);
  if (process.stopping) return Taken::kDraining;
  if (static_cast<int>(process.calls.size()) >= process.capacity) return Taken::kFull;
  process.calls.emplace(call, std::move(broken));
  calls_[call] = process.uid;
  return Taken::kYes;
}

void SimCluster::give_back(CallId call) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  processes_.at(found->second).calls.erase(call);
  calls_.erase(found);
}

std::optional<double> SimCluster::free_at(CallId call) const {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return std::nullopt;
  return std::max(timeline_.now_s(), processes_.at(found->second).hung_until_s);
}

Result<kube::HttpResponse> SimCluster::metrics_page(const std::string& url) const {
  const Process* process = at_address(url);
  if (process == nullptr) return Error{ErrorCode::kUnavailable, "connection refused"};
  if (timeline_.now_s() < process->hung_until_s || mute_addresses.contains(process->ip))
    return Error{ErrorCode::kDeadlineExceeded, "no answer within 1 s"};
  return kube::HttpResponse{
      200,
      {},
      fmt::format("windlass_worker_requests_running {}\nwindlass_worker_requests_waiting 0\n"
                  "windlass_worker_kv_cache_usage_ratio {:.4f}\n",
                  process->calls.size(), static_cast<double>(process->calls.size()) / std::max(1, process->capacity))};
}

int SimCluster::calls_in(const std::string& uid) const {
  const auto found = processes_.find(uid);
  return found == processes_.end() ? 0 : static_cast<int>(found->second.calls.size());
}

void SimCluster::api_is_back() {
  api_down = false;
  for (Node& node : nodes_) {
    if (std::exchange(node.unreported, false) && node.up) mark_node(node, true);
  }
}

void SimCluster::stop_faults() {
  faults_on_ = false;
  api_down = false;
  mute_addresses.clear();
  for (auto& [uid, process] : processes_) {
    process.pull_until_s = 0;
    process.crashes_left = 0;
    process.hung_until_s = 0;
  }
  for (Node& node : nodes_) {
    ++node.losses;
    mark_node(node, true);
    if (node.up) continue;
    node.up = true;
    fits_changed_ = true;
    for (auto& [uid, process] : processes_) {
      if (process.node == node.name && process.phase != Phase::kEnded) start(process);
    }
  }
}

SimCluster::Process* SimCluster::serving(std::uint64_t draw) {
  std::vector<Process*> all;
  for (auto& [uid, process] : processes_) {
    if (process.phase == Phase::kServing && !process.stopping) all.push_back(&process);
  }
  return all.empty() ? nullptr : all[draw % all.size()];
}

std::string SimCluster::crash_one(std::uint64_t draw, bool out_of_memory) {
  Process* process = serving(draw);
  if (process == nullptr) return {};
  die(*process, out_of_memory ? "OOMKilled" : "Error");
  return process->name;
}

std::string SimCluster::hang_one(std::uint64_t draw, double seconds) {
  Process* process = serving(draw);
  if (process == nullptr) return {};
  process->hung_until_s = timeline_.now_s() + seconds;
  return process->name;
}

std::string SimCluster::mute_one(std::uint64_t draw, double seconds) {
  Process* process = serving(draw);
  if (process == nullptr) return {};
  mute_addresses.insert(process->ip);
  timeline_.after(seconds, [this, ip = process->ip] { mute_addresses.erase(ip); });
  return process->name;
}

void SimCluster::lose_node(std::size_t index, double seconds, bool removed) {
  Node& node = nodes_.at(index % nodes_.size());
  if (!node.up) return;
  node.up = false;
  const int loss = ++node.losses;
  const std::string name = node.name;
  journal_.note(timeline_.now_s(), "node {} is gone{}", name, removed ? ", its object will be removed" : "");
  for (auto& [uid, process] : processes_) {
    if (process.node == name) break_calls(process);
  }
  const auto still = [this, name, loss] {
    const Node* now = node_of(name);
    return !now->up && now->losses == loss && !api_down;
  };
  timeline_.after(kNodeNoticedS, [this, name, still] {
    if (!still()) return;
    mark_node(*node_of(name), false);
    look();
    for (const PodView& pod : pods_) {
      if (pod.node != name || pod.phase != "Running") continue;
      api_.edit(kube::resources::kPods, kNamespace, pod.name, [&](json& object) {
        for (json& condition : object["status"]["conditions"]) {
          if (condition["type"] != "Ready" && condition["type"] != "ContainersReady") continue;
          condition["status"] = "False";
          condition["reason"] = "NodeNotReady";
        }
      });
    }
  });
  timeline_.after(kEvictedS, [this, name, still, removed] {
    if (!still()) return;
    look();
    const std::vector<PodView> pods = pods_;
    if (removed) api_.delete_object(kube::resources::kNodes, "", name, true);
    for (const PodView& pod : pods) {
      if (pod.node != name) continue;
      if (removed) {
        // As the pod garbage collector does with pods of a node that no longer exists.
        api_.kubelet_set(kNamespace, pod.name, {.phase = "Failed", .reason = "NodeLost"});
      }
      api_.delete_object(kube::resources::kPods, kNamespace, pod.name);
    }
  });
  timeline_.after(seconds, [this, name, loss] {
    Node* now = node_of(name);
    if (now->up || now->losses != loss) return;
    now->up = true;
    fits_changed_ = true;
    journal_.note(timeline_.now_s(), "node {} is back", name);
    now->unreported = api_down;
    if (!api_down) mark_node(*now, true);
    for (auto& [uid, process] : processes_) {
      if (process.node != name || process.phase == Phase::kEnded) continue;
      ++process.restarts;
      process.last_end = "Error";
      start(process);
    }
  });
}

bool SimCluster::foreign_pod(std::size_t index, int gpus, double seconds) {
  if (api_down) return false;
  const Node& node = nodes_.at(index % nodes_.size());
  look();
  int used = 0;
  for (const PodView& pod : pods_) {
    if (pod.node == node.name && pod.phase != "Succeeded" && pod.phase != "Failed") used += pod.gpus;
  }
  if (!node.up || used + gpus > node.gpus) return false;
  const std::string name = fmt::format("foreign-{}", next_foreign_++);
  api_.seed_object({{"apiVersion", "v1"},
                    {"kind", "Pod"},
                    {"metadata", {{"name", name}, {"namespace", kNamespace}}},
                    {"spec",
                     {{"nodeName", node.name},
                      {"nodeSelector", {{"class", node.accelerator}}},
                      {"containers", {{{"name", "job"}, {"resources", {{"limits", {{kGpu, std::to_string(gpus)}}}}}}}}}},
                    {"status", {{"phase", "Running"}}}});
  timeline_.after(seconds, [this, name] { api_.delete_object(kube::resources::kPods, kNamespace, name, true); });
  return true;
}

}  // namespace windlass::simulation
