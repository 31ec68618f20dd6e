// Checks a pod against a table of allowed fields; see pod_policy.h.
#include "controller/runtime/pod_policy.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "controller/runtime/pod_json.h"

namespace windlass::controller {
namespace {

using nlohmann::json;

// true: any value. An object: these fields only. A list: each element matches its one rule. $in: one of these values. $not:
// none of these values.
constexpr const char* kAllowed = R"({
"apiVersion": true, "kind": true,
"metadata": {"name": true, "namespace": true, "labels": true, "annotations": true, "ownerReferences": true},
"spec": {
  "activeDeadlineSeconds": true, "affinity": true, "automountServiceAccountToken": {"$in": [false]}, "dnsConfig": true,
  "dnsPolicy": true, "enableServiceLinks": true, "hostAliases": true, "hostIPC": {"$in": [false]}, "hostNetwork": {"$in": [false]},
  "hostPID": {"$in": [false]}, "hostUsers": {"$in": [false]}, "hostname": true, "imagePullSecrets": true, "nodeSelector": true,
  "preemptionPolicy": true, "priorityClassName": true, "readinessGates": true, "resourceClaims": true, "restartPolicy": true,
  "runtimeClassName": true, "schedulerName": true, "schedulingGates": true, "shareProcessNamespace": true, "subdomain": true,
  "terminationGracePeriodSeconds": true, "tolerations": true, "topologySpreadConstraints": true,
  "securityContext": {
    "fsGroup": true, "fsGroupChangePolicy": true, "runAsGroup": true, "runAsNonRoot": {"$in": [true]}, "runAsUser": {"$not": [0]},
    "seccompProfile": {"type": {"$in": ["RuntimeDefault", "Localhost"]}, "localhostProfile": true}, "supplementalGroups": true,
    "supplementalGroupsPolicy": true
  },
  "volumes": [{
    "name": true, "configMap": true, "downwardAPI": true, "emptyDir": true, "ephemeral": true, "persistentVolumeClaim": true,
    "projected": {"defaultMode": true, "sources": [{"configMap": true, "downwardAPI": true}]}
  }],
  "containers": [{
    "name": true, "image": true, "imagePullPolicy": true, "command": true, "args": true, "workingDir": true, "resources": true,
    "resizePolicy": true, "restartPolicy": true, "volumeMounts": true, "volumeDevices": true, "stdin": true, "stdinOnce": true,
    "tty": true, "terminationMessagePath": true, "terminationMessagePolicy": true,
    "ports": [{"name": true, "containerPort": true, "protocol": true}],
    "env": [{"name": true, "value": true,
             "valueFrom": {"fieldRef": true, "resourceFieldRef": true, "configMapKeyRef": true, "secretKeyRef": true}}],
    "envFrom": [{"prefix": true, "configMapRef": true}],
    "livenessProbe": "$probe", "readinessProbe": "$probe", "startupProbe": "$probe",
    "lifecycle": {"preStop": "$probe", "postStart": "$probe", "stopSignal": true},
    "securityContext": {
      "allowPrivilegeEscalation": {"$in": [false]}, "privileged": {"$in": [false]}, "readOnlyRootFilesystem": true,
      "runAsGroup": true, "runAsNonRoot": {"$in": [true]}, "runAsUser": {"$not": [0]}, "procMount": {"$in": ["Default"]},
      "capabilities": {"drop": true, "add": [{"$in": ["NET_BIND_SERVICE"]}]},
      "seccompProfile": {"type": {"$in": ["RuntimeDefault", "Localhost"]}, "localhostProfile": true}
    }
  }]
},
"$probe": {
  "exec": true, "grpc": true, "sleep": true, "httpGet": {"path": true, "port": true, "scheme": true, "httpHeaders": true},
  "tcpSocket": {"port": true}, "initialDelaySeconds": true, "timeoutSeconds": true, "periodSeconds": true,
  "successThreshold": true, "failureThreshold": true, "terminationGracePeriodSeconds": true
}})";

const json& allowed() {
  static const json kParsed = [] {
    json parsed = json::parse(kAllowed);
    parsed["spec"]["initContainers"] = parsed["spec"]["containers"];
    return parsed;
  }();
  return kParsed;
}

Error refused(const std::string& path, const std::string& got, const std::string& rule) {
  return {
      ErrorCode::kInvalidArgument,
      fmt::format("spec.engine.podTemplate.{}: must be {} (got {}); an administrator may allow more with --any-pod-template",
                  path, rule, got)};
}

std::string names_of(const json& fields) {
  std::string names;
  for (const auto& [name, value] : fields.items()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

// REQUIRES: `rule` is part of allowed().
Result<void> walk(const json& found, const json& rule, const std::string& path) {
  if (rule.is_boolean() || found.is_null()) return {};
  if (rule.is_string()) return walk(found, allowed().at(rule.get_ref<const std::string&>()), path);
  if (rule.is_array()) {
    if (!found.is_array()) return refused(path, found.type_name(), "a list");
    for (std::size_t i = 0; i < found.size(); ++i) {
      WINDLASS_RETURN_IF_ERROR(walk(found[i], rule[0], fmt::format("{}[{}]", path, i)));
    }
    return {};
  }
  for (const bool wanted : {true, false}) {
    const auto values = rule.find(wanted ? "$in" : "$not");
    if (values == rule.end()) continue;
    const bool among = std::find(values->begin(), values->end(), found) != values->end();
    if (among == wanted) return {};
    return refused(path, found.dump().substr(0, 60), (wanted ? "one of " : "anything but ") + values->dump());
  }
  if (!found.is_object()) return refused(path, found.type_name(), "an object");
  for (const auto& [name, value] : found.items()) {
    const auto field = rule.find(name);
    if (field == rule.end() || name.starts_with('$'))
      return refused(path, "'" + name.substr(0, 60) + "'", "an object with only the fields " + names_of(rule));
    WINDLASS_RETURN_IF_ERROR(walk(value, *field, path.empty() ? name : path + "." + name));
  }
  return {};
}

// "restricted" requires these fields to be set, not merely not set to something else.
Result<void> check_container(const json& container, const json& pod, const std::string& path, const Launch& spec) {
  const json* escalates = at(container, {"securityContext", "allowPrivilegeEscalation"});
  if (escalates == nullptr || *escalates != false) {
    return refused(path + ".securityContext.allowPrivilegeEscalation", "nothing", "false");
  }
  const json& dropped = list_at(container, {"securityContext", "capabilities", "drop"});
  if (std::find(dropped.begin(), dropped.end(), "ALL") == dropped.end()) {
    return refused(path + ".securityContext.capabilities.drop", dropped.dump().substr(0, 60), R"(a list with "ALL")");
  }
  if (!true_at(container, {"securityContext", "runAsNonRoot"}) && !true_at(pod, {"spec", "securityContext", "runAsNonRoot"})) {
    return refused(path + ".securityContext.runAsNonRoot", "nothing", "true, here or for the pod");
  }
  if (at(container, {"securityContext", "seccompProfile", "type"}) == nullptr &&
      at(pod, {"spec", "securityContext", "seccompProfile", "type"}) == nullptr) {
    return refused(path + ".securityContext.seccompProfile.type", "nothing",
                   "RuntimeDefault or Localhost, here or for the pod");
  }
  for (const json& variable : list_at(container, {"env"})) {
    const json* secret = at(variable, {"valueFrom", "secretKeyRef"});
    if (secret == nullptr) continue;
    const bool named = std::any_of(spec.env.begin(), spec.env.end(), [&](const WorkerEnv& one) {
      return one.secret && one.secret->first == text_at(*secret, {"name"}) && one.secret->second == text_at(*secret, {"key"});
    });
    if (named) continue;
    return refused(path + ".env." + text_at(variable, {"name"}), "another Secret", "a Secret that spec.engine.env names");
  }
  return {};
}

}  // namespace

Result<void> check_pod(const json& pod, const Launch& spec) {
  WINDLASS_RETURN_IF_ERROR(walk(pod, allowed(), ""));
  // In Kubernetes an absent value means true.
  if (const json* mounts = at(pod, {"spec", "automountServiceAccountToken"}); mounts == nullptr || *mounts != false) {
    return refused("spec.automountServiceAccountToken", "nothing", "false");
  }
  if (const json* annotations = at(pod, {"metadata", "annotations"}); annotations != nullptr && annotations->is_object()) {
    for (const auto& [name, value] : annotations->items()) {
      // Annotations for security profiles, from before there were fields for them.
      if (name.find("security.") == std::string::npos || name.find("kubernetes.io/") == std::string::npos) continue;
      return refused("metadata.annotations", "'" + name + "'", "without security profiles");
    }
  }
  if (const std::string priority = text_at(pod, {"spec", "priorityClassName"}); priority.starts_with("system-")) {
    return refused("spec.priorityClassName", "'" + priority + "'", "a class that does not begin with system-");
  }
  for (const char* list : {"containers", "initContainers"}) {
    const json& containers = list_at(pod, {"spec", list});
    for (std::size_t i = 0; i < containers.size(); ++i) {
      WINDLASS_RETURN_IF_ERROR(check_container(containers[i], pod, fmt::format("spec.{}[{}]", list, i), spec));
    }
  }
  return {};
}

}  // namespace windlass::controller
