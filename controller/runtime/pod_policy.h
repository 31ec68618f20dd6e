// Restricts what a worker's pod may contain, no matter who wrote the pod template. Pure.
//
// Somebody may have the right to create ModelServices but not pods, and the controller creates pods for them. So an allowlist
// names each permitted field, and everything else is refused. The allowlist follows the Pod Security Standard "restricted"
// (https://kubernetes.io/docs/concepts/security/pod-security-standards/). It also forbids other service accounts, Secrets that
// spec.engine.env does not name, placing a pod on a node without the scheduler, and system priorities.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

// Error: kInvalidArgument with the field, the rule and the value.
[[nodiscard]] Result<void> check_pod(const nlohmann::json& pod, const Launch& spec);

}  // namespace windlass::controller
