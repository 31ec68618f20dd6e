// See kubernetes_store.h.
#include "controller/store/kubernetes_store.h"

#include <algorithm>

#include <fmt/format.h>

#include "controller/api/json.h"

namespace windlass::controller {
namespace {

kube::ReflectorOptions reflect(const kube::Resource& resource, std::uint64_t seed) {
  kube::ReflectorOptions options;
  options.resource = resource;
  options.seed = seed;
  return options;
}

nlohmann::json identity(const kube::Resource& resource, const api::ObjectMeta& meta) {
  nlohmann::json object = {
      {"apiVersion", resource.api_version()}, {"kind", resource.kind}, {"metadata", {{"name", meta.name}, {"uid", meta.uid}}}};
  if (!meta.name_space.empty()) object["metadata"]["namespace"] = meta.name_space;
  return object;
}

template <class Status>
Result<void> apply_status(kube::KubeClient& client, const kube::Resource& resource, const api::ObjectMeta& meta,
                          const Status& status, kube::Reflector& cache) {
  nlohmann::json object = identity(resource, meta);
  object["status"] = api::to_json(status);
  kube::WriteOptions options;
  options.subresource = "status";
  options.force = true;  // nobody else writes our status; what is there was written by an older version of us
  const auto written = client.apply(resource, object, options);
  if (!written.ok()) return written.error();
  cache.observe_write(*written);
  return {};
}

}  // namespace

KubernetesStore::KubernetesStore(kube::KubeClient& client, const std::string& instance, std::uint64_t seed)
    : client_(client),
      service_cache_(client, reflect(kube::resources::kModelServices, seed)),
      class_cache_(client, reflect(kube::resources::kAcceleratorClasses, seed + 1)),
      events_(client, [&] {
        kube::EventOptions options;
        options.instance = instance;
        return options;
      }()) {}

bool KubernetesStore::synced() const { return service_cache_.synced() && class_cache_.synced(); }

void KubernetesStore::step(Instant now) {
  service_cache_.step(now.monotonic_s);
  class_cache_.step(now.monotonic_s);
  const bool changed = service_generation_ != service_cache_.generation() || class_generation_ != class_cache_.generation();
  if (changed) {
    service_generation_ = service_cache_.generation();
    class_generation_ = class_cache_.generation();
    unreadable_.clear();
    unreadable_uids_.clear();
    std::vector<api::ModelService> services;
    for (const auto& [key, object] : service_cache_.objects()) {
      if (auto service = api::model_service_from_json(object); service.ok()) {
        services.push_back(std::move(*service));
      } else {
        unreadable_ += fmt::format("{}ModelService {}: {}", unreadable_.empty() ? "" : "\n", key, service.error().message);
        // Its last good state stays: an object that a newer version wrote must not look deleted to us.
        const auto last_good = std::find_if(services_.begin(), services_.end(), [&](const api::ModelService& old) {
          return old.metadata.name_space + "/" + old.metadata.name == key;
        });
        if (last_good != services_.end()) {
          services.push_back(*last_good);
        } else {
          unreadable_uids_.insert(object.at("metadata").value("uid", ""));
        }
      }
    }
    services_ = std::move(services);
    std::vector<api::AcceleratorClass> classes;
    for (const auto& [key, object] : class_cache_.objects()) {
      if (auto one = api::accelerator_class_from_json(object); one.ok()) {
        classes.push_back(std::move(*one));
      } else {
        unreadable_ +=
            fmt::format("{}AcceleratorClass {}: {}", unreadable_.empty() ? "" : "\n", key.substr(1), one.error().message);
        for (const api::AcceleratorClass& old : classes_) {
          if ("/" + old.metadata.name == key) classes.push_back(old);
        }
      }
    }
    classes_ = std::move(classes);
  }
  problem_ = unreadable_;
  for (const kube::Reflector* cache : {&service_cache_, &class_cache_}) {
    if (cache->last_error()) problem_ += (problem_.empty() ? "" : "\n") + cache->last_error()->message;
  }
}

Result<void> KubernetesStore::write_status(const api::ModelService& object, const api::ModelServiceStatus& status) {
  return apply_status(client_, kube::resources::kModelServices, object.metadata, status, service_cache_);
}

Result<void> KubernetesStore::write_status(const api::AcceleratorClass& object, const api::AcceleratorClassStatus& status) {
  return apply_status(client_, kube::resources::kAcceleratorClasses, object.metadata, status, class_cache_);
}

Result<void> KubernetesStore::record_event(const api::ModelService& object, bool warning, const std::string& reason,
                                           const std::string& message, Instant now) {
  return events_.record(identity(kube::resources::kModelServices, object.metadata),
                        warning ? kube::EventType::kWarning : kube::EventType::kNormal, reason, message, now.wall_s);
}

template <class Read>
const Result<std::string>& KubernetesStore::look_up(const std::string& what, Instant now, Read read) {
  LookUp& cached = look_ups_[what];
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
