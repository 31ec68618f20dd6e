// See pod_template.h.
#include "controller/runtime/pod_template.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "controller/api/quantity.h"
#include "controller/runtime/engine_args.h"
#include "controller/runtime/pod_json.h"

namespace windlass::controller {
namespace {

using nlohmann::json;

// The key of a pod list's elements: the patchMergeKey of the Kubernetes API (k8s.io/api/core/v1/types.go). "": new elements are
// appended. nullopt: the user's list replaces ours.
std::optional<std::string_view> merge_key(std::string_view field) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kKeys = {
      {{"containers", "name"},
       {"initContainers", "name"},
       {"volumes", "name"},
       {"env", "name"},
       {"imagePullSecrets", "name"},
       {"resourceClaims", "name"},
       {"volumeMounts", "mountPath"},
       {"volumeDevices", "devicePath"},
       {"ports", "containerPort"},
       {"hostAliases", "ip"},
       {"topologySpreadConstraints", "topologyKey"},
       {"tolerations", ""},
       {"envFrom", ""},
       {"schedulingGates", "name"}}};
  for (const auto& [name, key] : kKeys) {
    if (name == field) return key;
  }
  return std::nullopt;
}

// A volume or variable has exactly one source, so the user's element replaces ours; merging them could leave two sources.
bool is_union(std::string_view list) { return list == "volumes" || list == "env"; }

Result<json> merge(const json& ours, const json& theirs, const std::string& path, std::string_view field);

Result<json> merge_list(const json& ours, const json& theirs, const std::string& path, std::string_view field) {
  if (!theirs.is_array()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be a list (got {})", path, theirs.type_name())};
  }
  const auto key = merge_key(field);
  if (!key) return theirs;
  json out = ours;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const json& one = theirs[i];
    if (key->empty()) {
      if (std::find(out.begin(), out.end(), one) == out.end()) out.push_back(one);
      continue;
    }
    if (!one.is_object() || !one.contains(*key)) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("{}[{}]: must be an object with {} (got none)", path, i, *key)};
    }
    const auto same =
        std::find_if(out.begin(), out.end(), [&](const json& mine) { return mine.contains(*key) && mine[*key] == one[*key]; });
    if (same == out.end()) {
      out.push_back(one);
    } else if (is_union(field)) {
      *same = one;
    } else {
      WINDLASS_ASSIGN_OR_RETURN(*same, merge(*same, one, fmt::format("{}[{}]", path, i), ""));
    }
  }
  return out;
}

// `ours` holds the defaults; `theirs` overrides them.
Result<json> merge(const json& ours, const json& theirs, const std::string& path, std::string_view field) {
  if (ours.is_array()) return merge_list(ours, theirs, path, field);
  if (!ours.is_object()) return theirs;
  if (!theirs.is_object()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be an object (got {})", path, theirs.type_name())};
  }
  json out = ours;
  for (const auto& [key, value] : theirs.items()) {
    if (value.is_null()) {
      out.erase(key);
    } else if (!out.contains(key)) {
      out[key] = value;
    } else {
      WINDLASS_ASSIGN_OR_RETURN(out[key], merge(out[key], value, path + "." + key, key));
    }
  }
  return out;
}

// Restores fields that users must not change, from the same place in `ours`.
void restore(const json& ours, json& merged, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (ours.contains(key)) {
      merged[key] = ours[key];
    } else {
      merged.erase(key);
    }
  }
}

void restore_all(const json& ours, json& merged) {
  if (!merged.is_object()) merged = json::object();
  for (const auto& [key, value] : ours.items()) merged[key] = value;
}

// Const or not.
template <class Json>
Json* worker_container(Json& pod) {
  for (Json& one : pod["spec"]["containers"]) {
    if (text_at(one, {"name"}) == kWorkerContainer) return &one;
  }
  return nullptr;
}

// Restores the pod's fields that users must not change.
void restore_pod(const json& ours, json& out, const Launch& spec) {
  json& meta = out["metadata"];
  restore(ours["metadata"], meta, {"name", "namespace", "ownerReferences", "generateName"});
  restore_all(ours["metadata"]["labels"], meta["labels"]);
  restore_all(ours["metadata"]["annotations"], meta["annotations"]);
  // The class selects the nodes with its accelerators; users may only narrow the selection.
  if (ours["spec"].contains("nodeSelector")) restore_all(ours["spec"]["nodeSelector"], out["spec"]["nodeSelector"]);
  restore(ours["spec"], out["spec"], {"terminationGracePeriodSeconds", "restartPolicy"});
  if (!spec.priority_class.empty()) restore(ours["spec"], out["spec"], {"priorityClassName"});
}

// Users may add engine arguments, but not repeat ours.
std::vector<std::string> merged_args(const json& ours, const json& theirs, const Launch& spec) {
  std::vector<std::string> args = ours.get<std::vector<std::string>>();
  if (theirs == ours) return args;
  std::vector<std::string> words;
  for (const json& word : theirs) {
    if (word.is_string()) words.push_back(word.get<std::string>());
  }
  const std::vector<std::string> more = other_args(spec, args, words);
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// The API server refuses a request above the user's limit, so ours shrinks to it.
void keep_requests_within_limits(const json& mine, json& worker) {
  for (const char* resource : {"cpu", "memory", "ephemeral-storage"}) {
    const std::string request = text_at(worker, {"resources", "requests", resource});
    const std::string limit = text_at(worker, {"resources", "limits", resource});
    if (request.empty() || limit.empty() || request != text_at(mine, {"resources", "requests", resource})) continue;
    const auto wanted = api::parse_quantity(request), most = api::parse_quantity(limit);
    if (wanted.ok() && most.ok() && *wanted > *most) worker["resources"]["requests"][resource] = limit;
  }
}

// Restores fields of the worker's container: arguments, accelerators, our port and the pod's IP.
void restore_worker(const json& mine, json& worker, const Launch& spec) {
  worker["args"] = merged_args(mine["args"], list_at(worker, {"args"}), spec);
  for (const char* kind : {"requests", "limits"}) {
    worker["resources"][kind][spec.resource_name] = std::to_string(spec.gpus_of_server());
  }
  keep_requests_within_limits(mine, worker);
  for (const json& port : mine["ports"]) {
    for (json& one : worker["ports"]) {
      if (one["containerPort"] == port["containerPort"]) one = port;
    }
  }
  for (json& variable : worker["env"]) {
    if (text_at(variable, {"name"}) == "POD_IP") variable = mine["env"][0];
  }
}

Result<void> check_other_containers(const json& pod, const Launch& spec, const std::string& path) {
  for (const char* list : {"containers", "initContainers"}) {
    for (const json& one : list_at(pod, {"spec", list})) {
      if (text_at(one, {"name"}) == kWorkerContainer) continue;
      for (const char* kind : {"requests", "limits"}) {
        if (at(one, {"resources", kind, spec.resource_name.c_str()}) == nullptr) continue;
        return Error{
            ErrorCode::kInvalidArgument,
            fmt::format(
                "{}.spec.{}: must request {} for no container but the worker, whose number the plan decides (got container {})",
                path, list, spec.resource_name, text_at(one, {"name"}))};
      }
    }
  }
  return {};
}

}  // namespace

Result<json> merge_pod_template(const json& ours, const json& theirs, const Launch& spec) {
  const std::string path = "spec.engine.podTemplate";
  if (!theirs.is_object()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must be an object with metadata and spec (got {})", path, theirs.type_name())};
  }
  for (const auto& [key, value] : theirs.items()) {
    if (key == "metadata" || key == "spec") continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must have only the fields metadata and spec (got '{}')", path, key)};
  }
  WINDLASS_ASSIGN_OR_RETURN(json out, merge(ours, theirs, path, ""));
  restore_pod(ours, out, spec);
  const json* mine = worker_container(ours);
  json* worker = worker_container(out);
  if (mine == nullptr || worker == nullptr) {
    return Error{ErrorCode::kInvalidArgument, path + ".spec.containers: must keep the container named worker"};
  }
  WINDLASS_RETURN_IF_ERROR(check_other_containers(out, spec, path));
  restore_worker(*mine, *worker, spec);
  return out;
}

}  // namespace windlass::controller
