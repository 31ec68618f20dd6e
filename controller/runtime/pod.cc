// See pod.h.
#include "controller/runtime/pod.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/runtime/engine_args.h"
#include "controller/runtime/pod_policy.h"
#include "controller/runtime/pod_template.h"
#include "metrics/security/secrets.h"

namespace windlass::controller {
namespace {

using nlohmann::json;

constexpr const char* kModelMount = "/models";
constexpr const char* kCacheMount = "/cache";
constexpr int kUser = 65532;  // nobody in particular, as distroless images have it

struct ModelMount {
  EngineModel model;    // as the engine is told
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
                   fmt::format("spec.model.uri: found '{}'; allowed is pvc://CLAIM/PATH", spec.model_uri)};
    }
    return ModelMount{{kModelMount + inside, "", false},
                      {{"name", "model"}, {"persistentVolumeClaim", {{"claimName", claim}, {"readOnly", true}}}},
                      nullptr};
  }
  if (const auto rest = rest_of("hf://")) {
    const auto at = rest->find('@');
    if (spec.engine != "Windlass") {  // these engines fetch for themselves
      return ModelMount{{rest->substr(0, at), at == std::string::npos ? "" : rest->substr(at + 1), true}, nullptr, nullptr};
    }
    if (defaults.fetch_image.empty()) {
      return Error{
          ErrorCode::kFailedPrecondition,
          fmt::format("spec.model.uri: found '{}', but the controller has no --fetch-image that could fetch it; allowed "
                      "without one is pvc://",
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
               fmt::format("spec.model.uri: found '{}'; allowed in a cluster are pvc:// and hf:// (file:// is for windlass up)",
                           spec.model_uri)};
}

json probe(const char* path, int period_s, int failures) {
  return {{"httpGet", {{"path", path}, {"port", "http"}}},
          {"periodSeconds", period_s},
          {"timeoutSeconds", 2},
          {"failureThreshold", failures}};
}

json empty_dir(const char* name) { return {{"name", name}, {"emptyDir", json::object()}}; }

// No root, no way to become it, no write to the image. Whatever an image's own user is, a number is said, so that images that
// would run as root (most engines' do) run without.
json container_security() {
  return {{"allowPrivilegeEscalation", false},
          {"readOnlyRootFilesystem", true},
          {"runAsNonRoot", true},
          {"capabilities", {{"drop", {"ALL"}}}}};
}

json pod_security() {
  return {
      {"runAsNonRoot", true}, {"runAsUser", kUser}, {"runAsGroup", kUser}, {"seccompProfile", {{"type", "RuntimeDefault"}}}};
}

// The user's variables, and where none of theirs says otherwise, places that a user without a home can write.
json environment(const Launch& spec) {
  json env = {{{"name", "POD_IP"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "status.podIP"}}}}}}};
  for (const WorkerEnv& one : spec.env) {
    if (one.name == "POD_IP" || one.name == kWorkerToken) continue;
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
           {"USER", "windlass"},  // some libraries ask for the user's name, which a mere number has not
           {"XDG_CACHE_HOME", kCacheMount},
           {"HF_HOME", "/cache/huggingface"},
           {"TMPDIR", "/tmp"}}) {
    const bool said = std::any_of(spec.env.begin(), spec.env.end(), [&](const WorkerEnv& one) { return one.name == name; });
    if (!said) env.push_back({{"name", name}, {"value", value}});
  }
  return env;
}

json metadata_of(const Launch& spec, const PodDefaults& defaults) {
  return {{"name", spec.name},
          {"namespace", spec.name_space},
          {"labels",
           {{"app.kubernetes.io/name", "windlass"},
            {"app.kubernetes.io/component", "worker"},
            {"app.kubernetes.io/managed-by", "windlass-controller"},
            {kInstanceLabel, defaults.instance},
            {"windlass.dev/service", spec.service},
            {"windlass.dev/pool", spec.pool},
            {"windlass.dev/slot", std::to_string(spec.slot)},
            {"windlass.dev/role", spec.role}}},
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
}

// Without the model's volume.
json container_of(const Launch& spec, const PodDefaults& defaults, const std::string& image, const EngineCommand& command,
                  const json& env) {
  const json units = {{spec.resource_name, std::to_string(spec.gpus)}};
  const bool windlass = spec.engine == "Windlass";
  json container = {{"name", kWorkerContainer},
                    {"image", image},
                    {"args", command.args},
                    {"env", env},
                    {"ports", {{{"name", "http"}, {"containerPort", kWorkerPort}}}},
                    {"readinessProbe", probe(windlass ? "/ready" : "/health", 1, 3)},
                    {"livenessProbe", probe("/health", 10, 6)},
                    {"startupProbe", probe("/health", 2, 900)},  // a large model may load for half an hour
                    // The least that any worker needs, so that it is not the first to go when its node runs short; what a model
                    // really needs is for spec.engine.podTemplate to say.
                    {"resources", {{"requests", {{"cpu", "500m"}, {"memory", "1Gi"}}}, {"limits", units}}},
                    {"securityContext", container_security()},
                    {"terminationMessagePolicy", "FallbackToLogsOnError"},  // its last words, for whoever asks why it ended
                    {"volumeMounts",
                     {{{"name", "cache"}, {"mountPath", kCacheMount}},
                      {{"name", "tmp"}, {"mountPath", "/tmp"}},
                      {{"name", "shm"}, {"mountPath", "/dev/shm"}}}}};
  container["resources"]["requests"].update(units);
  if (!windlass && !waits_by_itself(spec.engine, engine_version_of_image(image))) {
    // It would cut its streams on SIGTERM, which a node that is being emptied sends without asking us.
    container["lifecycle"]["preStop"]["exec"]["command"] = {"sh", "-c", drain_script(spec.engine, kWorkerPort)};
  }
  if (windlass && defaults.token) {
    // Of one service alone: what its namespace's people can read opens nobody else's workers.
    const std::string token = security::derived_secret(defaults.token(), "worker of ModelService " + spec.service_uid);
    container["env"].push_back({{"name", kWorkerToken}, {"value", token}});
  }
  if (!command.program.empty()) container["command"] = command.program;
  return container;
}

// Without containers and the model's volume.
json bare_pod_spec(const Launch& spec) {
  // Between processes of one worker NCCL and the engines pass tensors through shared memory; the container's own is 64 MiB.
  const json shm = {{"name", "shm"},
                    {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", fmt::format("{}Gi", 2 * std::max(1, spec.gpus))}}}};
  return {
      {"restartPolicy", "Always"},
      {"automountServiceAccountToken", false},
      {"enableServiceLinks", false},
      {"securityContext", pod_security()},
      {"terminationGracePeriodSeconds", static_cast<std::int64_t>(std::ceil(spec.drain_timeout_s))},
      {"volumes", {empty_dir("cache"), empty_dir("tmp"), shm}},
      {"topologySpreadConstraints",
       {{{"maxSkew", 1},
         {"topologyKey", "kubernetes.io/hostname"},
         {"whenUnsatisfiable", "ScheduleAnyway"},
         {"labelSelector", {{"matchLabels", {{"windlass.dev/service", spec.service}, {"windlass.dev/pool", spec.pool}}}}}}}}};
}

}  // namespace

Result<json> pod_of(const Launch& spec, const PodDefaults& defaults) {
  const std::string image = !spec.image.empty() ? spec.image : spec.engine == "Windlass" ? defaults.worker_image : "";
  if (image.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("spec.engine.image: nothing found, and there is no default image for engine {}", spec.engine)};
  }
  WINDLASS_ASSIGN_OR_RETURN(const ModelMount model, mount_model(spec, defaults));
  WINDLASS_ASSIGN_OR_RETURN(const EngineCommand command,
                            engine_command(spec, model.model, pod_address(), engine_version_of_image(image)));

  const json env = environment(spec);
  json container = container_of(spec, defaults, image, command, env);
  json pod_spec = bare_pod_spec(spec);
  if (!model.volume.is_null()) {
    container["volumeMounts"].push_back({{"name", "model"}, {"mountPath", kModelMount}});
    pod_spec["volumes"].push_back(model.volume);
  }
  if (!model.init_container.is_null()) {
    json fetch = model.init_container;
    fetch["env"] = env;  // the Hub's token, where the user gave the worker one
    fetch["securityContext"] = container_security();
    fetch["volumeMounts"] = container["volumeMounts"];
    fetch["terminationMessagePolicy"] = "FallbackToLogsOnError";
    pod_spec["initContainers"] = json::array({fetch});
  }
  pod_spec["containers"] = json::array({container});
  if (!spec.node_selector.empty()) pod_spec["nodeSelector"] = spec.node_selector;
  if (!spec.priority_class.empty()) pod_spec["priorityClassName"] = spec.priority_class;

  const json pod = {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", metadata_of(spec, defaults)}, {"spec", pod_spec}};
  if (spec.pod_template_json.empty()) return pod;
  WINDLASS_ASSIGN_OR_RETURN(json merged, merge_pod_template(pod, json::parse(spec.pod_template_json, nullptr, false), spec));
  if (!defaults.any_pod_template) WINDLASS_RETURN_IF_ERROR(check_pod(merged, spec));
  return merged;
}

}  // namespace windlass::controller
