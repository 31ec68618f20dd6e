// Merges the user's podTemplate into the pod that Windlass builds, like a Kubernetes strategic merge: objects by key; named
// list elements by their key (containers, volumes and env by name, mounts by mountPath, ports by number); other lists, such as
// tolerations, by appending. null removes one of our defaults.
//
// Users cannot change the worker's identity (name, owner, namespace, our labels and annotations), GPU count, address and drain
// time. Everything else is a default that they may override: security context, probes, resources, scheduling, volumes. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

inline constexpr const char* kWorkerContainer = "worker";

// Error: a field of the template has the wrong type; the message names it.
[[nodiscard]] Result<nlohmann::json> merge_pod_template(const nlohmann::json& ours, const nlohmann::json& theirs,
                                                        const Launch& spec);

}  // namespace windlass::controller
