// See kubernetes_store.h.
#include "controller/store/kubernetes_store.h"

#include <algorithm>

#include <fmt/format.h>

#include "controller/api/json.h"
#include "controller/kube/packed.h"

namespace windlass::controller {
namespace {

nlohmann::json identity(const kube::Resource& resource, const api::ObjectMeta& meta) {
  nlohmann::json object = {
      {"apiVersion", resource.api_version()}, {"kind", resource.kind}, {"metadata", {{"name", meta.name}, {"uid", meta.uid}}}};
  if (!meta.name_space.empty()) object["metadata"]["namespace"] = meta.name_space;
  return object;
}

kube::ReflectorOptions packed(kube::ReflectorOptions options) {
  options.trim = kube::pack;
  return options;
}

// status.observedGeneration of any object; 0 if absent.
std::int64_t observed_generation(const nlohmann::json& object) {
  const auto status = object.find("status");
  if (status == object.end() || !status->is_object()) return 0;
  const auto observed = status->find("observedGeneration");
  return observed != status->end() && observed->is_number_integer() ? observed->get<std::int64_t>() : 0;
}

// `manager`: the field manager that owns these fields afterwards; empty: the client's own. Forcing is safe, because only older
// versions of us have written our status before.
Result<void> apply_status(kube::KubeClient& client, const kube::Resource& resource, const api::ObjectMeta& meta,
                          nlohmann::json status, kube::ReflectorSet& cache, const std::string& manager = {}) {
  nlohmann::json object = identity(resource, meta);
  // Conditional on the version that the decision was made from, so that a write sent while we led changes nothing if it arrives
  // under another leader.
  if (const nlohmann::json* known = cache.find(meta.name_space, meta.name))
    object["metadata"]["resourceVersion"] = known->at("metadata").value("resourceVersion", "");
  object["status"] = std::move(status);
  kube::WriteOptions options;
  options.subresource = "status";
  options.field_manager = manager;
  options.force = true;
  const auto written = client.apply(resource, object, options);
  if (!written.ok()) return written.error();
  cache.observe_write(*written);
  return {};
}

}  // namespace

KubernetesStore::KubernetesStore(kube::KubeClient& client, const std::string& instance, std::uint64_t seed, StoreScope scope)
    : client_(client),
      service_cache_(client, packed(kube::options_of(kube::resources::kModelServices, seed)), scope.namespaces),
      class_cache_(client, kube::options_of(kube::resources::kAcceleratorClasses, seed + 1)),
      profile_cache_(client, kube::options_of(kube::resources::kPerformanceProfiles, seed + 2), scope.namespaces),
      events_(client, {.instance = instance}),
      scope_(std::move(scope)) {}

bool KubernetesStore::synced() const { return service_cache_.synced() && class_cache_.synced(); }

template <class Object, class Parse>
bool KubernetesStore::read_changed(const kube::ReflectorSet& cache, Kind<Object>& kind, Parse parse) {
  if (kind.generation == cache.generation()) return false;
  kind.generation = cache.generation();
  // A server restored from a backup may reuse a version for a different state, so a new list is parsed again.
  const bool trusted = kind.lists == cache.lists();
  kind.lists = cache.lists();
  Kind<Object> fresh;
  fresh.objects.reserve(kind.objects.size());
  const auto keep = [&](auto& entry, Object&& object) {
    entry.index = fresh.objects.size();
    fresh.objects.push_back(std::move(object));
  };
  cache.visit([&](const std::string& key, const nlohmann::json& stored) {
    auto& entry = fresh.entries.emplace_hint(fresh.entries.end(), key, typename Kind<Object>::Entry{})->second;
    entry.version = kube::version_key(stored);
    const auto before = kind.entries.find(key);
    const bool was_good = before != kind.entries.end() && before->second.index.has_value();
    Object* const last_good = was_good ? &kind.objects[*before->second.index] : nullptr;
    if (trusted && before != kind.entries.end() && !entry.version.empty() && entry.version == before->second.version) {
      entry.broken = std::move(before->second.broken);
      entry.foreign_uid = std::move(before->second.foreign_uid);
      if (last_good != nullptr) keep(entry, std::move(*last_good));
      return;
    }
    const nlohmann::json json = kube::unpacked(stored);
    if (std::is_same_v<Object, api::ModelService> && kube::instance_of(json) != scope_.instance) {
      entry.foreign_uid = json.at("metadata").value("uid", "");
      return;
    }
    auto object = parse(json);
    if (object.ok()) {
      if constexpr (std::is_same_v<Object, api::ModelService>) {
        object->name_with_namespace =
            !scope_.plain_names.contains("*") && !scope_.plain_names.contains(object->metadata.name_space);
      }
      keep(entry, std::move(*object));
      return;
    }
    // Everything after metadata, and parts of metadata, may be malformed.
    const nlohmann::json& meta = json.at("metadata");
    const auto text = [&](const char* field) {
      const auto found = meta.find(field);
      return found != meta.end() && found->is_string() ? found->template get<std::string>() : std::string();
    };
    BrokenObject broken{Object::kKind, text("namespace"), text("name"), text("uid"), 0, object.error().message};
    if (const auto found = meta.find("generation"); found != meta.end() && found->is_number_integer())
      broken.generation = found->template get<std::int64_t>();
    // Keep the last good state: an object written by a newer version must not look deleted. Do not keep a state older than one
    // that an earlier leader acted on, or one of an earlier object with this name: that would undo later changes.
    const bool ours = last_good != nullptr && last_good->metadata.uid == broken.uid &&
                      last_good->metadata.generation >= observed_generation(json);
    entry.broken = std::move(broken);
    if (ours) keep(entry, std::move(*last_good));
  });
  kind.objects = std::move(fresh.objects);
  kind.entries = std::move(fresh.entries);
  return true;
}

// Collects what all kinds report.
void KubernetesStore::sum_up() {
  broken_.clear();
  unreadable_uids_.clear();
  foreign_uids_.clear();
  const auto add_broken = [&](const auto& kind) {
    for (const auto& [key, entry] : kind.entries) {
      if (entry.broken) broken_.push_back(*entry.broken);
    }
  };
  add_broken(services_);
  add_broken(classes_);
  add_broken(profiles_);
  for (const auto& [key, entry] : services_.entries) {
    if (entry.broken && !entry.index) unreadable_uids_.insert(entry.broken->uid);
    if (!entry.foreign_uid.empty()) foreign_uids_.insert(entry.foreign_uid);
  }
}

void KubernetesStore::step(Instant now) {
  for (kube::ReflectorSet* cache : {&service_cache_, &class_cache_, &profile_cache_}) cache->step(now.monotonic_s);
  const bool services = read_changed(service_cache_, services_, api::model_service_from_json);
  const bool classes = read_changed(class_cache_, classes_, api::accelerator_class_from_json);
  const bool profiles = read_changed(profile_cache_, profiles_, api::performance_profile_from_json);
  if (services || classes || profiles) sum_up();
  forget_old_look_ups(now);
  look_for_namespaces(now);
  problem_.clear();
  const auto tell = [&](const std::string& what) { problem_ += (problem_.empty() ? "" : "\n") + what; };
  for (const BrokenObject& broken : broken_) tell(broken.message);
  for (const std::string& name : missing_namespaces_) {
    tell(fmt::format("--watch-namespaces: must be namespaces that exist (got {})", name));
  }
  for (const kube::ReflectorSet* cache : {&service_cache_, &class_cache_, &profile_cache_}) {
    if (const std::string trouble = cache->problem(); !trouble.empty()) tell(trouble);
  }
}

void KubernetesStore::read_anew(Instant now) {
  for (kube::ReflectorSet* cache : {&service_cache_, &class_cache_, &profile_cache_}) cache->list_anew(now.monotonic_s);
  step(now);
}

// To a token that may read everything, a namespace that does not exist looks empty.
void KubernetesStore::look_for_namespaces(Instant now) {
  if (now.monotonic_s < next_namespaces_s_ || !service_cache_.synced()) return;
  next_namespaces_s_ = now.monotonic_s + kLookUpTtlS;
  for (const std::string& name : scope_.namespaces) {
    const auto found = client_.get(kube::resources::kNamespaces, "", name);
    const auto failed = [&](ErrorCode code) { return !found.ok() && found.error().code == code; };
    // the other requests would not be answered either
    if (failed(ErrorCode::kUnavailable) || failed(ErrorCode::kDeadlineExceeded)) return;
    if (failed(ErrorCode::kNotFound)) {
      missing_namespaces_.insert(name);
    } else {
      missing_namespaces_.erase(name);  // if it may not be read, the caches report that
    }
  }
}

void KubernetesStore::forget_old_look_ups(Instant now) {
  if (now.monotonic_s < next_forget_s_) return;
  next_forget_s_ = now.monotonic_s + kLookUpTtlS;
  std::erase_if(look_ups_, [&](const auto& one) { return now.monotonic_s - one.second.asked_s >= kLookUpKeepS; });
}

Result<void> KubernetesStore::write_status(const api::ModelService& object, const api::ModelServiceStatus& status) {
  return apply_status(client_, kube::resources::kModelServices, object.metadata, api::to_json(status), service_cache_);
}

Result<void> KubernetesStore::write_status(const api::AcceleratorClass& object, const api::AcceleratorClassStatus& status) {
  const nlohmann::json* stored = class_cache_.find("", object.metadata.name);
  if (stored != nullptr && kube::instance_of(*stored) != scope_.instance) {
    return Error{
        ErrorCode::kNotFound,
        fmt::format("AcceleratorClass {} belongs to another installation, which writes its status", object.metadata.name)};
  }
  return apply_status(client_, kube::resources::kAcceleratorClasses, object.metadata, api::to_json(status), class_cache_);
}

Result<void> KubernetesStore::write_status(const api::PerformanceProfile& object, const api::PerformanceProfileStatus& status) {
  return apply_status(client_, kube::resources::kPerformanceProfiles, object.metadata, api::to_json(status), profile_cache_);
}

Result<void> KubernetesStore::write_condition(const BrokenObject& object, const api::Condition& condition) {
  const bool is_service = object.kind == api::ModelService::kKind, is_class = object.kind == api::AcceleratorClass::kKind;
  const kube::Resource& resource = is_service ? kube::resources::kModelServices
                                   : is_class ? kube::resources::kAcceleratorClasses
                                              : kube::resources::kPerformanceProfiles;
  kube::ReflectorSet& cache = is_service ? service_cache_ : is_class ? class_cache_ : profile_cache_;
  api::ObjectMeta meta;
  meta.name_space = object.name_space;
  meta.name = object.name;
  meta.uid = object.uid;
  // Uses a field manager for this one condition, so that the rest of our status stays ours.
  return apply_status(client_, resource, meta, {{"conditions", nlohmann::json::array({api::to_json(condition)})}}, cache,
                      "windlass-controller-unreadable");
}

Result<void> KubernetesStore::record_event(const api::ModelService& object, bool warning, const std::string& reason,
                                           const std::string& message, Instant now) {
  return events_.record(identity(kube::resources::kModelServices, object.metadata),
                        warning ? kube::EventType::kWarning : kube::EventType::kNormal, reason, message, now.wall_s);
}

template <class Read>
const Result<std::string>& KubernetesStore::look_up(const std::string& what, Instant now, Read read) {
  LookUp& cached = look_ups_[what];
  cached.asked_s = now.monotonic_s;
  if (now.monotonic_s < cached.until_s) return cached.value;
  Result<std::string> fresh = read();
  const bool answered = fresh.ok() || fresh.error().code == ErrorCode::kNotFound;
  cached.until_s = now.monotonic_s + (answered ? kLookUpTtlS : kLookUpRetryS);
  if (answered || !cached.known) cached.value = std::move(fresh);
  cached.known = cached.known || answered;
  return cached.value;
}

Result<std::string> KubernetesStore::config_map_value(const std::string& name_space, const api::KeyRef& ref, Instant now) {
  return look_up(fmt::format("configmap {}/{}/{}", name_space, ref.name, ref.key), now, [&]() -> Result<std::string> {
    WINDLASS_ASSIGN_OR_RETURN(const nlohmann::json map, client_.get(kube::resources::kConfigMaps, name_space, ref.name));
    const auto data = map.find("data");
    if (data == map.end() || !data->is_object() || !data->contains(ref.key)) {
      return Error{ErrorCode::kNotFound, fmt::format("spec.model.config.configMapKeyRef: ConfigMap {}/{} has no key '{}'",
                                                     name_space, ref.name, ref.key)};
    }
    return data->at(ref.key).get<std::string>();
  });
}

Result<int> KubernetesStore::priority(const std::string& priority_class, Instant now) {
  if (priority_class.empty()) return 0;
  WINDLASS_ASSIGN_OR_RETURN(const std::string value,
                            look_up("priorityclass " + priority_class, now, [&]() -> Result<std::string> {
                              WINDLASS_ASSIGN_OR_RETURN(const nlohmann::json object,
                                                        client_.get(kube::resources::kPriorityClasses, "", priority_class));
                              return std::to_string(object.value("value", 0));
                            }));
  return std::stoi(value);
}

}  // namespace windlass::controller
