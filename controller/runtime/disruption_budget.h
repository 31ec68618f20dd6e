// Builds the PodDisruptionBudget of a service. minAvailable is an integer from the current plan. A percentage would not work:
// Kubernetes computes it from the replica count of the scale subresource, which is minWorkers. Pods that are not ready may
// always be evicted. Pure.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

[[nodiscard]] std::string budget_name(const std::string& service);

[[nodiscard]] nlohmann::json budget_object(const DisruptionBudget& budget, const std::string& instance);

// Whether the stored budget equals the wanted one, for the same service.
[[nodiscard]] bool budget_holds(const nlohmann::json& stored, const DisruptionBudget& wanted);

}  // namespace windlass::controller
