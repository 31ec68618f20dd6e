// Converts a worker to a Kubernetes pod and back. Pure: JSON in, JSON out.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "controller/kube/instance.h"
#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

inline constexpr int kWorkerPort = 8000;
using kube::kDefaultInstance;
using kube::kInstanceLabel;
// Environment variable with the worker's token; the worker refuses calls without it (docs/security.md).
inline constexpr const char* kWorkerToken = "WINDLASS_WORKER_TOKEN";
// Environment variables with the token that allows changes of its role, and with its role (from the label).
inline constexpr const char* kDutyToken = "WINDLASS_DUTY_TOKEN";
inline constexpr const char* kRoleVariable = "WINDLASS_ROLE";
inline constexpr const char* kRoleLabel = "windlass.dev/role";
inline constexpr const char* kChangingRoleSince = "windlass.dev/changing-role-since";  // annotation: Unix seconds
inline constexpr const char* kStages = "windlass.dev/stages";  // annotation: the servers of its chain; absent: it is no chain
inline constexpr const char* kStage = "windlass.dev/stage";    // annotation: which of them it is, from 0
inline constexpr const char* kDrainFinalizer = "windlass.dev/drain";
inline constexpr const char* kDrainingSince = "windlass.dev/draining-since";  // annotation: Unix seconds

inline constexpr std::int64_t kWorkerUser = 65532;  // an unprivileged user, as in distroless images

struct PodDefaults {
  std::string worker_image;                 // used if spec.engine.image is empty
  std::string fetch_image;                  // runs `hf download` for hf:// models; empty: hf:// is an error
  std::string instance = kDefaultInstance;  // the Windlass installation that the pods belong to
  bool any_pod_template = false;            // skips the checks of pod_policy.h
  std::function<std::string()> token =
      {};  // the installation's token, from which each service's workers derive theirs; null: workers have no token
  std::vector<std::string> pull_secrets = {};      // Secrets in the workers' namespaces, for pulling images
  std::optional<std::int64_t> user = kWorkerUser;  // of containers; nullopt: the image's, or the cluster's choice
};

// Error: the service needs something that a pod cannot have (file://, an engine without an image), or its pod template is not
// an object or violates pod_policy.h.
[[nodiscard]] Result<nlohmann::json> pod_of(const Launch& spec, const PodDefaults& defaults);

// The ModelService that owns the pod of a worker; nullptr: not one of our workers (no controller owner of this kind, or labels
// are missing).
[[nodiscard]] const nlohmann::json* owner_of_worker(const nlohmann::json& pod);
// nullopt: not one of our workers.
[[nodiscard]] std::optional<Worker> worker_of(const nlohmann::json& pod);

// Updates the worker from its node. `node` is nullptr if there is none with its name. `missing_for_long`: the node has been
// missing for too long to be a lag between two caches. A lost node makes the worker failed and not ready.
void judge_node(const nlohmann::json* node, bool missing_for_long, Worker& worker);

// Whether an administrator has marked the node as shut down and not coming back by itself (KEP-2268).
[[nodiscard]] bool out_of_service(const nlohmann::json& node);

// Whether the node is being emptied: cordoned, or marked for removal by a node autoscaler.
[[nodiscard]] bool being_emptied(const nlohmann::json& node);

// Units of `resource` that the pod uses on its node: the sum over its containers, or the largest init container if that is
// larger.
[[nodiscard]] int requested(const nlohmann::json& pod, const std::string& resource);

// Whether the pod is bound to a node and still holds its resources.
[[nodiscard]] bool holds_resources(const nlohmann::json& pod);

// "2026-05-01T10:00:00Z" as Unix seconds; 0 if the text is not such a time.
[[nodiscard]] double unix_seconds(const std::string& rfc3339);

}  // namespace windlass::controller
