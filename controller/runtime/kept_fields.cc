// See kept_fields.h.
#include "controller/runtime/kept_fields.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "controller/runtime/pod.h"
#include "controller/runtime/pod_json.h"

namespace windlass::controller {
namespace {

using nlohmann::json;

void keep(json& object, std::initializer_list<std::string_view> fields) {
  if (!object.is_object()) return;
  for (auto field = object.begin(); field != object.end();) {
    field = std::find(fields.begin(), fields.end(), field.key()) == fields.end() ? object.erase(field) : std::next(field);
  }
}

// Calls `change` with the value of a field, if the object has it.
template <class Change>
void with(json& object, const char* field, Change change) {
  if (!object.is_object()) return;
  const auto found = object.find(field);
  if (found != object.end()) change(*found);
}

void keep_containers(json& spec, const char* kind, bool tokens) {
  with(spec, kind, [&](json& containers) {
    if (!containers.is_array()) return;
    for (json& container : containers) {
      if (!tokens) {
        keep(container, {"resources"});
        continue;
      }
      keep(container, {"name", "resources", "env"});
      with(container, "env", [](json& variables) {
        if (!variables.is_array()) return;
        const auto other = [](const json& variable) {
          const std::string name = text_at(variable, {"name"});
          return name != kWorkerToken && name != kDutyToken;
        };
        variables.erase(std::remove_if(variables.begin(), variables.end(), other), variables.end());
      });
    }
  });
}

}  // namespace

void keep_read_fields_of_pod(json& pod) {
  const bool worker = owner_of_worker(pod) != nullptr;
  with(pod, "metadata", [&](json& metadata) {
    if (worker) {
      keep(metadata, {"name", "namespace", "uid", "resourceVersion", "labels", "annotations", "ownerReferences", "finalizers",
                      "creationTimestamp", "deletionTimestamp"});
    } else {
      keep(metadata, {"name", "namespace", "uid", "resourceVersion"});
    }
  });
  with(pod, "spec", [&](json& spec) {
    keep(spec, {"nodeName", "containers", "initContainers"});
    keep_containers(spec, "containers", worker);
    keep_containers(spec, "initContainers", false);
  });
  with(pod, "status", [&](json& status) {
    if (worker) {
      keep(status, {"phase", "reason", "message", "conditions", "podIP", "containerStatuses", "initContainerStatuses"});
    } else {
      keep(status, {"phase"});
    }
  });
}

void keep_read_fields_of_node(json& node) {
  with(node, "metadata", [](json& metadata) { keep(metadata, {"name", "uid", "resourceVersion", "labels"}); });
  with(node, "spec", [](json& spec) { keep(spec, {"unschedulable", "taints"}); });
  with(node, "status", [](json& status) { keep(status, {"allocatable", "conditions"}); });
}

}  // namespace windlass::controller
