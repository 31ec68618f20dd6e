// What a worker's pod may be, whoever wrote its template. Pure.
//
// Whoever may create a ModelService need not be allowed to create pods, and the controller creates pods for them: what a
// template may say is therefore named, field by field, and what is not named is refused. It keeps the Pod Security Standard
// "restricted" (https://kubernetes.io/docs/concepts/security/pod-security-standards/), and gives no other service account, no
// Secret that the service does not name in spec.engine.env, no pod put on a node past the scheduler and no system priority.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

// Error: kInvalidArgument naming the field, what was found and what is allowed.
[[nodiscard]] Result<void> check_pod(const nlohmann::json& pod, const Launch& spec);

}  // namespace windlass::controller
