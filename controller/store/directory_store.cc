// See directory_store.h.
#include "controller/store/directory_store.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/api/json.h"
#include "controller/api/load.h"
#include "controller/kube/events.h"
#include "metrics/host/whole_file.h"

namespace windlass::controller {
namespace fs = std::filesystem;
namespace {

Result<std::string> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::kNotFound, fmt::format("{}: cannot be read", path.string())};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Replaces invalid UTF-8, which would make dump() throw: a worker's last log lines may be cut inside a character.
std::string to_text(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

bool is_yaml(const fs::path& path) { return path.extension() == ".yaml" || path.extension() == ".yml"; }

bool earlier(const api::ObjectMeta& a, const api::ObjectMeta& b) {
  return std::tie(a.name_space, a.name) < std::tie(b.name_space, b.name);
}

template <class Object>
bool same_spec(const Object& a, const Object& b) {
  if constexpr (std::is_same_v<Object, api::PerformanceProfile>) {
    return api::to_json(a).at("spec") == api::to_json(b).at("spec");  // tables have no equality operator
  } else {
    return a.spec == b.spec;
  }
}

}  // namespace

Result<DirectoryStore> DirectoryStore::open(const fs::path& directory) {
  for (const char* folder : {"objects", "status"}) {
    std::error_code failed;
    fs::create_directories(directory / folder, failed);
    if (failed) {
      return Error{ErrorCode::kPermissionDenied,
                   fmt::format("--store: cannot create {}: {}", (directory / folder).string(), failed.message())};
    }
  }
  return DirectoryStore(directory);
}

void DirectoryStore::step(Instant now) {
  std::error_code failed;
  std::map<fs::path, Source> found;
  bool changed = !synced_;
  for (fs::directory_iterator entry(directory_ / "objects", failed), end; !failed && entry != end; entry.increment(failed)) {
    if (!is_yaml(entry->path())) continue;
    std::error_code gone;
    Source source;
    source.modified = entry->last_write_time(gone);
    if (!gone) source.size = entry->file_size(gone);
    if (gone) continue;  // removed while listing: the next step no longer sees it
    const auto old = sources_.find(entry->path());
    const bool known = old != sources_.end();
    const bool same = known && old->second.modified == source.modified && old->second.size == source.size;
    if (same && old->second.settled) {
      found.insert(sources_.extract(old));
      continue;
    }
    if (known) {
      source.text = old->second.text;
      source.bad_reason = old->second.bad_reason;
    }
    if (synced_ && !same) {  // just written, perhaps incompletely: the next step reads it if it has not changed again
      if (known) sources_.erase(old);
      found.emplace(entry->path(), std::move(source));
      continue;
    }
    if (known) sources_.erase(old);
    changed = true;
    source.settled = true;
    source.bad_reason.clear();
    if (const auto text = read_file(entry->path()); !text.ok()) {
      source.bad_reason = text.error().message;
    } else if (const auto objects = api::load_objects(*text, entry->path().filename().string()); !objects.ok()) {
      source.bad_reason = objects.error().message;
    } else {
      source.text = *text;
    }
    found.emplace(entry->path(), std::move(source));
  }
  if (failed) {
    problem_ = fmt::format("{}: {}", (directory_ / "objects").string(), failed.message());
    sources_.merge(found);
    return;
  }
  changed = changed || !sources_.empty();  // the remaining sources have no file any more
  sources_ = std::move(found);
  if (changed) rebuild(now);
  synced_ = true;
}

void DirectoryStore::rebuild(Instant now) {
  problem_.clear();
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& [path, source] : sources_) {
    if (!source.text.empty()) texts.emplace_back(path.filename().string(), source.text);
    if (!source.bad_reason.empty()) problem_ += (problem_.empty() ? "" : "\n") + source.bad_reason;
  }
  const auto objects = api::load_objects(texts);
  if (!objects.ok()) {  // each file is valid alone, but two of them define the same object
    problem_ += (problem_.empty() ? "" : "\n") + objects.error().message;
    return;
  }
  std::vector<api::ModelService> services;
  std::vector<api::AcceleratorClass> classes;
  std::vector<api::PerformanceProfile> profiles;
  for (const api::Object& object : *objects) {
    if (const auto* service = std::get_if<api::ModelService>(&object.value)) {
      services.push_back(*service);
      adopt(services.back(), services_, now);
    } else if (const auto* accelerator = std::get_if<api::AcceleratorClass>(&object.value)) {
      classes.push_back(*accelerator);
      adopt(classes.back(), classes_, now);
    } else if (const auto* profile = std::get_if<api::PerformanceProfile>(&object.value)) {
      profiles.push_back(*profile);
      adopt(profiles.back(), profiles_, now);
    }
  }
  const auto by_name = [](const auto& a, const auto& b) { return earlier(a.metadata, b.metadata); };
  std::sort(services.begin(), services.end(), by_name);
  std::sort(classes.begin(), classes.end(), by_name);
  std::sort(profiles.begin(), profiles.end(), by_name);
  services_ = std::move(services);
  classes_ = std::move(classes);
  profiles_ = std::move(profiles);
}

template <class Object>
void DirectoryStore::adopt(Object& object, const std::vector<Object>& before, Instant now) const {
  api::ObjectMeta& meta = object.metadata;
  const auto same = std::find_if(before.begin(), before.end(), [&](const Object& old) {
    return old.metadata.name == meta.name && old.metadata.name_space == meta.name_space;
  });
  if (same != before.end()) {
    meta.uid = same->metadata.uid;
    meta.creation_timestamp = same->metadata.creation_timestamp;
    meta.generation = same->metadata.generation + (same_spec(*same, object) ? 0 : 1);
    object.status = same->status;
    return;
  }
  meta.uid = fmt::format("local-{}-{}-{:.0f}", meta.name_space, meta.name, now.wall_s * 1000);
  meta.creation_timestamp = kube::rfc3339(now.wall_s);
  meta.generation = 1;
  const auto text = read_file(status_file(Object::kKind, meta));
  if (!text.ok()) return;
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  const auto old = [&] {
    if constexpr (std::is_same_v<Object, api::ModelService>) {
      return api::model_service_from_json(json);
    } else if constexpr (std::is_same_v<Object, api::AcceleratorClass>) {
      return api::accelerator_class_from_json(json);
    } else {
      return api::performance_profile_from_json(json);
    }
  }();
  if (!old.ok()) return;  // written by another version: start over
  meta.uid = old->metadata.uid;
  meta.creation_timestamp = old->metadata.creation_timestamp;
  meta.generation = old->metadata.generation + (same_spec(*old, object) ? 0 : 1);
  object.status = old->status;
}

fs::path DirectoryStore::status_file(const std::string& kind, const api::ObjectMeta& meta) const {
  std::string folder = kind;
  std::transform(folder.begin(), folder.end(), folder.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string name = meta.name_space.empty() ? meta.name : meta.name_space + "." + meta.name;
  return directory_ / "status" / folder / (name + ".json");
}

Result<void> DirectoryStore::write_file(const fs::path& path, const std::string& text) const {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  const auto written = write_whole_file(path, text);
  if (!written.ok()) return Error{ErrorCode::kUnavailable, written.error().message};  // not the fault of an object
  return {};
}

Result<void> DirectoryStore::write_status(const api::ModelService& object, const api::ModelServiceStatus& status) {
  const auto held = std::find_if(services_.begin(), services_.end(),
                                 [&](const api::ModelService& one) { return one.metadata.uid == object.metadata.uid; });
  if (held == services_.end()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("ModelService {}/{} is gone", object.metadata.name_space, object.metadata.name)};
  }
  api::ModelService whole = *held;
  whole.status = status;
  WINDLASS_RETURN_IF_ERROR(write_file(status_file(api::ModelService::kKind, whole.metadata), to_text(api::to_json(whole), 2)));
  held->status = status;
  return {};
}

Result<void> DirectoryStore::write_status(const api::AcceleratorClass& object, const api::AcceleratorClassStatus& status) {
  const auto held = std::find_if(classes_.begin(), classes_.end(),
                                 [&](const api::AcceleratorClass& one) { return one.metadata.uid == object.metadata.uid; });
  if (held == classes_.end())
    return Error{ErrorCode::kNotFound, fmt::format("AcceleratorClass {} is gone", object.metadata.name)};
  api::AcceleratorClass whole = *held;
  whole.status = status;
  WINDLASS_RETURN_IF_ERROR(
      write_file(status_file(api::AcceleratorClass::kKind, whole.metadata), to_text(api::to_json(whole), 2)));
  held->status = status;
  return {};
}

Result<void> DirectoryStore::write_status(const api::PerformanceProfile& object, const api::PerformanceProfileStatus& status) {
  const auto held = std::find_if(profiles_.begin(), profiles_.end(),
                                 [&](const api::PerformanceProfile& one) { return one.metadata.uid == object.metadata.uid; });
  if (held == profiles_.end())
    return Error{ErrorCode::kNotFound, fmt::format("PerformanceProfile {} is gone", object.metadata.name)};
  api::PerformanceProfile whole = *held;
  whole.status = status;
  WINDLASS_RETURN_IF_ERROR(
      write_file(status_file(api::PerformanceProfile::kKind, whole.metadata), to_text(api::to_json(whole), 2)));
  held->status = status;
  return {};
}

Result<void> DirectoryStore::record_event(const api::ModelService& object, bool warning, const std::string& reason,
                                          const std::string& message, Instant now) {
  const nlohmann::json line = {{"time", kube::rfc3339(now.wall_s)},
                               {"type", warning ? "Warning" : "Normal"},
                               {"object", fmt::format("{}/{}", object.metadata.name_space, object.metadata.name)},
                               {"reason", reason},
                               {"message", message}};
  std::ofstream file(directory_ / "events.jsonl", std::ios::app);
  file << to_text(line, -1);
  if (!file.flush()) {
    return Error{ErrorCode::kUnavailable, fmt::format("{}: cannot be written", (directory_ / "events.jsonl").string())};
  }
  return {};
}

Result<std::string> DirectoryStore::config_map_value(const std::string& name_space, const api::KeyRef& ref, Instant) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("spec.model.config.configMapKeyRef: must not be set for objects in a "
                                                        "folder, which has no ConfigMaps (got {}/{}); use "
                                                        "spec.model.config.inline or spec.model.architecture",
                                                        name_space, ref.name)};
}

Result<int> DirectoryStore::priority(const std::string& priority_class, Instant) {
  if (priority_class.empty()) return 0;
  return Error{
      ErrorCode::kNotFound,
      fmt::format("spec.priorityClassName: must not be set for objects in a folder, which has no PriorityClasses (got '{}')",
                  priority_class)};
}

}  // namespace windlass::controller
