// See kubernetes_runtime.h.
#include "controller/runtime/kubernetes_runtime.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "controller/kube/packed.h"
#include "controller/runtime/disruption_budget.h"
#include "controller/runtime/kept_fields.h"
#include "controller/runtime/pod_json.h"

namespace windlass::controller {
namespace {

using nlohmann::json;

const json& member(const json& object, const char* key) {
  static const json kNothing = json::object();
  const auto found = object.find(key);
  return found == object.end() ? kNothing : *found;
}

bool selected(const std::map<std::string, std::string>& labels, const std::map<std::string, std::string>& selector) {
  return std::all_of(selector.begin(), selector.end(), [&](const auto& want) {
    const auto found = labels.find(want.first);
    return found != labels.end() && found->second == want.second;
  });
}

bool usable(const json& node) {
  if (being_emptied(node)) return false;
  const json& conditions = member(member(node, "status"), "conditions");
  return std::any_of(conditions.begin(), conditions.end(),
                     [](const json& one) { return one.value("type", "") == "Ready" && one.value("status", "") == "True"; });
}

// Units of each resource that the pod holds on its node.
std::map<std::string, int> held_by(const json& pod) {
  std::map<std::string, int> held;
  for (const char* containers : {"containers", "initContainers"}) {
    for (const json& container : list_at(pod, {"spec", containers})) {
      for (const char* kind : {"requests", "limits"}) {
        const json* resources = at(container, {"resources", kind});
        if (resources == nullptr || !resources->is_object()) continue;
        for (const auto& one : resources->items()) held[one.key()];
      }
    }
  }
  for (auto& [resource, units] : held) units = requested(pod, resource);
  return held;
}

kube::ReflectorOptions trimmed(kube::ReflectorOptions options, void (*trim)(json&)) {
  options.trim = trim;
  return options;
}

// The quota's name follows the mark: "... exceeded quota: gpus, requested: ...".
Error with_quota_named(const Error& refusal, const std::string& name_space) {
  constexpr std::string_view kMark = "exceeded quota: ";
  const auto mark = refusal.message.find(kMark);
  if (mark == std::string::npos) return refusal;
  const std::string rest = refusal.message.substr(mark + kMark.size());
  const std::string name = rest.substr(0, rest.find(','));
  return Error{refusal.code,
               fmt::format("ResourceQuota {} of namespace {} leaves no room for another worker: {}", name, name_space,
                           rest.size() > name.size() + 2 ? rest.substr(name.size() + 2) : refusal.message)};
}

}  // namespace

KubernetesRuntime::KubernetesRuntime(kube::KubeClient& client, PodDefaults defaults, std::uint64_t seed,
                                     std::set<std::string> namespaces)
    : client_(client),
      defaults_(std::move(defaults)),
      namespaces_(std::move(namespaces)),
      pods_(client, trimmed(kube::options_of(kube::resources::kPods, seed),
                            [](json& pod) {
                              keep_read_fields_of_pod(pod);
                              kube::pack(pod);
                            })),
      nodes_(client, trimmed(kube::options_of(kube::resources::kNodes, seed + 1), keep_read_fields_of_node)),
      budgets_(
          client,
          [&] {
            kube::ReflectorOptions options = kube::options_of(kube::resources::kPodDisruptionBudgets, seed + 2);
            options.label_selector = fmt::format("{}={}", kInstanceLabel, defaults_.instance);
            return options;
          }(),
          namespaces_) {}

KubernetesRuntime::PodView KubernetesRuntime::view_of_pod(const json& pod) const {
  PodView view;
  view.node = text_at(pod, {"spec", "nodeName"});
  view.worker = worker_of(pod);
  const auto ours = [&](const Worker& worker) {
    return worker.instance == defaults_.instance && (namespaces_.empty() || namespaces_.contains(worker.name_space));
  };
  if (view.worker && !ours(*view.worker)) view.worker.reset();
  if (!view.worker && holds_resources(pod)) view.held = held_by(pod);
  return view;
}

KubernetesRuntime::NodeView KubernetesRuntime::view_of_node(const json& node) {
  NodeView view;
  view.usable = usable(node);
  view.taints = taints_of(node);
  if (const json* labels = at(node, {"metadata", "labels"}); labels != nullptr && labels->is_object()) {
    for (const auto& one : labels->items()) {
      if (one.value().is_string()) view.labels[one.key()] = one.value().get<std::string>();
    }
  }
  if (const json* all = at(node, {"status", "allocatable"}); all != nullptr && all->is_object()) {
    for (const auto& one : all->items()) {
      const json& units = one.value();
      view.allocatable[one.key()] = units.is_number_integer() ? units.get<int>()
                                    : units.is_string()       ? std::atoi(units.get<std::string>().c_str())
                                                              : 0;
    }
  }
  return view;
}

void KubernetesRuntime::step(Instant now) {
  now_ = now;
  pods_.step(now.monotonic_s);
  nodes_.step(now.monotonic_s);
  budgets_.step(now.monotonic_s);
  refresh();
  look_for_missing_nodes();
}

void KubernetesRuntime::read_anew(Instant now) {
  pods_.list_anew(now.monotonic_s);
  nodes_.list_anew(now.monotonic_s);
  step(now);
}

void KubernetesRuntime::refresh() const {
  const bool pods = pod_views_.update(pods_, [&](const json& pod) { return view_of_pod(kube::unpacked(pod)); });
  const bool nodes = node_views_.update(nodes_, view_of_node);
  outdated_ = outdated_ || pods || nodes;
}

void KubernetesRuntime::look_for_missing_nodes() {
  // Without a current list of nodes it is unknown which are missing.
  const bool readable = nodes_.synced() && !nodes_.last_error();
  const std::tuple seen{pods_.generation(), nodes_.generation(), readable};
  if (seen == looked_at_ && missing_since_.empty()) return;
  looked_at_ = seen;
  std::map<std::string, double> missing;
  if (readable) {
    for (const auto& [key, pod] : pod_views_.all()) {
      const std::string& node = pod.value.node;
      if (node.empty() || nodes_.find("", node) != nullptr) continue;
      const auto before = missing_since_.find(node);
      missing[node] = before == missing_since_.end() ? now_.monotonic_s : before->second;
    }
  }
  missing_since_ = std::move(missing);
  std::set<std::string> for_long;
  for (const auto& [node, since_s] : missing_since_) {
    if (now_.monotonic_s - since_s >= kNodeMissingS) for_long.insert(node);
  }
  outdated_ = outdated_ || for_long != missing_for_long_;
  missing_for_long_ = std::move(for_long);
}

std::string KubernetesRuntime::problem() const {
  std::string all = budgets_.problem();
  for (const kube::Reflector* cache : {&pods_, &nodes_}) {
    if (cache->last_error()) all += (all.empty() ? "" : "\n") + cache->last_error()->message;
  }
  return all;
}

std::vector<Worker> KubernetesRuntime::workers() const {
  put_together();
  return workers_;
}

void KubernetesRuntime::put_together() const {
  refresh();
  if (!outdated_) return;
  workers_.clear();
  others_.clear();
  for (const auto& [key, pod] : pod_views_.all()) {
    if (!pod.value.worker) {
      if (!pod.value.held.empty()) others_.push_back(&pod.value);
      continue;
    }
    Worker& worker = workers_.emplace_back(*pod.value.worker);
    judge_node(nodes_.find("", worker.node), missing_for_long_.contains(worker.node), worker);
  }
  outdated_ = false;
}

// GPUs of the class by node.
std::map<std::string, int> KubernetesRuntime::held_by_workers(const std::string& accelerator) const {
  std::map<std::string, int> held;
  for (const Worker& worker : workers_) {
    if (worker.accelerator == accelerator && !worker.node.empty() && !worker.finished)
      held[worker.node] += worker.gpus_of_server();
  }
  return held;
}

std::map<std::string, GpuCapacity> KubernetesRuntime::capacity(const std::vector<ClassSelector>& classes) const {
  put_together();
  std::map<std::string, GpuCapacity> all;
  for (const ClassSelector& one : classes) {
    GpuCapacity& sum = all[one.name];
    std::vector<planner::NodeState>& nodes = sum.each_node;
    const std::vector<api::Toleration> tolerations = worker_tolerations(one.tolerations, one.resource_name);
    std::vector<std::size_t> closed;                     // indices of nodes whose taints keep new workers away
    for (const auto& [key, node] : node_views_.all()) {  // keys are "/name"
      const auto units = node.value.allocatable.find(one.resource_name);
      if (units == node.value.allocatable.end() || units->second <= 0 || !selected(node.value.labels, one.node_selector))
        continue;
      if (node.value.usable && !tolerated(node.value.taints, tolerations)) closed.push_back(nodes.size());
      const auto zone = node.value.labels.find("topology.kubernetes.io/zone");
      nodes.push_back(
          {key.substr(1), one.name, units->second, 0, zone == node.value.labels.end() ? "" : zone->second, !node.value.usable});
    }
    for (const PodView* pod : others_) {
      const auto held = pod->held.find(one.resource_name);
      if (held == pod->held.end()) continue;
      const auto node =
          std::lower_bound(nodes.begin(), nodes.end(), pod->node,
                           [](const planner::NodeState& state, const std::string& name) { return state.name < name; });
      if (node != nodes.end() && node->name == pod->node) node->used_by_others += held->second;
    }
    // Workers that run there already stay, so their GPUs count, and no others.
    const auto held = closed.empty() ? std::map<std::string, int>() : held_by_workers(one.name);
    for (const std::size_t i : closed) {
      const auto here = held.find(nodes[i].name);
      nodes[i].unschedulable = here == held.end();
      if (here == held.end()) continue;
      nodes[i].allocatable_gpus = here->second;
      nodes[i].used_by_others = 0;
    }
    for (const planner::NodeState& node : nodes) {
      if (node.unschedulable) continue;
      ++sum.nodes;
      sum.allocatable += node.allocatable_gpus;
      sum.used_by_others += node.used_by_others;
    }
  }
  return all;
}

// The error of a refusal. The server's Retry-After applies to all writes.
template <class T>
Error KubernetesRuntime::heard(const kube::ApiResult<T>& refused) {
  if (const auto& wait_s = refused.failure().retry_after_s; wait_s && refused.error().code == ErrorCode::kUnavailable) {
    not_before_s_ = std::max(not_before_s_, now_.monotonic_s + std::min(*wait_s, kRetryAfterMaxS));
  }
  return refused.error();
}

Result<void> KubernetesRuntime::check(const Launch& spec) {
  Launch trial = spec;
  trial.name = fmt::format("{}-{}-check", spec.service, spec.pool);  // no slot has this name
  WINDLASS_ASSIGN_OR_RETURN(const json pod, pod_of(trial, defaults_));
  kube::WriteOptions options;
  options.dry_run = true;
  const auto checked = client_.create(kube::resources::kPods, pod, options);
  if (checked.ok()) return {};
  // A webhook without dry-run support gives no verdict on the pod.
  if (checked.error().message.find("does not support dry run") != std::string::npos) return {};
  return heard(checked);
}

Result<void> KubernetesRuntime::create(const Launch& spec) {
  WINDLASS_ASSIGN_OR_RETURN(const json pod, pod_of(spec, defaults_));
  const auto created = client_.create(kube::resources::kPods, pod);
  if (!created.ok()) {
    const Error refusal = heard(created);
    return refusal.code == ErrorCode::kResourceExhausted ? with_quota_named(refusal, spec.name_space) : refusal;
  }
  pods_.observe_write(*created);
  return {};
}

bool KubernetesRuntime::name_taken(const std::string& name_space, const std::string& name) const {
  const json* pod = pods_.find(name_space, name);
  if (pod == nullptr) return false;
  const auto worker = worker_of(kube::unpacked(*pod));
  return !worker || worker->instance != defaults_.instance;
}

Result<void> KubernetesRuntime::set_disruption_budgets(const std::vector<DisruptionBudget>& budgets) {
  Result<void> first;
  int written = 0;
  for (const DisruptionBudget& budget : budgets) {
    if (!budgets_.synced(budget.name_space)) continue;  // an unsynced namespace must not delay the others
    const std::string key = budget.name_space + "/" + budget_name(budget.service);
    const json* stored = budgets_.find(budget.name_space, budget_name(budget.service));
    const bool holds = stored == nullptr ? budget.min_available == 0 : budget_holds(*stored, budget);
    if (holds) {
      budget_retry_s_.erase(key);
      continue;
    }
    const auto retry = budget_retry_s_.find(key);
    if (now_.monotonic_s < not_before_s_ || (retry != budget_retry_s_.end() && now_.monotonic_s < retry->second)) continue;
    // it is being deleted
    if (stored != nullptr && !text_at(member(*stored, "metadata"), {"deletionTimestamp"}).empty()) continue;
    if (written++ == kMaxBudgetWrites) break;  // the next calls set the rest; budgets that were set stay valid
    const auto set = set_disruption_budget(budget);
    if (set.ok()) {
      budget_retry_s_.erase(key);
      continue;
    }
    budget_retry_s_[key] = now_.monotonic_s + kBudgetRetryS;
    if (first.ok()) first = set.error();
    // If one request times out, the others would too, and they would delay the step.
    const ErrorCode code = set.error().code;
    if (code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded) break;
  }
  return first;
}

Result<void> KubernetesRuntime::set_disruption_budget(const DisruptionBudget& budget) {
  const std::string name = budget_name(budget.service);
  const json* stored = budgets_.find(budget.name_space, name);
  const json wanted = budget_object(budget, defaults_.instance);
  if (stored == nullptr) {
    const auto created = client_.create(kube::resources::kPodDisruptionBudgets, wanted);
    if (!created.ok()) return heard(created);
    budgets_.observe_write(*created);
    return {};
  }
  const json& meta = member(*stored, "metadata");
  if (budget.min_available == 0) {
    kube::DeleteOptions options;
    options.uid = meta.value("uid", "");
    options.resource_version = meta.value("resourceVersion", "");
    const auto removed = client_.remove(kube::resources::kPodDisruptionBudgets, budget.name_space, name, options);
    if (!removed.ok() && removed.error().code != ErrorCode::kNotFound) return heard(removed);
    return {};
  }
  // A patch of only the mutable fields, conditional on the version that was read.
  const json patch = {{"metadata",
                       {{"uid", meta.value("uid", "")},
                        {"resourceVersion", meta.value("resourceVersion", "")},
                        {"ownerReferences", wanted["metadata"]["ownerReferences"]}}},
                      {"spec", wanted["spec"]}};
  const auto patched =
      client_.patch(kube::resources::kPodDisruptionBudgets, budget.name_space, name, kube::PatchType::kMerge, patch);
  if (!patched.ok()) return heard(patched);
  budgets_.observe_write(*patched);
  return {};
}

Result<void> KubernetesRuntime::begin_drain(const Worker& worker, Instant now) {
  if (worker.terminating) return {};  // already being deleted: no finalizer can be added
  const json* pod = pods_.find(worker.name_space, worker.name);
  if (pod == nullptr) return Error{ErrorCode::kNotFound, fmt::format("pod {}/{} is gone", worker.name_space, worker.name)};
  json finalizers = member(member(kube::unpacked(*pod), "metadata"), "finalizers");
  if (!finalizers.is_array()) finalizers = json::array();
  if (std::find(finalizers.begin(), finalizers.end(), kDrainFinalizer) == finalizers.end())
    finalizers.push_back(kDrainFinalizer);
  // Set mark and finalizer in one write, conditional on the pod that the decision was made for.
  const json patch = {{"metadata",
                       {{"uid", worker.uid},
                        {"resourceVersion", worker.resource_version},
                        {"annotations", {{kDrainingSince, fmt::format("{:.3f}", now.wall_s)}}},
                        {"finalizers", finalizers}}}};
  return patch_pod(worker, patch);
}

// A worker's container that starts again reads its role from the label.
Result<void> KubernetesRuntime::begin_role_change(const Worker& worker, const std::string& role, Instant now) {
  return patch_pod(worker, {{"metadata",
                             {{"uid", worker.uid},
                              {"resourceVersion", worker.resource_version},
                              {"labels", {{kRoleLabel, role}}},
                              {"annotations", {{kChangingRoleSince, fmt::format("{:.3f}", now.wall_s)}}}}}});
}

Result<void> KubernetesRuntime::end_role_change(const Worker& worker) {
  return patch_pod(worker, {{"metadata",
                             {{"uid", worker.uid},
                              {"resourceVersion", worker.resource_version},
                              {"annotations", {{kChangingRoleSince, nullptr}}}}}});
}

// Conditional on the version that the caller saw, which the patch names.
Result<void> KubernetesRuntime::patch_pod(const Worker& worker, const json& patch) {
  const auto patched = client_.patch(kube::resources::kPods, worker.name_space, worker.name, kube::PatchType::kMerge, patch);
  if (!patched.ok()) return heard(patched);
  pods_.observe_write(*patched);
  return {};
}

Result<void> KubernetesRuntime::terminate(const Worker& worker, std::optional<double> grace_s) {
  if (worker.terminating) return {};
  return remove(worker, grace_s);
}

Result<void> KubernetesRuntime::release(const Worker& worker) {
  const json* pod = pods_.find(worker.name_space, worker.name);
  if (pod == nullptr) return {};
  if (worker.node_gone) {
    // No kubelet can confirm the pod's end, so ask the server about the node instead of trusting our cache.
    const auto node = client_.get(kube::resources::kNodes, "", worker.node);
    if (!node.ok() && node.error().code != ErrorCode::kNotFound) return node.error();
    if (node.ok() && !out_of_service(*node)) {
      return Error{ErrorCode::kUnavailable, fmt::format("node {} exists again", worker.node)};
    }
  }
  json finalizers = member(member(kube::unpacked(*pod), "metadata"), "finalizers");
  if (finalizers.is_array()) {
    const auto kept = std::remove(finalizers.begin(), finalizers.end(), json(kDrainFinalizer));
    if (kept != finalizers.end()) {
      finalizers.erase(kept, finalizers.end());
      const json patch = {
          {"metadata", {{"uid", worker.uid}, {"resourceVersion", worker.resource_version}, {"finalizers", finalizers}}}};
      const auto patched =
          client_.patch(kube::resources::kPods, worker.name_space, worker.name, kube::PatchType::kMerge, patch);
      if (!patched.ok() && patched.error().code != ErrorCode::kNotFound) return heard(patched);
      return {};  // the object disappears, or returns without the finalizer and is deleted then
    }
  }
  // The object disappears once its kubelet confirms the end; without a node, nobody confirms it.
  return worker.terminating && !worker.node_gone ? Result<void>() : remove(worker, 0);
}

Result<void> KubernetesRuntime::remove(const Worker& worker, std::optional<double> grace_s) {
  kube::DeleteOptions options;
  options.uid = worker.uid;
  options.resource_version = worker.resource_version;
  if (grace_s) options.grace_period_s = static_cast<std::int64_t>(std::ceil(*grace_s));
  const auto removed = client_.remove(kube::resources::kPods, worker.name_space, worker.name, options);
  if (!removed.ok() && removed.error().code != ErrorCode::kNotFound) return heard(removed);
  return {};
}

}  // namespace windlass::controller
