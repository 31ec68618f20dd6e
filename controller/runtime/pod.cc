// See pod.h.
#include "controller/runtime/pod.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/runtime/engine_args.h"
#include "controller/runtime/engine_probes.h"
#include "controller/runtime/pod_policy.h"
#include "controller/runtime/pod_template.h"
#include "controller/runtime/taints.h"
#include "metrics/security/secrets.h"

namespace windlass::controller {
namespace {

using nlohmann::json;

constexpr const char* kModelMount = "/models";
constexpr const char* kCacheMount = "/cache";

struct ModelMount {
  EngineModel model;    // the model path in the engine's arguments
  json volume;          // null: none
  json init_container;  // null: none
};

Result<ModelMount> mount_model(const Launch& spec, const PodDefaults& defaults) {
  const auto rest_of = [&](std::string_view scheme) -> std::optional<std::string> {
    if (spec.model_uri.rfind(scheme, 0) != 0) return std::nullopt;
    return spec.model_uri.substr(scheme.size());
  };
  if (const auto rest = rest_of("pvc://")) {
    const auto slash = rest->find('/');
    const std::string claim = rest->substr(0, slash);
    const std::string inside = slash == std::string::npos ? "" : rest->substr(slash);
    if (claim.empty()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("spec.model.uri: must be pvc://CLAIM/PATH (got '{}')", spec.model_uri)};
    }
    return ModelMount{{kModelMount + inside, "", false},
                      {{"name", "model"}, {"persistentVolumeClaim", {{"claimName", claim}, {"readOnly", true}}}},
                      nullptr};
  }
  if (const auto rest = rest_of("hf://")) {
    const auto at = rest->find('@');
    if (spec.engine != "Windlass") {  // these engines download models themselves
      return ModelMount{{rest->substr(0, at), at == std::string::npos ? "" : rest->substr(at + 1), true}, nullptr, nullptr};
    }
    if (defaults.fetch_image.empty()) {
      return Error{ErrorCode::kFailedPrecondition,
                   fmt::format("spec.model.uri: must be pvc:// if the controller has no --fetch-image (got '{}'); the chart's "
                               "controller.fetchImage sets it",
                               spec.model_uri)};
    }
    json command = {"hf", "download", rest->substr(0, at), "--local-dir", kModelMount};
    if (at != std::string::npos) {
      command.push_back("--revision");
      command.push_back(rest->substr(at + 1));
    }
    json fetch = {{"name", "fetch-model"}, {"image", defaults.fetch_image}, {"command", command}};
    return ModelMount{{kModelMount, "", false}, {{"name", "model"}, {"emptyDir", json::object()}}, std::move(fetch)};
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("spec.model.uri: must be pvc:// or hf:// in a cluster (got '{}'); file:// is for windlass up",
                           spec.model_uri)};
}

json probe(const char* path, int period_s, int failures) {
  return {{"httpGet", {{"path", path}, {"port", "http"}}},
          {"periodSeconds", period_s},
          {"timeoutSeconds", 2},
          {"failureThreshold", failures}};
}

json empty_dir(const char* name) { return {{"name", name}, {"emptyDir", json::object()}}; }

// No root, no privilege escalation, a read-only image. The explicit user number lets images run that would otherwise run as
// root, as most engine images do.
json container_security() {
  return {{"allowPrivilegeEscalation", false},
          {"readOnlyRootFilesystem", true},
          {"runAsNonRoot", true},
          {"capabilities", {{"drop", {"ALL"}}}}};
}

json pod_security(const PodDefaults& defaults) {
  json out = {{"runAsNonRoot", true}, {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  if (defaults.user) out.update({{"runAsUser", *defaults.user}, {"runAsGroup", *defaults.user}});
  return out;
}

json pod_tolerations(const Launch& spec) {
  json out = json::array();
  for (const api::Toleration& one : worker_tolerations(spec.tolerations, spec.resource_name)) {
    json toleration = {{"operator", one.comparison}};
    if (!one.key.empty()) toleration["key"] = one.key;
    if (!one.value.empty()) toleration["value"] = one.value;
    if (!one.effect.empty()) toleration["effect"] = one.effect;
    out.push_back(std::move(toleration));
  }
  return out;
}

// The user's variables, plus directories that a user without a home can write to, unless the user sets them.
json environment(const Launch& spec) {
  const auto field = [](const char* name, const std::string& path) -> json {
    return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
  };
  json env = {field("POD_IP", "status.podIP")};
  if (spec.engine == "Windlass" && spec.has_phase())
    env.push_back(field(kRoleVariable, fmt::format("metadata.labels['{}']", kRoleLabel)));
  for (const WorkerEnv& one : spec.env) {
    if (one.name == "POD_IP" || one.name == kRoleVariable || one.name == kWorkerToken || one.name == kDutyToken) continue;
    json variable = {{"name", one.name}};
    if (one.secret) {
      variable["valueFrom"]["secretKeyRef"] = {{"name", one.secret->first}, {"key", one.secret->second}};
    } else if (one.config_map) {
      variable["valueFrom"]["configMapKeyRef"] = {{"name", one.config_map->first}, {"key", one.config_map->second}};
    } else {
      variable["value"] = one.value;
    }
    env.push_back(std::move(variable));
  }
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, const char*>>{
           {"HOME", kCacheMount},
           {"USER", "windlass"},  // some libraries look up the user's name, which a bare number lacks
           {"XDG_CACHE_HOME", kCacheMount},
           {"HF_HOME", "/cache/huggingface"},
           {"TMPDIR", "/tmp"},
           {kSglangHealthGenerates, "false"}}) {
    if (name == std::string_view(kSglangHealthGenerates) && spec.engine != "SGLang") continue;
    const bool said = std::any_of(spec.env.begin(), spec.env.end(), [&](const WorkerEnv& one) { return one.name == name; });
    if (!said) env.push_back({{"name", name}, {"value", value}});
  }
  return env;
}

json metadata_of(const Launch& spec, const PodDefaults& defaults) {
  json metadata = {{"name", spec.name},
                   {"namespace", spec.name_space},
                   {"labels",
                    {{"app.kubernetes.io/name", "windlass"},
                     {"app.kubernetes.io/component", "worker"},
                     {"app.kubernetes.io/managed-by", "windlass-controller"},
                     {kInstanceLabel, defaults.instance},
                     {"windlass.dev/service", spec.service},
                     {"windlass.dev/pool", spec.pool},
                     {"windlass.dev/slot", std::to_string(spec.slot)},
                     {kRoleLabel, spec.role}}},
                   {"annotations",
                    {{"windlass.dev/spec-hash", spec.hash()},
                     {"windlass.dev/accelerator", spec.accelerator},
                     {"windlass.dev/gpus", std::to_string(spec.gpus)},
                     {"windlass.dev/max-concurrency", std::to_string(spec.max_concurrency)}}},
                   {"ownerReferences",
                    {{{"apiVersion", "windlass.dev/v1alpha1"},
                      {"kind", "ModelService"},
                      {"name", spec.service},
                      {"uid", spec.service_uid},
                      {"controller", true},
                      {"blockOwnerDeletion", true}}}}};
  if (spec.stages > 1) {
    metadata["annotations"][kStages] = std::to_string(spec.stages);
    metadata["annotations"][kStage] = std::to_string(spec.stage);
  }
  return metadata;
}

// A quantity for Kubernetes, rounded up.
std::string at_least_1_gib(double bytes) {
  return fmt::format("{:.0f}Gi", std::max(1.0, std::ceil(bytes / (1024.0 * 1024 * 1024))));
}

// Without the model's volume.
json container_of(const Launch& spec, const PodDefaults& defaults, const std::string& image, const EngineCommand& command,
                  const json& env) {
  const json units = {{spec.resource_name, std::to_string(spec.gpus_of_server())}};
  const bool windlass = spec.engine == "Windlass";
  const EngineVersion version = engine_version_of_image(image);
  const ProbePaths probes = probe_paths(spec.engine, version);
  json container = {{"name", kWorkerContainer},
                    {"image", image},
                    {"args", command.args},
                    {"env", env},
                    {"ports", {{{"name", "http"}, {"containerPort", kWorkerPort}}}},
                    {"readinessProbe", probe(probes.readiness, 1, 3)},
                    {"livenessProbe", probe(probes.liveness, 10, 6)},
                    {"startupProbe", probe(probes.startup, 2, 900)},  // a large model may take half an hour to load
                    // What the model needs, so that the worker is not evicted first when its node runs short;
                    // spec.engine.podTemplate may say more.
                    {"resources",
                     {{"requests",
                       {{"cpu", "500m"},
                        {"memory", at_least_1_gib(spec.memory_bytes)},
                        {"ephemeral-storage", at_least_1_gib(spec.storage_bytes)}}},
                      {"limits", units}}},
                    {"securityContext", container_security()},
                    // keeps the end of the log as the reason why it ended
                    {"terminationMessagePolicy", "FallbackToLogsOnError"},
                    {"volumeMounts",
                     {{{"name", "cache"}, {"mountPath", kCacheMount}},
                      {{"name", "tmp"}, {"mountPath", "/tmp"}},
                      {{"name", "shm"}, {"mountPath", "/dev/shm"}}}}};
  container["resources"]["requests"].update(units);
  if (!windlass && !waits_by_itself(spec.engine, version)) {
    // The engine would cut its streams on SIGTERM, which the pod also gets when its node is drained without asking us.
    container["lifecycle"]["preStop"]["exec"]["command"] = {"sh", "-c",
                                                            drain_script(spec.engine, kWorkerPort, spec.drain_timeout_s)};
  }
  if (windlass && defaults.token) {
    // Derived per service: people who can read secrets in its namespace cannot call other services' workers.
    const std::string installation = defaults.token();
    for (const auto& [name, purpose] : {std::pair(kWorkerToken, "worker of"), std::pair(kDutyToken, "duty of workers of")}) {
      const std::string token =
          security::derived_secret(installation, fmt::format("{} ModelService {}", purpose, spec.service_uid));
      container["env"].push_back({{"name", name}, {"value", token}});
    }
  }
  if (!command.program.empty()) container["command"] = command.program;
  return container;
}

// Without containers and the model's volume.
json bare_pod_spec(const Launch& spec, const PodDefaults& defaults) {
  // NCCL and the engines pass tensors between a worker's processes through shared memory, and a container's default is 64 MiB.
  const json shm = {
      {"name", "shm"},
      {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", fmt::format("{}Gi", 2 * std::max(1, spec.gpus_of_server()))}}}};
  json out = {{"restartPolicy", "Always"},
              {"automountServiceAccountToken", false},
              {"enableServiceLinks", false},
              {"securityContext", pod_security(defaults)},
              {"tolerations", pod_tolerations(spec)},
              {"terminationGracePeriodSeconds", static_cast<std::int64_t>(std::ceil(spec.drain_timeout_s + kExitS))},
              {"volumes", {empty_dir("cache"), empty_dir("tmp"), shm}}};
  if (spec.gpus_of_server() > 1) {
    // Next to other workers, whole nodes stay free for the next one that needs several GPUs.
    const json term = {{"topologyKey", "kubernetes.io/hostname"},
                       {"labelSelector", {{"matchLabels", {{"app.kubernetes.io/component", "worker"}}}}}};
    out["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
        json::array({{{"weight", 100}, {"podAffinityTerm", term}}});
  } else {
    out["topologySpreadConstraints"] = {
        {{"maxSkew", 1},
         {"topologyKey", "kubernetes.io/hostname"},
         {"whenUnsatisfiable", "ScheduleAnyway"},
         {"labelSelector", {{"matchLabels", {{"windlass.dev/service", spec.service}, {"windlass.dev/pool", spec.pool}}}}}}};
  }
  return out;
}

// A file that needs no object of its own: an annotation of the pod, mounted.
void add_options_file(json& metadata, json& pod_spec, json& container) {
  constexpr const char* kAnnotation = "windlass.dev/engine-options";
  const std::string path = kTensorRtOptionsFile;
  const std::size_t slash = path.rfind('/');
  metadata["annotations"][kAnnotation] = kTensorRtOptions;
  const json item = {{"path", path.substr(slash + 1)},
                     {"fieldRef", {{"fieldPath", fmt::format("metadata.annotations['{}']", kAnnotation)}}}};
  pod_spec["volumes"].push_back({{"name", "engine-options"}, {"downwardAPI", {{"items", json::array({item})}}}});
  container["volumeMounts"].push_back({{"name", "engine-options"}, {"mountPath", path.substr(0, slash)}, {"readOnly", true}});
}

}  // namespace

Result<json> pod_of(const Launch& spec, const PodDefaults& defaults) {
  const std::string image = !spec.image.empty() ? spec.image : spec.engine == "Windlass" ? defaults.worker_image : "";
  if (image.empty()) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("spec.engine.image: must be set for engine {}, which has no default image (got nothing)", spec.engine)};
  }
  WINDLASS_ASSIGN_OR_RETURN(const ModelMount model, mount_model(spec, defaults));
  WINDLASS_ASSIGN_OR_RETURN(const EngineCommand command,
                            engine_command(spec, model.model, pod_address(), engine_version_of_image(image)));

  const json env = environment(spec);
  json container = container_of(spec, defaults, image, command, env);
  json pod_spec = bare_pod_spec(spec, defaults);
  if (!model.volume.is_null()) {
    container["volumeMounts"].push_back({{"name", "model"}, {"mountPath", kModelMount}});
    pod_spec["volumes"].push_back(model.volume);
  }
  if (!model.init_container.is_null()) {
    json fetch = model.init_container;
    fetch["env"] = env;  // includes the Hub token, if the user gave the worker one
    fetch["securityContext"] = container_security();
    fetch["volumeMounts"] = container["volumeMounts"];
    fetch["terminationMessagePolicy"] = "FallbackToLogsOnError";
    pod_spec["initContainers"] = json::array({fetch});
  }
  pod_spec["containers"] = json::array({container});
  for (const std::string& secret : defaults.pull_secrets) pod_spec["imagePullSecrets"].push_back({{"name", secret}});
  json metadata = metadata_of(spec, defaults);
  if (std::find(command.args.begin(), command.args.end(), kTensorRtOptionsFile) != command.args.end())
    add_options_file(metadata, pod_spec, pod_spec["containers"][0]);
  if (!spec.node_selector.empty()) pod_spec["nodeSelector"] = spec.node_selector;
  if (!spec.priority_class.empty()) pod_spec["priorityClassName"] = spec.priority_class;

  const json pod = {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", metadata}, {"spec", pod_spec}};
  if (spec.pod_template_json.empty()) return pod;
  WINDLASS_ASSIGN_OR_RETURN(json merged, merge_pod_template(pod, json::parse(spec.pod_template_json, nullptr, false), spec));
  if (!defaults.any_pod_template) WINDLASS_RETURN_IF_ERROR(check_pod(merged, spec));
  return merged;
}

}  // namespace windlass::controller
