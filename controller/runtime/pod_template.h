// The user's podTemplate merged with the pod that Windlass makes, as Kubernetes merges strategically: objects by key, lists of
// named things by what names them (containers, volumes and env by name, mounts by mountPath, ports by number, tolerations and
// the like appended), null takes a default of ours away.
//
// Ours stay: what the worker is (name, owner, namespace, our labels and annotations, GPU count, address, drain time).
// Everything else is a default that the user's word replaces: security context, probes, resources, scheduling, volumes. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

inline constexpr const char* kWorkerContainer = "worker";

// Error: the template has a field of the wrong kind; the message names it.
[[nodiscard]] Result<nlohmann::json> merge_pod_template(const nlohmann::json& ours, const nlohmann::json& theirs,
                                                        const Launch& spec);

}  // namespace windlass::controller
