// See pod.h.
#include "controller/runtime/pod.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace windlass::controller {
namespace {

using nlohmann::json;

constexpr const char* kModelMount = "/models";

struct ModelMount {
  std::string path;     // that the engine is given
  json volume;          // null: none
  json init_container;  // null: none
};

Result<ModelMount> mount_model(const WorkerSpec& spec, const PodDefaults& defaults) {
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
    return ModelMount{kModelMount + inside,
                      {{"name", "model"}, {"persistentVolumeClaim", {{"claimName", claim}, {"readOnly", true}}}},
                      nullptr};
  }
  if (const auto rest = rest_of("hf://")) {
    if (spec.engine != "Windlass") return ModelMount{*rest, nullptr, nullptr};  // these engines fetch for themselves
    if (defaults.fetch_image.empty()) {
      return Error{
          ErrorCode::kFailedPrecondition,
          fmt::format("spec.model.uri: found '{}', but the controller has no --fetch-image that could fetch it; allowed "
                      "without one is pvc://",
                      spec.model_uri)};
    }
    const auto at = rest->find('@');
    json command = {"hf", "download", rest->substr(0, at), "--local-dir", kModelMount};
    if (at != std::string::npos) {
      command.push_back("--revision");
      command.push_back(rest->substr(at + 1));
    }
    json fetch = {{"name", "fetch-model"},
                  {"image", defaults.fetch_image},
                  {"command", command},
                  {"volumeMounts", {{{"name", "model"}, {"mountPath", kModelMount}}}}};
    return ModelMount{kModelMount, {{"name", "model"}, {"emptyDir", json::object()}}, std::move(fetch)};
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("spec.model.uri: found '{}'; allowed in a cluster are pvc:// and hf:// (file:// is for windlass up)",
                           spec.model_uri)};
}

// How each engine is told what to serve. The names are the engines' own.
Result<std::vector<std::string>> engine_args(const WorkerSpec& spec, const std::string& model) {
  const std::string concurrency = std::to_string(spec.max_concurrency);
  const std::string gpus = std::to_string(spec.gpus);
  const std::string context = std::to_string(spec.max_context_tokens);
  const std::string port = std::to_string(kWorkerPort);
  const bool bounded = spec.max_context_tokens > 0;
  std::vector<std::string> args;
  if (spec.engine == "Windlass") {
    args = {"--model=" + model, fmt::format("--listen=$(POD_IP):{}", kWorkerPort), "--name=" + spec.served_name,
            "--max-concurrent=" + concurrency, fmt::format("--drain-timeout={:.0f}s", spec.drain_timeout_s)};
    if (bounded) args.push_back("--max-context-tokens=" + context);
  } else if (spec.engine == "VLLM") {
    args = {"--model",
            model,
            "--served-model-name",
            spec.served_name,
            "--host",
            "$(POD_IP)",
            "--port",
            port,
            "--tensor-parallel-size",
            gpus,
            "--max-num-seqs",
            concurrency};
    if (bounded) args.insert(args.end(), {"--max-model-len", context});
  } else if (spec.engine == "SGLang") {
    args = {"--model-path", model, "--served-model-name",    spec.served_name, "--host", "$(POD_IP)", "--port", port,
            "--tp",         gpus,  "--max-running-requests", concurrency};
    if (bounded) args.insert(args.end(), {"--context-length", context});
  } else if (spec.engine == "TensorRTLLM") {
    args = {model, "--host", "$(POD_IP)", "--port", port, "--tp_size", gpus, "--max_batch_size", concurrency};
    if (bounded) args.insert(args.end(), {"--max_seq_len", context});
  } else if (spec.engine == "LlamaCpp") {
    args = {"--model", model, "--alias", spec.served_name, "--host", "$(POD_IP)", "--port", port, "--parallel", concurrency};
    if (bounded) args.insert(args.end(), {"--ctx-size", context});
  } else {
    return Error{ErrorCode::kInvalidArgument, fmt::format("spec.engine.type: found '{}'", spec.engine)};
  }
  args.insert(args.end(), spec.extra_args.begin(), spec.extra_args.end());
  return args;
}

json probe(const char* path, int period_s, int failures) {
  return {{"httpGet", {{"path", path}, {"port", "http"}}},
          {"periodSeconds", period_s},
          {"timeoutSeconds", 2},
          {"failureThreshold", failures}};
}

// Ours over theirs: objects are merged, our scalars win, lists of named things (containers, volumes, env) are merged by name.
json merge_under(const json& theirs, const json& ours) {
  if (theirs.is_object() && ours.is_object()) {
    json out = theirs;
    for (const auto& [key, value] : ours.items()) out[key] = out.contains(key) ? merge_under(out[key], value) : value;
    return out;
  }
  const auto named = [](const json& list) {
    return list.is_array() &&
           std::all_of(list.begin(), list.end(), [](const json& one) { return one.is_object() && one.contains("name"); });
  };
  if (named(theirs) && named(ours)) {
    json out = ours;
    for (const json& one : theirs) {
      const auto same = std::find_if(out.begin(), out.end(), [&](const json& mine) { return mine["name"] == one["name"]; });
      if (same == out.end()) {
        out.push_back(one);
      } else {
        *same = merge_under(one, *same);
      }
    }
    return out;
  }
  return ours;
}

}  // namespace

Result<json> pod_of(const WorkerSpec& spec, const PodDefaults& defaults) {
  const std::string image = !spec.image.empty() ? spec.image : spec.engine == "Windlass" ? defaults.worker_image : "";
  if (image.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("spec.engine.image: nothing found, and there is no default image for engine {}", spec.engine)};
  }
  WINDLASS_ASSIGN_OR_RETURN(const ModelMount model, mount_model(spec, defaults));
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<std::string> args, engine_args(spec, model.path));

  json env = {{{"name", "POD_IP"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "status.podIP"}}}}}}};
  for (const WorkerEnv& one : spec.env) {
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
  const bool windlass = spec.engine == "Windlass";
  json container = {{"name", "worker"},
                    {"image", image},
                    {"args", args},
                    {"env", env},
                    {"ports", {{{"name", "http"}, {"containerPort", kWorkerPort}}}},
                    {"readinessProbe", probe(windlass ? "/ready" : "/health", 1, 3)},
                    {"livenessProbe", probe("/health", 10, 6)},
                    {"startupProbe", probe("/health", 2, 900)},  // a large model may load for half an hour
                    {"resources", {{"limits", {{spec.resource_name, std::to_string(spec.gpus)}}}}}};
  json pod_spec = {{"restartPolicy", "Always"},
                   {"automountServiceAccountToken", false},
                   {"enableServiceLinks", false},
                   {"terminationGracePeriodSeconds", static_cast<std::int64_t>(std::ceil(spec.drain_timeout_s))}};
  if (!model.volume.is_null()) {
    container["volumeMounts"] = {{{"name", "model"}, {"mountPath", kModelMount}}};
    pod_spec["volumes"] = json::array({model.volume});
  }
  if (!model.init_container.is_null()) {
    json fetch = model.init_container;
    // The Hub's token, where the user gave the worker one.
    fetch["env"] = env;
    pod_spec["initContainers"] = json::array({fetch});
  }
  pod_spec["containers"] = json::array({container});
  if (!spec.node_selector.empty()) pod_spec["nodeSelector"] = spec.node_selector;
  if (!spec.priority_class.empty()) pod_spec["priorityClassName"] = spec.priority_class;

  json pod = {{"apiVersion", "v1"},
              {"kind", "Pod"},
              {"metadata",
               {{"name", spec.name},
                {"namespace", spec.name_space},
                {"labels",
                 {{"app.kubernetes.io/name", "windlass"},
                  {"app.kubernetes.io/component", "worker"},
                  {"app.kubernetes.io/managed-by", "windlass-controller"},
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
                   {"blockOwnerDeletion", true}}}}}},
              {"spec", pod_spec}};
  if (!spec.pod_template_json.empty()) {
    const json theirs = json::parse(spec.pod_template_json, nullptr, false);
    if (!theirs.is_object())
      return Error{ErrorCode::kInvalidArgument, "spec.engine.podTemplate: found no object; allowed is {metadata, spec}"};
    pod = merge_under(theirs, pod);
  }
  return pod;
}

}  // namespace windlass::controller
