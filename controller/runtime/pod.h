// A worker as a Kubernetes pod, and a pod as a worker. Pure: JSON in, JSON out.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "controller/kube/instance.h"
#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

inline constexpr int kWorkerPort = 8000;
using kube::kDefaultInstance;
using kube::kInstanceLabel;
// The worker's environment: the token without which it takes no calls (docs/security.md).
inline constexpr const char* kWorkerToken = "WINDLASS_WORKER_TOKEN";
inline constexpr const char* kDrainFinalizer = "windlass.dev/drain";
inline constexpr const char* kDrainingSince = "windlass.dev/draining-since";  // annotation: Unix seconds

struct PodDefaults {
  std::string worker_image;                 // where spec.engine.image is empty
  std::string fetch_image;                  // runs `hf download` for hf:// models; empty: hf:// is refused
  std::string instance = kDefaultInstance;  // the installation that the pods belong to
  bool any_pod_template = false;            // templates may say what pod_policy.h does not allow
  std::function<std::string()> token =
      {};  // the installation's, from which each service's workers have theirs; null: they have none
};

// Error: the service asks for what a pod cannot be (file://, an engine without an image, a pod template that is no object, or
// says what pod_policy.h does not allow).
[[nodiscard]] Result<nlohmann::json> pod_of(const Launch& spec, const PodDefaults& defaults);

// nullopt: not a worker of ours (no controller owner of kind ModelService, or labels missing).
[[nodiscard]] std::optional<Worker> worker_of(const nlohmann::json& pod);

// What its node says of the worker. `node` is nullptr where there is none of its name; `missing_for_long`: and that is no
// matter of one cache being behind another. A lost node makes the worker failed and not ready.
void judge_node(const nlohmann::json* node, bool missing_for_long, Worker& worker);

// Whether an administrator says of the node that it is shut down and will not come back by itself (KEP-2268).
[[nodiscard]] bool out_of_service(const nlohmann::json& node);

// Whether whoever looks after the node is emptying it: cordoned, or marked by a node autoscaler that takes it away.
[[nodiscard]] bool being_emptied(const nlohmann::json& node);

// Units of `resource` that the pod holds on its node: the sum over its containers, or the largest init container if that is
// more.
[[nodiscard]] int requested(const nlohmann::json& pod, const std::string& resource);

// Whether the pod is bound to a node and its resources are still held.
[[nodiscard]] bool holds_resources(const nlohmann::json& pod);

// "2026-05-01T10:00:00Z" as Unix seconds; 0 when it is not such a time.
[[nodiscard]] double unix_seconds(const std::string& rfc3339);

}  // namespace windlass::controller
