// State of FakeApiServer: storage, deletion and history, and the methods with which a test changes the state directly.
#include "tests/fakes/fake_api_server.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "controller/kube/events.h"
#include "tests/fakes/fake_api_internal.h"
#include "tests/fakes/selectors.h"

namespace windlass::fakes {

using kube::Resource;
using nlohmann::json;

std::string place_of(const Resource& resource) { return resource.group + "/" + resource.plural; }

std::string text_in(const json& object, const char* outer, const char* key) {
  auto holder = object.find(outer);
  if (holder == object.end() || !holder->is_object()) return "";
  auto it = holder->find(key);
  return it != holder->end() && it->is_string() ? it->get<std::string>() : "";
}

bool has_finalizers(const json& object) {
  const json& metadata = object.at("metadata");
  auto it = metadata.find("finalizers");
  return it != metadata.end() && it->is_array() && !it->empty();
}

bool being_deleted(const json& object) { return object.at("metadata").contains("deletionTimestamp"); }

Refusal exceeded_quota(const std::string& detail) { return {403, "Forbidden", "exceeded quota: " + detail, {}}; }

namespace {

constexpr std::int64_t kDefaultPodGrace_s = 30;

void add_finalizer(json& object, const std::string& name) {
  json& finalizers = object["metadata"]["finalizers"];
  if (!finalizers.is_array()) finalizers = json::array();
  if (std::find(finalizers.begin(), finalizers.end(), name) == finalizers.end()) finalizers.push_back(name);
}

bool drop_finalizer(json& object, const std::string& name) {
  json& finalizers = object["metadata"]["finalizers"];
  auto it = std::find(finalizers.begin(), finalizers.end(), name);
  if (it == finalizers.end()) return false;
  finalizers.erase(it);
  if (finalizers.empty()) object["metadata"].erase("finalizers");
  return true;
}

bool holds_finalizer(const json& object, const std::string& name) {
  if (!has_finalizers(object)) return false;
  const json& finalizers = object.at("metadata").at("finalizers");
  return std::find(finalizers.begin(), finalizers.end(), name) != finalizers.end();
}

void set_condition(json& status, const std::string& type, bool value, double wall_s, const std::string& reason = "",
                   const std::string& message = "") {
  json& conditions = status["conditions"];
  if (!conditions.is_array()) conditions = json::array();
  std::string text = value ? "True" : "False";
  auto it = std::find_if(conditions.begin(), conditions.end(), [&](const json& c) { return c.value("type", "") == type; });
  json condition{{"type", type}, {"status", text}, {"lastTransitionTime", kube::rfc3339(wall_s)}};
  if (!reason.empty()) condition["reason"] = reason;
  if (!message.empty()) condition["message"] = message;
  if (it == conditions.end()) {
    conditions.push_back(std::move(condition));
  } else {
    if (it->value("status", "") == text) condition["lastTransitionTime"] = it->value("lastTransitionTime", "");
    *it = std::move(condition);
  }
}

json container_status(const json& container, const PodReport& report, double wall_s) {
  json status{{"name", container.value("name", "")},
              {"image", container.value("image", "")},
              {"ready", report.ready},
              {"restartCount", report.restarts},
              {"started", report.phase == "Running" && report.waiting_reason.empty()}};
  if (!report.waiting_reason.empty()) {
    status["state"]["waiting"] = {{"reason", report.waiting_reason}, {"message", report.waiting_message}};
  } else if (report.phase == "Running") {
    status["state"]["running"] = {{"startedAt", kube::rfc3339(wall_s)}};
  } else if (report.phase == "Succeeded" || report.phase == "Failed") {
    int code = report.exit_code.value_or(report.phase == "Failed" ? 1 : 0);
    status["state"]["terminated"] = {{"exitCode", code}, {"reason", code == 0 ? "Completed" : "Error"}};
  } else {
    status["state"]["waiting"] = {{"reason", "ContainerCreating"}};
  }
  if (!report.last_end_reason.empty()) {
    status["lastState"]["terminated"] = {{"exitCode", report.last_end_reason == "OOMKilled" ? 137 : 1},
                                         {"reason", report.last_end_reason}};
  }
  return status;
}

// Whether two objects are equal, ignoring metadata and status.
bool same_but_for_status(const json& a, const json& b) {
  const auto covers = [](const json& one, const json& other) {
    return std::all_of(one.items().begin(), one.items().end(), [&](const auto& field) {
      if (field.key() == "metadata" || field.key() == "status") return true;
      const auto found = other.find(field.key());
      return found != other.end() && *found == field.value();
    });
  };
  return covers(a, b) && covers(b, a);
}

}  // namespace

FakeApiServer::FakeApiServer(FakeApiOptions options) : options_(std::move(options)), random_(options_.seed, "fake api server") {
  using namespace kube::resources;
  for (const Resource& resource : {kNodes, kNamespaces, kServices, kPersistentVolumeClaims, kResourceQuotas})
    add_resource(resource, true);
  for (const Resource& resource : {kConfigMaps, kSecrets, kServiceAccounts, kEvents, kLeases, kPriorityClasses})
    add_resource(resource, false);
  const Resource disruption_budgets{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true};
  for (const Resource& resource : {kPods, kDeployments, kCustomResourceDefinitions, kModelServices, kAcceleratorClasses,
                                   kPerformanceProfiles, disruption_budgets}) {
    add_resource(resource, true);
  }
  for (Kind& kind : kinds_) kind.has_generation = kind.has_status && (kind.resource.group != "" || kind.resource.kind == "Pod");
  seed_object({{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", "default"}}}});
}

FakeApiServer::~FakeApiServer() = default;

void FakeApiServer::set_now(double now_s) { now_ = std::max(now_, now_s); }

void FakeApiServer::add_resource(const Resource& resource, bool has_status) {
  std::erase_if(kinds_, [&](const Kind& kind) { return place_of(kind.resource) == place_of(resource); });
  kinds_.push_back({resource, has_status, has_status});
}

const FakeApiServer::Kind* FakeApiServer::kind_of(const json& object) const {
  for (const Kind& kind : kinds_) {
    if (object.value("apiVersion", "") == kind.resource.api_version() && object.value("kind", "") == kind.resource.kind)
      return &kind;
  }
  return nullptr;
}

const FakeApiServer::Kind* FakeApiServer::kind_at(const Resource& resource) const {
  for (const Kind& kind : kinds_) {
    if (place_of(kind.resource) == place_of(resource)) return &kind;
  }
  return nullptr;
}

const FakeApiServer::Stored* FakeApiServer::find(const Resource& resource, const Key& key) const {
  auto place = objects_.find(place_of(resource));
  if (place == objects_.end()) return nullptr;
  auto it = place->second.find(key);
  return it == place->second.end() ? nullptr : &it->second;
}

void FakeApiServer::remember(Change change) {
  change.at_s = now_;
  history_.push_back(std::move(change));
  while (history_.size() > options_.history) {
    compacted_ = history_.front().version;
    history_.pop_front();
  }
}

void FakeApiServer::compact() {
  history_.clear();
  pages_.clear();
  compacted_ = version_;
}

FakeApiServer::Shared FakeApiServer::store(const Kind& kind, const Key& key, json next) {
  Stored& stored = objects_[place_of(kind.resource)][key];
  next["apiVersion"] = kind.resource.api_version();
  next["kind"] = kind.resource.kind;
  json& metadata = next["metadata"];
  if (!metadata.is_object()) metadata = json::object();
  if (kind.resource.namespaced) metadata["namespace"] = key.first;
  metadata["name"] = key.second;
  metadata.erase("managedFields");
  if (!stored.object) {
    metadata["uid"] = fmt::format("00000000-0000-4000-8000-{:012x}", ++uids_);
    metadata["creationTimestamp"] = kube::rfc3339(wall_now());
    if (kind.has_generation) metadata["generation"] = 1;
  } else {
    const json& before = stored.object->at("metadata");
    metadata["uid"] = before.at("uid");
    metadata["creationTimestamp"] = before.at("creationTimestamp");
    if (kind.has_generation) {
      auto generation = before.value("generation", std::int64_t{1});
      metadata["generation"] = same_but_for_status(*stored.object, next) ? generation : generation + 1;
    }
    metadata["resourceVersion"] = before.at("resourceVersion");
    if (next == *stored.object) return stored.object;  // a write that changes nothing creates no new version
  }
  metadata["resourceVersion"] = std::to_string(++version_);
  auto before = stored.object;
  stored.object = std::make_shared<const json>(std::move(next));
  remember({version_, before ? "MODIFIED" : "ADDED", kind.resource, key.first, key.second, stored.object, before});
  return stored.object;
}

void FakeApiServer::erase(const Kind& kind, const Key& key) {
  auto& place = objects_[place_of(kind.resource)];
  auto it = place.find(key);
  if (it == place.end()) return;
  auto before = it->second.object;
  json last = *before;
  last["metadata"]["resourceVersion"] = std::to_string(++version_);
  place.erase(it);
  remember({version_, "DELETED", kind.resource, key.first, key.second, std::make_shared<const json>(std::move(last)), before});
}

void FakeApiServer::begin_deletion(const Kind& kind, const Key& key, std::optional<std::int64_t> grace_s,
                                   const std::string& propagation) {
  const Stored* stored = find(kind.resource, key);
  if (stored == nullptr) return;
  json next = *stored->object;
  std::int64_t grace = 0;
  if (kind.resource.kind == "Pod") {
    grace = grace_s.value_or(next["spec"].value("terminationGracePeriodSeconds", kDefaultPodGrace_s));
    std::string phase = text_in(next, "status", "phase");
    if (text_in(next, "spec", "nodeName").empty() || phase == "Succeeded" || phase == "Failed") grace = 0;
  }
  if (propagation == "Foreground") add_finalizer(next, "foregroundDeletion");
  if (propagation == "Orphan") add_finalizer(next, "orphan");
  json& metadata = next["metadata"];
  bool shorter =
      !metadata.contains("deletionTimestamp") || grace < metadata.value("deletionGracePeriodSeconds", std::int64_t{0});
  if (shorter) {
    metadata["deletionTimestamp"] = kube::rfc3339(wall_now() + static_cast<double>(grace));
    metadata["deletionGracePeriodSeconds"] = grace;
  }
  if (grace == 0 && !has_finalizers(next)) {
    erase(kind, key);
    return;
  }
  store(kind, key, std::move(next));
}

void FakeApiServer::finish_if_free(const Kind& kind, const Key& key) {
  const Stored* stored = find(kind.resource, key);
  if (stored == nullptr || !being_deleted(*stored->object) || has_finalizers(*stored->object)) return;
  if (stored->object->at("metadata").value("deletionGracePeriodSeconds", 0) > 0) return;
  erase(kind, key);
}

std::map<FakeApiServer::Key, FakeApiServer::Shared> FakeApiServer::state_at(const Kind& kind, std::uint64_t version) const {
  std::map<Key, Shared> state;
  if (auto place = objects_.find(place_of(kind.resource)); place != objects_.end()) {
    for (const auto& [key, stored] : place->second) state[key] = stored.object;
  }
  for (auto it = history_.rbegin(); it != history_.rend() && it->version > version; ++it) {
    if (place_of(it->resource) != place_of(kind.resource)) continue;
    Key key{it->name_space, it->name};
    if (it->before) {
      state[key] = it->before;
    } else {
      state.erase(key);
    }
  }
  return state;
}

json FakeApiServer::seed_object(json object) {
  const Kind* kind = kind_of(object);
  if (kind == nullptr) {
    throw std::invalid_argument("seed_object: the fake API server knows no " + object.value("apiVersion", "") + " " +
                                object.value("kind", ""));
  }
  std::string name_space = kind->resource.namespaced ? text_in(object, "metadata", "namespace") : "";
  if (kind->resource.namespaced && name_space.empty()) name_space = "default";
  Key key{name_space, text_in(object, "metadata", "name")};
  return *store(*kind, key, std::move(object));
}

std::optional<json> FakeApiServer::object(const Resource& resource, const std::string& name_space,
                                          const std::string& name) const {
  const Stored* stored = find(resource, {name_space, name});
  return stored == nullptr ? std::nullopt : std::optional(*stored->object);
}

std::vector<json> FakeApiServer::objects(const Resource& resource, const std::string& name_space,
                                         const std::string& label_selector) const {
  std::vector<json> out;
  auto place = objects_.find(place_of(resource));
  if (place == objects_.end()) return out;
  for (const auto& [key, stored] : place->second) {
    if ((name_space.empty() || key.first == name_space) && labels_match(*stored.object, label_selector))
      out.push_back(*stored.object);
  }
  return out;
}

void FakeApiServer::visit(const Resource& resource, const std::function<void(const json&)>& see) const {
  auto place = objects_.find(place_of(resource));
  if (place == objects_.end()) return;
  for (const auto& [key, stored] : place->second) see(*stored.object);
}

const json* FakeApiServer::peek(const Resource& resource, const std::string& name_space, const std::string& name) const {
  const Stored* stored = find(resource, {name_space, name});
  return stored == nullptr ? nullptr : stored->object.get();
}

bool FakeApiServer::edit(const Resource& resource, const std::string& name_space, const std::string& name,
                         const std::function<void(json&)>& change) {
  const Kind* kind = kind_at(resource);
  const Stored* stored = find(resource, {name_space, name});
  if (kind == nullptr || stored == nullptr) return false;
  json next = *stored->object;
  change(next);
  store(*kind, {name_space, name}, std::move(next));
  finish_if_free(*kind, {name_space, name});
  return true;
}

bool FakeApiServer::delete_object(const Resource& resource, const std::string& name_space, const std::string& name,
                                  bool force) {
  const Kind* kind = kind_at(resource);
  if (kind == nullptr || find(resource, {name_space, name}) == nullptr) return false;
  if (force) {
    erase(*kind, {name_space, name});
  } else {
    begin_deletion(*kind, {name_space, name}, std::nullopt, "Background");
  }
  return true;
}

bool FakeApiServer::kubelet_set(const std::string& name_space, const std::string& name, const PodReport& report) {
  return edit(kube::resources::kPods, name_space, name, [&](json& pod) {
    if (!report.node.empty()) pod["spec"]["nodeName"] = report.node;
    json& status = pod["status"];
    if (!status.is_object()) status = json::object();
    status["phase"] = report.phase;
    if (!report.reason.empty()) status["reason"] = report.reason;
    if (!report.pod_ip.empty()) {
      status["podIP"] = report.pod_ip;
      status["podIPs"] = json::array({{{"ip", report.pod_ip}}});
    }
    bool scheduled = report.unschedulable.empty() && !text_in(pod, "spec", "nodeName").empty();
    if (scheduled && !status.contains("startTime")) status["startTime"] = kube::rfc3339(wall_now());
    set_condition(status, "PodScheduled", scheduled, wall_now(), report.unschedulable.empty() ? "" : "Unschedulable",
                  report.unschedulable);
    set_condition(status, "Initialized", scheduled, wall_now());
    set_condition(status, "ContainersReady", report.ready, wall_now());
    set_condition(status, "Ready", report.ready, wall_now());
    json containers = json::array();
    for (const json& container : pod["spec"].value("containers", json::array())) {
      containers.push_back(container_status(container, report, wall_now()));
    }
    if (scheduled) status["containerStatuses"] = std::move(containers);
  });
}

bool FakeApiServer::kubelet_finish_deletion(const std::string& name_space, const std::string& name) {
  const Stored* stored = find(kube::resources::kPods, {name_space, name});
  if (stored == nullptr || !being_deleted(*stored->object)) return false;
  return edit(kube::resources::kPods, name_space, name, [](json& pod) { pod["metadata"]["deletionGracePeriodSeconds"] = 0; });
}

std::vector<json> FakeApiServer::terminating_pods() const {
  std::vector<json> out = pods();
  std::erase_if(out, [](const json& pod) {
    return !being_deleted(pod) || pod.at("metadata").value("deletionGracePeriodSeconds", 0) == 0;
  });
  return out;
}

int FakeApiServer::schedule_pending(const std::string& node, const std::function<bool(const json&)>& fits) {
  int bound = 0;
  for (const json& pod : pods()) {
    if (!text_in(pod, "spec", "nodeName").empty() || being_deleted(pod) || (fits && !fits(pod))) continue;
    PodReport report;
    report.phase = "Pending";
    report.node = node;
    kubelet_set(text_in(pod, "metadata", "namespace"), text_in(pod, "metadata", "name"), report);
    ++bound;
  }
  return bound;
}

int FakeApiServer::collect_garbage() {
  int begun = 0;
  struct Found {
    const Kind* kind;
    Key key;
    Shared object;
  };
  std::vector<Found> all;
  std::map<std::string, Shared> by_uid;
  for (const Kind& kind : kinds_) {
    auto place = objects_.find(place_of(kind.resource));
    if (place == objects_.end()) continue;
    for (const auto& [key, stored] : place->second) {
      all.push_back({&kind, key, stored.object});
      by_uid[text_in(*stored.object, "metadata", "uid")] = stored.object;
    }
  }
  std::set<std::string> owners_with_dependents;
  for (const Found& found : all) {
    const json& metadata = found.object->at("metadata");
    const auto listed = metadata.find("ownerReferences");
    if (listed == metadata.end() || listed->empty()) continue;
    const json& references = *listed;
    bool any_alive = false;
    for (const json& reference : references) {
      std::string uid = reference.value("uid", "");
      auto owner = by_uid.find(uid);
      if (owner == by_uid.end()) continue;
      if (holds_finalizer(*owner->second, "orphan") && being_deleted(*owner->second)) {
        edit(found.kind->resource, found.key.first, found.key.second, [&](json& object) {
          json& list = object["metadata"]["ownerReferences"];
          list.erase(std::remove_if(list.begin(), list.end(), [&](const json& r) { return r.value("uid", "") == uid; }),
                     list.end());
          if (list.empty()) object["metadata"].erase("ownerReferences");
        });
        any_alive = true;
        continue;
      }
      bool waits = holds_finalizer(*owner->second, "foregroundDeletion") && being_deleted(*owner->second);
      if (waits) owners_with_dependents.insert(uid);
      any_alive = any_alive || !waits;
    }
    if (any_alive || being_deleted(*found.object)) continue;
    begin_deletion(*found.kind, found.key, std::nullopt, "Background");
    ++begun;
  }
  for (const Found& found : all) {
    const Stored* now = find(found.kind->resource, found.key);
    if (now == nullptr || !being_deleted(*now->object)) continue;
    bool waits = owners_with_dependents.count(text_in(*now->object, "metadata", "uid")) > 0;
    edit(found.kind->resource, found.key.first, found.key.second, [&](json& object) {
      if (!has_finalizers(object)) return;
      drop_finalizer(object, "orphan");
      if (!waits) drop_finalizer(object, "foregroundDeletion");
    });
  }
  return begun;
}

}  // namespace windlass::fakes
